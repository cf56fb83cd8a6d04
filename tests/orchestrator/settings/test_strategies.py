"""Tests of orchestrator/settings/strategies.py: the strategy that a campaign file names."""

from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.bandit.model.model import model_of
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.bandit.strategies.presets import with_preset
from orchestrator.settings.problems import describe
from orchestrator.settings.strategies import build_strategy, dump_strategy


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_built_by_name_and_loads_back(name: str) -> None:
    built = build_strategy({"name": name})
    assert built == STRATEGIES[name](**with_preset(STRATEGIES[name], {}))
    assert dump_strategy(built)["name"] == name
    assert build_strategy(dump_strategy(built)) == built


@pytest.mark.parametrize("name", [name for name, cls in STRATEGIES.items() if hasattr(cls, "model")])
def test_the_paper_preset_and_an_explicit_kernel_give_the_published_algorithm(name: str) -> None:
    for options in ({"preset": "paper"}, {"kernel": {"name": "rbf"}}):
        built = build_strategy({"name": name, **options})
        assert model_of(built) is None
        assert build_strategy(dump_strategy(built)) == built
    assert build_strategy({"name": name, "preset": "paper"}) == STRATEGIES[name]()


def _errors_of(options: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as error:
        build_strategy(options)
    return [str(problem) for problem in describe(error.value, options)]


def test_a_preset_that_is_unknown_or_contradicted_is_refused() -> None:
    assert _errors_of({"preset": "best"}) == ["preset must be one of calibrated, paper, got 'best'"]
    assert _errors_of({"preset": "calibrated", "regularization": 1}) == [
        "preset must be paper beside strategy.regularization: calibrated settings fit the model instead"
    ]
    assert _errors_of({"model": {"outputs": "square"}}) == [
        "model.outputs must be 'half_rank', 'rank', 'standardise' or 'raw', got \"square\""
    ]


def test_an_option_of_an_older_version_is_left_out_when_it_is_off_and_refused_when_it_is_on() -> None:
    assert build_strategy({"name": "bbkb", "fillers": 0.0}) == build_strategy({"name": "bbkb"})
    with pytest.raises(ValidationError, match=r"is not an option any longer.*remove it"):
        build_strategy({"name": "bbkb", "fillers": 0.1})
