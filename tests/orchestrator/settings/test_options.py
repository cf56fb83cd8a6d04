"""Objectives' options and strategies, built from mappings."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import pytest

from bbkb.orchestrator.annotations import Tagged
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.model.model import model_of
from bbkb.orchestrator.bandit.options import Options
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategies.uniform import Uniform
from bbkb.orchestrator.bandit.strategy import never_waits
from bbkb.orchestrator.settings.mistakes import RefusalError
from bbkb.orchestrator.settings.options import build, dump
from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy


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


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategy_is_built_by_name_and_loads_back(name: str) -> None:
    built = build_strategy({"name": name})
    assert built == STRATEGIES[name](**with_preset(STRATEGIES[name], {}))
    assert dump_strategy(built)["name"] == name
    assert build_strategy(dump_strategy(built)) == built


@pytest.mark.parametrize("name", [name for name, cls in STRATEGIES.items() if hasattr(cls, "model")])
def test_paper_preset_and_an_explicit_kernel_give_the_published_algorithm(name: str) -> None:
    for options in ({"preset": "paper"}, {"kernel": {"name": "rbf"}}):
        built = build_strategy({"name": name, **options})
        assert model_of(built) is None
        assert build_strategy(dump_strategy(built)) == built
    assert build_strategy({"name": name, "preset": "paper"}) == STRATEGIES[name]()


def test_file_that_names_some_options_gets_the_newest_defaults() -> None:
    assert getattr(build_strategy({"name": "bbkb", "width": 1.5}), "coverage", 0.0) > 0.0
    noisy = model_of(build_strategy({"name": "bbkb", "model": {"noise": 0.1}}))
    assert noisy is not None
    assert (noisy.noise, noisy.first_fit) == (0.1, None)


def _strategy_errors_of(options: dict[str, Any]) -> list[str]:
    with pytest.raises(RefusalError) as error:
        build_strategy(options)
    return [str(problem) for problem in error.value.problems]


def test_preset_that_is_unknown_or_contradicted_is_rejected() -> None:
    (message,) = _strategy_errors_of({"preset": "best"})
    assert "preset must be one of calibrated, paper, theory" in message
    assert _strategy_errors_of({"preset": "calibrated", "regularization": 1}) == [
        "preset must be paper if strategy.regularization is given, because calibrated settings fit the model"
    ]
    assert _strategy_errors_of({"model": {"outputs": "square"}}) == [
        "model.outputs must be 'half_rank', 'rank', 'standardise' or 'raw', got \"square\""
    ]


@dataclass(frozen=True)
class Eager(Uniform):
    """A strategy of a user's own, which chooses for any pending pulls."""

    never_waits: ClassVar[bool] = True


@dataclass(frozen=True)
class Growing(Eager):
    """The same strategy with a rule for learning results."""

    mode: str = "async"
    refresh_growth: float = 0.1


def test_own_strategy_that_never_waits_must_be_asynchronous() -> None:
    (message,) = _strategy_errors_of({"name": f"{__name__}:Eager"})
    assert message.startswith('name must have a field mode, "async"')
    assert getattr(build_strategy({"name": f"{__name__}:Growing"}), "refresh_growth") == 0.1  # noqa: B009
    (message,) = _strategy_errors_of({"name": f"{__name__}:Growing", "mode": "batch"})
    assert "must have a field mode" in message
    assert never_waits(Eager())
    assert not never_waits(Uniform())


@dataclass(frozen=True)
class Lacking(Uniform):
    """A strategy without `posterior`."""

    posterior: ClassVar[None] = None  # type: ignore[assignment]


@dataclass(frozen=True)
class LackingMore(Lacking):
    """The same, which cannot continue a run."""

    restore: ClassVar[None] = None  # type: ignore[assignment]


def test_campaign_needs_all_methods_of_a_strategy_but_posterior() -> None:
    assert isinstance(build_strategy({"name": f"{__name__}:Lacking"}), Uniform)
    (message,) = _strategy_errors_of({"name": f"{__name__}:LackingMore"})
    assert message == "name must have the methods init, ask, tell, recorded, restore; it lacks restore"
