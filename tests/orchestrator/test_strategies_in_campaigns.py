"""Each strategy in a complete campaign: its log, its budget, and single pulls when it is
sequential."""

from pathlib import Path

import pytest

from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    Event,
    TrialFailed,
    TrialsDispatched,
    TrialSucceeded,
)
from bbkb.orchestrator.engine.engine import Problem, replay
from bbkb.orchestrator.session.driver import Driver
from tests.orchestrator.fakes import Campaign, Parabola

EVALUATIONS = 25


def run(folder: Path, name: str) -> tuple[Problem, list[Event], Driver]:
    """Run a campaign on four workers, some of which are lost; return its problem, log and driver."""
    campaign = Campaign(folder, EVALUATIONS, Parabola(breaks_below=0.1), name, slots=4)
    executor = campaign.simulated_executor(failure_rate=0.1)
    driver = campaign.driver(executor)
    driver.run(campaign.session_event(executor))
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
    picks = [pick for event in events if isinstance(event, BatchChosen) for pick in event.picks]
    assert len(picks) == EVALUATIONS
    failed = {event.trial for event in events if isinstance(event, TrialFailed) and event.is_final}
    assert (
        len(driver.recorder.engine.model.pulls.arms)
        <= driver.recorder.engine.model.pulls.total
        == EVALUATIONS - len(failed)
    )
    if getattr(STRATEGIES[name], "is_sequential", False):
        assert most_at_once(events) == 1
