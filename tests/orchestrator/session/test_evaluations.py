"""The session's side of the executor: outcomes become events, and no report is recorded twice."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from bbkb.orchestrator.campaign.commands import Ask, Dispatch
from bbkb.orchestrator.campaign.events import Event, ReportsArrived
from bbkb.orchestrator.campaign.policy import decide
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.stops import StopCause
from bbkb.orchestrator.engine.engine import replay
from bbkb.orchestrator.session.evaluations import Evaluations, Places
from bbkb.orchestrator.session.recorder import Recorder
from bbkb.workers.executor import TakeReports
from bbkb.workers.messages import FailureKind, Report, TrialFailed, TrialSucceeded
from tests.orchestrator.session.parabola import Campaign
from tests.present import of_type
from tests.reported import reported


class Running:
    """A campaign whose first trial is running."""

    def __init__(self, folder: Path, has_folders: bool = False) -> None:
        campaign = Campaign(folder)
        self.executor = campaign.simulated_executor()
        engine = replay(campaign.problem, campaign.events())
        self.recorder = Recorder(engine, campaign.store.claim("c", "test"), lambda: False, lambda reason: None)
        self.recorder.record(campaign.session_event(self.executor))
        ask = of_type(Ask, decide(self.state, 0.0))
        for event in engine.record(engine.compute(ask, engine.state)):
            self.recorder.record(event)
        self.places = Places(folder / "trials" if has_folders else None)
        self.candidates = engine.pool.candidates
        self.evaluations = Evaluations(self.executor, self.recorder, self.places)
        self.dispatch()
        self.trial = next(iter(self.state.running))
        self.heard: list[Event] = []
        self.recorder.heard = self.heard.append

    @property
    def state(self) -> CampaignState:
        return self.recorder.campaign

    def dispatch(self) -> None:
        self.evaluations.dispatch(of_type(Dispatch, decide(self.state, self.executor.now())), self.candidates)

    def listen(self) -> TakeReports:
        """Return the function to which the executor passes reports."""
        with mock.patch.object(self.executor, "listen") as heard:
            self.evaluations.begin()
        take: TakeReports = heard.call_args.args[0]
        return take

    def reports(self, steps: Sequence[int]) -> tuple[Report, ...]:
        attempt = self.state.running[self.trial].trial.attempt
        return tuple(reported(step, step / 10, self.trial, attempt) for step in steps)

    def fail(self) -> None:
        """Record a time-out of the attempt."""
        attempt = self.state.running[self.trial].trial.attempt
        lost = TrialFailed(
            trial=self.trial, attempt=attempt, failure=FailureKind.TIMEOUT, message="late", started=0.0, finished=0.0,
            worker="w",
        )  # fmt: skip
        self.evaluations.record(lost)

    def success(self, value: float = 0.5, steps: Sequence[int] = ()) -> TrialSucceeded:
        attempt = self.state.running[self.trial].trial.attempt
        return TrialSucceeded(
            trial=self.trial,
            attempt=attempt,
            value=value,
            started=0.0,
            finished=0.0,
            worker="w",
            reports=self.reports(steps),
            output="printed",
        )


def steps_of(reports: Sequence[Report]) -> list[int]:
    return [report.step for report in reports]


def test_evaluations_forget_the_stop_cause_of_an_attempt_that_fails(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.evaluations.stop_causes[running.trial] = StopCause.PAUSE  # requested, without a response
    running.fail()
    assert running.trial not in running.evaluations.stop_causes
    assert running.trial not in running.state.running


def test_event_is_the_outcome_with_its_time_and_without_its_output(tmp_path: Path) -> None:
    running = Running(tmp_path)
    outcome = running.success()
    running.evaluations.record(outcome)
    assert running.heard == [replace(outcome, time=running.executor.now(), output="")]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_value_that_is_not_finite_is_always_a_failure(tmp_path: Path, value: float) -> None:
    running = Running(tmp_path)
    running.evaluations.record(running.success(value))
    event = of_type(TrialFailed, running.heard[0])
    assert (event.failure, event.is_final) == ("invalid value", True)
    assert str(value) in event.message


@pytest.mark.parametrize(
    ("has_folders", "steps", "expected"),
    [
        (True, (3, 4, 5, 6), [5, 6]),
        (True, (5, 6), [5, 6]),
        (True, (1, 2), [1, 2]),  # its checkpoint was not found
        (False, (1, 2), [1, 2]),
        (False, (3, 5), [3, 5]),
    ],
)
def test_attempt_that_continues_repeats_no_step_in_the_log(
    tmp_path: Path, has_folders: bool, steps: tuple[int, ...], expected: list[int]
) -> None:
    running = Running(tmp_path, has_folders)
    take = running.listen()
    take(running.reports((1, 2, 3, 4)))
    assert steps_of(of_type(ReportsArrived, running.heard[0]).reports) == [1, 2, 3, 4]
    running.fail()
    running.dispatch()
    running.heard.clear()
    take(running.reports(steps))
    assert steps_of(of_type(ReportsArrived, running.heard[0]).reports) == expected


def test_outcome_repeats_no_report_in_the_log_in_this_session_or_the_next(tmp_path: Path) -> None:
    running = Running(tmp_path, has_folders=True)
    running.listen()(running.reports((1, 2, 3)))
    running.evaluations = Evaluations(running.executor, running.recorder, running.places)  # of the next session
    running.listen()(running.reports((4, 5)))
    running.evaluations.record(running.success(steps=(1, 2, 3, 4, 5, 6)))
    assert steps_of(of_type(TrialSucceeded, running.heard[-1]).reports) == [6]
