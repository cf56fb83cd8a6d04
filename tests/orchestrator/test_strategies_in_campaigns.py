"""Each strategy in a complete campaign: its log, its budget, and single pulls when it is
sequential."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from objectives.objective import Candidates, Evaluation, Parameters, Report
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.campaign.events import (
    BatchChosen,
    CampaignCreated,
    Event,
    SessionOpened,
    TrialFailed,
    TrialsDispatched,
    TrialSucceeded,
)
from orchestrator.session.driver import Driver
from orchestrator.session.problem import Problem, replay
from orchestrator.store.event_store import EventStore
from orchestrator.store.migrations import rules_of_version_2
from workers.messages import FailureKind
from workers.simulated import DurationModel, Failures, SimulatedExecutor

X = np.linspace(0.0, 1.0, 51)
EVALUATIONS = 25
SETTINGS = {
    "objective": {"direction": "maximize"},
    "budget": {"evaluations": EVALUATIONS},
    "workers": {"retries": 1},
}


@dataclass(frozen=True)
class Parabola:
    """Best at x = 0.3; cannot be evaluated below 0.1."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        if parameters["x"] < 0.1:
            raise RuntimeError("too small")
        return Evaluation(1.0 - (parameters["x"] - 0.3) ** 2 + 0.01 * np.random.default_rng(seed).standard_normal())


def run(folder: Path, name: str) -> tuple[Problem, list[Event], Driver]:
    """A campaign on four workers, some of which are lost: its problem, its log and its driver when
    it is over."""
    problem = Problem("parabola", 7, Candidates(X[:, None], {"x": X}), STRATEGIES[name]())
    created = CampaignCreated(
        time=0.0,
        name="parabola",
        seed=7,
        arms=51,
        candidates_digest="",
        objective="",
        optimum=1.0,
        settings=SETTINGS,
        rules=rules_of_version_2(SETTINGS, 0),
    )
    store = EventStore(f"sqlite:///{folder / 'campaign.sqlite'}")
    store.create("c", [created])
    executor = SimulatedExecutor(Parabola(), 4, DurationModel(1.0, 0.5), Failures(0.1, FailureKind.WORKER_LOST), 7)
    driver = Driver(problem, replay(problem, [created]), store.claim("c", "test"), executor, lambda status: None)
    opened = SessionOpened(
        time=executor.now(), epoch=1, executor="test", slots=executor.slots, settings=SETTINGS,
        rules=rules_of_version_2(SETTINGS, executor.slots),
    )  # fmt: skip
    driver.run(opened)
    return problem, list(store.read("c")), driver


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
def test_log_restores_the_strategy_s_state_and_shows_that_its_rules_held(tmp_path: Path, name: str) -> None:
    problem, events, driver = run(tmp_path, name)
    assert replay(problem, events).model == driver.progress.model
    picks = [pick for event in events if isinstance(event, BatchChosen) for pick in event.picks]
    assert len(picks) == EVALUATIONS
    failed = {event.trial for event in events if isinstance(event, TrialFailed) and event.is_final}
    assert len(driver.progress.model.pulls.arms) <= driver.progress.model.pulls.total == EVALUATIONS - len(failed)
    if getattr(STRATEGIES[name], "is_sequential", False):
        assert most_at_once(events) == 1
