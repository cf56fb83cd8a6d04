"""Tests of orchestrator/settings/options.py: dataclasses built from mappings."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from bbkb.orchestrator.annotations import Tagged
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.options import Options
from bbkb.orchestrator.settings.mistakes import RefusalError
from bbkb.orchestrator.settings.options import build, dump


@dataclass(frozen=True)
class Round(Options):
    radius: float
    name: Literal["round"] = "round"


@dataclass(frozen=True)
class Square(Options):
    side: float
    name: Literal["square", "box"] = "square"


@dataclass(frozen=True)
class Figure:
    """It allows unknown keys by pydantic's default, as a user's own class may."""

    shape: Annotated[Round | Square, Tagged("name", (("round", Round), ("square", Square), ("box", Square)))]
    hole: Round | None = None
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"figure.count must be >= 1, got {self.count}")


def _errors_of(options: dict[str, Any]) -> list[str]:
    with pytest.raises(RefusalError) as error:
        build(Figure, options)
    return [str(problem) for problem in error.value.problems]


def test_nested_dataclass_is_picked_by_its_name() -> None:
    built = build(Figure, {"shape": {"name": "box", "side": 2}, "hole": {"name": "round", "radius": 1}})
    assert built == Figure(Square(2.0, "box"), Round(1.0))
    assert build(Figure, dump(built)) == built


def test_mistakes_of_the_named_member_alone_are_reported() -> None:
    assert _errors_of({"shape": {"name": "round", "side": 1}}) == [
        "shape.radius is required",
        "shape.side is not a known key; valid names: radius, name",
    ]


def test_unknown_key_is_rejected_even_if_the_class_allows_it() -> None:
    assert _errors_of({"shape": {"name": "round", "radius": 1}, "counts": 2}) == [
        "counts is not a known key; did you mean 'count'?"
    ]


@dataclass(frozen=True)
class Covered:
    kernel: Kernel


def test_field_without_plain_values_is_named_with_a_supported_type() -> None:
    options = {"kernel": "rbf"}
    with pytest.raises(RefusalError) as error:
        build(Covered, options)
    assert [str(problem) for problem in error.value.problems] == [
        "kernel is a field of Covered with a type that no campaign file has, Kernel; take plain "
        "values, a dataclass of them, or bbkb.strategy.KernelOption for a kernel"
    ]


def test_wrong_part_is_not_reported_as_missing_too() -> None:
    assert _errors_of({"shape": {"name": "oval"}, "count": "x"}) == [
        "shape.name must be 'round', 'square' or 'box', got \"oval\"",
        'count must be a whole number, got "x"',
    ]


def test_error_of_the_class_itself_is_reported() -> None:
    assert _errors_of({"shape": {"name": "round", "radius": 1}, "count": 0}) == [": figure.count must be >= 1, got 0"]
