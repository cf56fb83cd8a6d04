"""The kinds of parameters a search space is made of.

Plain frozen dataclasses, so that they cost nothing to import where evaluations run. They follow pydantic's conventions
for standard dataclasses (a campaign file's mapping becomes one of them, unknown keys are refused) without importing it.
Parameters that exist only under a condition would be one more field on each kind.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`, both included; `log` spreads them evenly in their logarithm.

    Raises ValueError unless low < high, both finite; low > 0 for `log`; both whole for `integer`.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise ValueError(f"low and high must be finite, got low={self.low}, high={self.high}")
        if self.low >= self.high:
            raise ValueError(
                f"low must be < high, got low={self.low}, high={self.high}; write a fixed value as {{constant: value}}"
            )
        if self.log and self.low <= 0:
            raise ValueError(f"low must be > 0 on a log scale, got {self.low}; raise it or drop `log`")
        if self.integer and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise ValueError(f"low and high of integers must be whole, got low={self.low}, high={self.high}")


@dataclass(frozen=True, slots=True)
class Choice:
    """One of `choices`, which have no order: any two different ones are equally far apart.

    Raises ValueError when there is none or two are equal.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    choices: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", tuple(self.choices))
        _require_distinct("choices", self.choices)


@dataclass(frozen=True, slots=True)
class Ordinal:
    """One of `ordered`, which stand in order: neighbours are alike, steps count as equal.

    Raises ValueError when there is none or two are equal.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    ordered: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ordered", tuple(self.ordered))
        _require_distinct("ordered", self.ordered)


@dataclass(frozen=True, slots=True)
class Constant:
    """Always `constant`: handed to the objective, invisible to the model."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    constant: Scalar


Parameter = Range | Choice | Ordinal | Constant
Space = Mapping[str, Parameter]


def _require_distinct(name: str, levels: Sequence[Scalar]) -> None:
    if not levels:
        raise ValueError(f"{name} must hold at least one value, got none")
    for position, level in enumerate(levels):
        # by equality, so that 1, 1.0 and True count as one: an objective could not tell them apart either
        if level in levels[:position]:
            raise ValueError(f"{name} must differ from each other, got {level!r} twice")
