"""Each strategy in a complete campaign: its log, its budget, single pulls when it is sequential, and values up to the
largest float."""

import contextlib
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from bbkb import Range
from bbkb.objectives.objective import Report
from bbkb.orchestrator.bandit.arms import as_arms
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategy import Choose, Observation
from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    Event,
    SessionOutcome,
    TrialFailed,
    TrialsDispatched,
    TrialSucceeded,
)
from bbkb.orchestrator.campaign.policy import Close
from bbkb.orchestrator.engine.engine import Problem, replay
from bbkb.orchestrator.session.driver import Driver
from bbkb.orchestrator.store.store import EventStore
from tests.examples import spread
from tests.orchestrator.fakes import Campaign, Parabola
from tests.orchestrator.runs import check_rebuilt, history_of, tune_here

EVALUATIONS = 25


def run(folder: Path, name: str) -> tuple[Problem, list[Event], Driver]:
    """Run a campaign to its end on four workers, some of which are lost; return its problem, log and driver."""
    campaign = Campaign(folder, EVALUATIONS, Parabola(breaks_below=0.1), name, slots=4)
    executor = campaign.simulated_executor(failure_rate=0.1)
    driver = campaign.driver(executor)
    assert driver.run(campaign.session_event(executor)) == Close(SessionOutcome.FINISHED, "budget spent")
    return campaign.problem, campaign.events(), driver


def most_at_once(events: list[Event]) -> int:
    """The largest number of evaluations that ran at the same time."""
    running: set[tuple[int, int]] = set()
    most = 0
    for event in events:
        if isinstance(event, TrialsDispatched):
            running |= set(event.attempts)
        elif isinstance(event, TrialSucceeded | TrialFailed):
            running.discard((event.trial, event.attempt))
        most = max(most, len(running))
    return most


@pytest.mark.parametrize("name", STRATEGIES)
def test_log_restores_the_state_of_the_strategy_and_shows_that_its_rules_held(tmp_path: Path, name: str) -> None:
    problem, events, driver = run(tmp_path, name)
    assert replay(problem, events).model == driver.recorder.engine.model
    with contextlib.closing(EventStore(tmp_path / "campaign.sqlite")) as store:
        check_rebuilt(problem, store, "c", every=29)
    picks = [pick for event in events if isinstance(event, BatchChosen) for pick in event.picks]
    assert len(picks) == EVALUATIONS
    failed = [event.trial for event in events if isinstance(event, TrialFailed) and event.is_final]
    succeeded = [event.trial for event in events if isinstance(event, TrialSucceeded)]
    assert sorted(failed + succeeded) == list(range(EVALUATIONS))
    assert (
        len(driver.recorder.engine.model.pulls.arms)
        <= driver.recorder.engine.model.pulls.total
        == EVALUATIONS - len(failed)
    )
    if getattr(STRATEGIES[name], "is_sequential", False):
        assert most_at_once(events) == 1


MOST, LEAST = sys.float_info.max, 5e-324
FIELDS: dict[str, Callable[[float], float]] = {
    "good": lambda x: MOST if x < 0.5 else x,
    "bad": lambda x: -MOST if x < 0.5 else x,
    "both": lambda x: MOST if x < 0.3 else (-MOST if x > 0.7 else 0.0),
    "all": lambda x: MOST * (2.0 * x - 1.0),
    "constant": lambda x: MOST,
    "large": lambda x: 1e300 * (x - 0.5),
    "squares": lambda x: 1e160 * (x - 0.5),
    "tiny": lambda x: LEAST * round(100 * x),
}
ARMS = np.random.default_rng(0).random((30, 2))


@pytest.mark.parametrize("field", list(FIELDS))
@pytest.mark.parametrize("name", ["bbkb", "gp_ucb", "gp_bucb", "async_ts", "uniform", "regularized_evolution"])
def test_strategy_chooses_and_recommends_among_huge_values(name: str, field: str) -> None:
    strategy = STRATEGIES[name]()
    state = strategy.init(as_arms(ARMS), np.random.default_rng(1))
    for number in range(12):
        decision = strategy.ask(state, (), 3)
        assert isinstance(decision, Choose)
        arms = [pick.arm for pick in decision.picks]
        told = [Observation(arm, FIELDS[field](float(ARMS[arm, 0]))) for arm in arms + arms[:1]]  # one is repeated
        state = strategy.tell(state, told, np.random.default_rng([2, number]))
    posterior = strategy.posterior(state)
    if posterior is not None:
        assert not np.isinf(posterior.mean).any()  # NaN: model-free strategies know pulled arms only


@pytest.mark.parametrize(("field", "direction"), spread(FIELDS, ["minimize", "maximize"]))
def test_campaign_with_any_values_finishes_and_is_drawn(
    tmp_path: Path, field: str, direction: Literal["minimize", "maximize"]
) -> None:
    function = FIELDS[field]
    space = {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)}
    settings = {"candidates": {"size": 200}, "strategy": {"name": "bbkb"}}
    arguments = {"evaluations": 22, "direction": direction}
    result = tune_here(tmp_path, lambda x, y: function(x), space, settings, **arguments)
    history = history_of(result)
    assert len(history.succeeded) == 22
    assert "<html" in result.report.read_text(encoding="utf-8")


def test_reports_and_results_of_the_largest_floats_in_both_directions_end_no_campaign(tmp_path: Path) -> None:
    largest, counts = sys.float_info.max, itertools.count()

    def value(x: float, report: Report) -> float:
        sign = 1.0 if next(counts) % 2 else -1.0
        for step in range(1, 4):
            report(sign * largest if step != 2 else 5e-324, step, aside=-largest)
        return sign * largest

    settings = {"strategy": {"name": "bbkb"}}
    result = tune_here(tmp_path, value, settings=settings, evaluations=20, direction="minimize")
    assert result.outcome == "finished"
    assert result.report.is_file()
