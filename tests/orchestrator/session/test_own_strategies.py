"""Campaigns with a strategy of the user's own: the display of its errors, and the message if it
chooses nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from typer.testing import CliRunner

from bbkb import CampaignError, Optimizer, Range, Result, load, strategy
from bbkb.orchestrator.bandit.strategies.uniform import Uniform
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.cli.plan import first_arms
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.settings.loading import from_mapping
from tests.orchestrator.runs import history_of, tune_here


@dataclass(frozen=True)
class Crash(Uniform):
    """Raises in `ask`."""

    def ask(self, state: strategy.ModelFreeState, pending: Sequence[int], limit: int) -> strategy.Decision:
        raise RuntimeError("my strategy has a bug")


@dataclass(frozen=True)
class NoStart(Uniform):
    """Raises in `init`."""

    def init(self, arms: Any, rng: Any) -> Any:
        raise RuntimeError("my strategy cannot start")


@dataclass(frozen=True)
class Nothing(Uniform):
    """Chooses nothing."""

    def ask(self, state: strategy.ModelFreeState, pending: Sequence[int], limit: int) -> strategy.Decision:
        return strategy.Choose((), "nothing to do")


@dataclass(frozen=True)
class Odd(Uniform):
    """Returns `decisions[0]`."""

    decisions: ClassVar[list[Any]] = []

    def ask(self, state: strategy.ModelFreeState, pending: Sequence[int], limit: int) -> strategy.Decision:
        return cast("strategy.Decision", self.decisions[0])


def run(folder: Path, name: str, module: str = __file__) -> Result:
    """Run a campaign with the strategy `name` of this file."""
    settings = {"strategy": {"name": f"{module}:{name}"}}
    return tune_here(folder / "runs", lambda x: float(x), evaluations=4, settings=settings)


def test_error_in_a_strategy_is_shown_and_logged_with_its_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(
        CampaignError, match=r"my strategy has a bug \(.*test_own_strategies\.py:\d+, in ask\)"
    ) as caught:
        run(tmp_path, "Crash")
    assert 'raise RuntimeError("my strategy has a bug")' in str(caught.value)
    log = next((tmp_path / "runs").glob("*/run.log")).read_text()
    assert "Traceback" in log
    assert "test_own_strategies.py" in log


def test_error_in_the_first_step_of_a_strategy_names_its_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match=r"starting the strategy: my strategy cannot start \(.*:\d+, in init\)"):
        run(tmp_path, "NoStart")


def test_strategy_without_a_choice_is_named_as_the_cause(tmp_path: Path) -> None:
    result = run(tmp_path, "Nothing")
    assert result.outcome == "failed"
    assert "the strategy must choose at least one candidate" in history_of(load(result.folder)).sessions[-1].reason


@pytest.mark.parametrize(
    ("decision", "rule"),
    [
        (None, "ask must return Choose or Wait, got None"),
        (strategy.Choose((strategy.Pick(-1),), "limit"), r"from 0 to \d+, got Pick\(arm=-1"),
        (strategy.Choose((strategy.Pick(10**9),), "limit"), r"from 0 to \d+, got Pick\(arm=1000000000"),
        (strategy.Choose((strategy.Pick(cast("int", 0.5)),), "limit"), r"from 0 to \d+, got Pick\(arm=0.5"),
        (strategy.Choose((cast("strategy.Pick", 3),), "limit"), r"from 0 to \d+, got 3"),
    ],
)
def test_invalid_decision_is_refused_before_it_is_recorded(tmp_path: Path, decision: Any, rule: str) -> None:
    Odd.decisions[:] = [decision]
    with pytest.raises(CampaignError, match=rule):
        run(tmp_path, "Odd", __name__)
    with pytest.raises(ValueError, match=rule):
        Optimizer({"x": Range(0.0, 1.0)}, "maximize", strategy=Odd()).ask()
    base = {"name": "odd", "objective": {"name": "branin"}, "budget": {"evaluations": 1}}
    settings = from_mapping({**base, "strategy": f"{__name__}:Odd"})
    with pytest.raises(CampaignError, match=rule):
        first_arms(settings, build(settings), None)


def test_numbers_of_numpy_and_a_missing_reason_are_recorded(tmp_path: Path) -> None:
    pick = strategy.Pick(cast("int", np.int64(3)), mean=cast("float", np.float32(0.5)))
    Odd.decisions[:] = [strategy.Choose((pick,), cast("str", None))]
    result = run(tmp_path, "Odd", __name__)
    assert {trial.status for trial in load(result.folder).trials} == {"succeeded"}


def test_strategy_of_a_module_is_explained_and_used_by_the_optimizer() -> None:
    reference = f"{__file__}:Nothing"
    shown = CliRunner().invoke(app, ["strategies", reference], catch_exceptions=False)
    assert shown.exit_code == 0
    assert Optimizer({"x": Range(0.0, 1.0)}, "maximize", strategy=reference).ask(2) == []


def test_deviation_is_in_the_unit_of_the_mean() -> None:
    posterior = strategy.Posterior(mean=np.zeros(2), variance=np.array([1.0, 4.0]), ucb=np.zeros(2), unit=0.25)
    assert posterior.deviation.tolist() == [0.5, 1.0]
