"""Rules that strategies share: the ranges of their hyper-parameters, and when nothing may be chosen."""

import math
from collections.abc import Sequence, Sized
from enum import StrEnum
from typing import Protocol, TypeVar

from orchestrator.bandit.arrays import Indices
from orchestrator.bandit.strategy import Wait

E = TypeVar("E", bound=StrEnum)


class HasArms(Protocol):
    """A state that knows its candidates and which of them are set aside."""

    @property
    def arms(self) -> Sized:
        """The A candidates."""

    @property
    def set_aside(self) -> Indices:
        """Arms that could not be evaluated."""


def require(strategy: object, name: str, rule: str, is_met: bool) -> None:
    """Raise ValueError, naming the field `name` and its value, unless the rule is met."""
    if not is_met:
        raise ValueError(f"strategy.{name} must be {rule}, got {getattr(strategy, name)!r}")


def require_positive(strategy: object, *names: str) -> None:
    """Raise ValueError unless these fields are > 0 and finite."""
    for name in names:
        require(strategy, name, "> 0", 0 < getattr(strategy, name) < math.inf)


def require_not_negative(strategy: object, *names: str) -> None:
    """Raise ValueError unless these fields are >= 0 and finite."""
    for name in names:
        require(strategy, name, ">= 0", 0 <= getattr(strategy, name) < math.inf)


def require_optional(strategy: object, name: str, value: float | None) -> None:
    """Raise ValueError unless the field `name`, which is `value`, is > 0 and finite, or None."""
    require(strategy, name, "> 0, or left out", value is None or 0 < value < math.inf)


def require_probability(strategy: object, name: str) -> None:
    """Raise ValueError unless this field is in (0, 1)."""
    require(strategy, name, "> 0 and < 1", 0 < getattr(strategy, name) < 1)


def refusal(state: HasArms, limit: int) -> Wait | None:
    """What to answer when no arm is left. Raises ValueError when `limit` is below 1."""
    if limit < 1:
        raise ValueError(f"limit must be >= 1, got {limit}")
    return Wait("every arm is set aside") if len(state.set_aside) == len(state.arms) else None


def sequential_refusal(state: HasArms, pending: Sequence[int], limit: int) -> Wait | None:
    """As `refusal`, for strategies that pull one arm at a time: they wait while a reward is not in yet."""
    return refusal(state, limit) or (Wait("one pull at a time: the last reward is not in yet") if pending else None)


def member(strategy: object, name: str, choices: type[E]) -> E:
    """The member of `choices` that the field `name` is or names. Raises ValueError, naming it, when there is none."""
    value = getattr(strategy, name)
    require(strategy, name, f"one of {', '.join(choices)}", value in list(choices))
    return choices(value)
