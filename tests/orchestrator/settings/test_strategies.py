"""Tests of orchestrator/settings/strategies.py: the strategy that a campaign file names."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from bbkb.orchestrator.bandit.model.model import model_of
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategies.uniform import Uniform
from bbkb.orchestrator.bandit.strategy import never_waits
from bbkb.orchestrator.settings.mistakes import RefusalError
from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy


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


def _errors_of(options: dict[str, Any]) -> list[str]:
    with pytest.raises(RefusalError) as error:
        build_strategy(options)
    return [str(problem) for problem in error.value.problems]


def test_preset_that_is_unknown_or_contradicted_is_rejected() -> None:
    (message,) = _errors_of({"preset": "best"})
    assert "preset must be one of calibrated, paper, theory" in message
    assert _errors_of({"preset": "calibrated", "regularization": 1}) == [
        "preset must be paper if strategy.regularization is given, because calibrated settings fit the model"
    ]
    assert _errors_of({"model": {"outputs": "square"}}) == [
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
    (message,) = _errors_of({"name": f"{__name__}:Eager"})
    assert message.startswith('name must have a field mode, "async"')
    assert getattr(build_strategy({"name": f"{__name__}:Growing"}), "refresh_growth") == 0.1  # noqa: B009
    (message,) = _errors_of({"name": f"{__name__}:Growing", "mode": "batch"})
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
    (message,) = _errors_of({"name": f"{__name__}:LackingMore"})
    assert message == "name must have the methods init, ask, tell, recorded, restore; it lacks restore"
