"""The contract in `workers/executor.py`, run on every executor."""

import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from ray import cloudpickle

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers import messages
from bbkb.workers.executor import TRAITS, Executor
from bbkb.workers.messages import (
    Attempt,
    FailureKind,
    Limits,
    Outcome,
    TrialFailed,
    TrialStopped,
    TrialSucceeded,
)
from bbkb.workers.on_ray.executor import RayExecutor
from bbkb.workers.on_ray.places import Kind, Placement
from bbkb.workers.output import output_file, read_end, running_folder
from tests.executors import HERE, executor_here
from tests.present import of_type
from tests.reported import reported

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import this file

ON_RAY = [pytest.param(kind, marks=pytest.mark.thorough) for kind in ("task", "actor", "auto")]

ENFORCING = [name for name in HERE if "timeout_seconds" not in TRAITS[name].unenforced]
STEPS = 200  # of a training that may be stopped


class Arithmetic:
    """x + seed; sleeps first, raises, or reports several steps if requested."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        time.sleep(parameters.get("sleep", 0.0))
        if parameters.get("raises", False):
            raise ValueError("on purpose")
        for _ in range(parameters.get("steps", 1)):
            report(parameters["x"], loss=0.5)
            time.sleep(parameters.get("pause", 0.0))
        if parameters.get("prints", False):
            print("evaluating", parameters["x"])
        return Evaluation(parameters["x"] + seed)


@pytest.fixture(params=[*HERE, *ON_RAY])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
def executor(request: pytest.FixtureRequest, kind: str, limits: Limits) -> Iterator[Executor]:
    if kind in HERE:
        new_executor = executor_here(kind, Arithmetic(), limits)
    else:
        request.getfixturevalue("ray_cluster")
        placement = Placement("contract", "evaluate:contract", cast(Kind, kind), limits=limits)
        new_executor = RayExecutor(Arithmetic(), 2, placement)
    yield new_executor
    new_executor.close()


def attempts(*numbers: int, attempt: int = 1, **parameters: float | bool) -> list[Attempt]:
    return [Attempt(i, i, {"x": float(i), **parameters}, seed=100, attempt=attempt) for i in numbers]


def trainings(kind: str, *numbers: int) -> list[Attempt]:
    """Attempts that report `STEPS` steps. On Ray, each step takes long enough for a response."""
    pause = 0.0 if kind in HERE else 0.02
    submitted = attempts(*numbers, steps=STEPS, pause=pause)
    return [replace(attempt, can_be_stopped=True) for attempt in submitted]


def drain(executor: Executor) -> list[Outcome]:
    outcomes: list[Outcome] = []
    while batch := executor.next_outcomes(None):
        outcomes += batch
    return outcomes


def test_attempt_gets_exactly_one_outcome_however_many_are_submitted(executor: Executor) -> None:
    executor.submit(attempts(*range(7)))
    executor.submit(attempts(*range(7, 3 * executor.slots + 9)))
    outcomes = drain(executor)
    assert sorted(outcome.trial for outcome in outcomes) == list(range(3 * executor.slots + 9))
    for outcome in outcomes:
        assert isinstance(outcome, TrialSucceeded)
        assert outcome.value == outcome.trial + 100.0
        assert outcome.reports == (reported(0, float(outcome.trial), outcome.trial, outcome.attempt, loss=0.5),)
        assert outcome.worker


def test_next_outcomes_returns_at_once_if_nothing_is_in_flight(executor: Executor) -> None:
    executor.submit([])
    assert executor.next_outcomes(None) == []
    executor.submit(attempts(0))
    assert isinstance(drain(executor)[0], TrialSucceeded)
    assert executor.next_outcomes(None) == []


def test_evaluation_that_raises_is_a_failure_among_successes(executor: Executor) -> None:
    executor.submit([*attempts(0, 1), *attempts(2, raises=True), *attempts(3)])
    outcomes = {outcome.trial: outcome for outcome in drain(executor)}
    assert {i for i, outcome in outcomes.items() if isinstance(outcome, TrialSucceeded)} == {0, 1, 3}
    failure = of_type(TrialFailed, outcomes[2])
    assert failure.failure is FailureKind.ERROR
    assert failure.message.startswith("ValueError: on purpose\n")


def test_reports_are_taken_in_order_in_the_callers_thread(executor: Executor, kind: str) -> None:
    taken: dict[tuple[int, int], list[messages.Report]] = {}
    threads: set[threading.Thread] = set()

    def take(values: Sequence[messages.Report]) -> Collection[int]:
        threads.add(threading.current_thread())
        for value in values:
            taken.setdefault((value.trial, value.attempt), []).append(value)
        return ()

    executor.listen(take)
    executor.submit(trainings(kind, 4, 6))
    for outcome in drain(executor):
        assert isinstance(outcome, TrialSucceeded)
        assert len(outcome.reports) == STEPS
        reports = taken.pop((outcome.trial, outcome.attempt))  # some may be lost
        assert reports == [reported for reported in outcome.reports if reported in reports]
    assert not taken
    assert threads == {threading.current_thread()}


def test_trial_that_take_returns_is_stopped(executor: Executor, kind: str) -> None:
    asked: list[int] = []  # the steps at which trial 4 was asked to stop

    def take(values: Sequence[messages.Report]) -> Collection[int]:
        steps = [value.step for value in values if value.trial == 4]
        asked.extend(step for step in steps if step >= 3)
        return {4} if asked else ()

    executor.listen(take)
    executor.submit(trainings(kind, 4, 6))
    outcomes = {outcome.trial: outcome for outcome in drain(executor)}
    assert isinstance(outcomes[6], TrialSucceeded)
    stopped = of_type(TrialStopped, outcomes[4])
    assert (stopped.attempt, stopped.value, stopped.reports[-1].step) == (1, 4.0, stopped.step)
    latest = asked[0] if kind in HERE else STEPS - 2  # on Ray, the response may be late
    assert asked[0] <= stopped.step <= latest


@pytest.mark.parametrize("kind", [*ENFORCING, *ON_RAY], indirect=True)
@pytest.mark.parametrize("limits", [Limits(timeout_seconds=1.0)])
def test_evaluation_beyond_its_time_out_fails_and_the_others_continue(executor: Executor) -> None:
    executor.submit([*attempts(0), *attempts(1, sleep=60.0), *attempts(2)])
    outcomes = {outcome.trial: outcome for outcome in drain(executor)}
    late = of_type(TrialFailed, outcomes.pop(1))
    assert late.failure is FailureKind.TIMEOUT
    assert late.message.startswith("no result within timeout_seconds = 1")
    assert sorted(outcomes) == [0, 2]
    assert all(isinstance(outcome, TrialSucceeded) for outcome in outcomes.values())


def test_outcomes_are_stamped_by_the_executors_clock(executor: Executor) -> None:
    before = executor.now()
    executor.submit(attempts(0, 1, 2))
    outcomes = drain(executor)
    assert len(outcomes) == 3
    for outcome in outcomes:
        assert before <= outcome.started <= outcome.finished <= executor.now()


def test_output_of_an_attempt_is_in_its_file_and_silent_attempts_have_none(executor: Executor, tmp_path: Path) -> None:
    running_folder(tmp_path).mkdir()
    submitted = [*attempts(0, 1), *attempts(2, 3, prints=True)]
    executor.submit([replace(attempt, trials=tmp_path) for attempt in submitted])
    assert len(drain(executor)) == 4
    printed = {trial: read_end(output_file(tmp_path, trial, 1), 1000) for trial in range(4)}
    assert printed == {0: b"", 1: b"", 2: b"evaluating 2.0\n", 3: b"evaluating 3.0\n"}


def test_slots_limit_the_concurrent_evaluations(executor: Executor) -> None:
    executor.submit(attempts(*range(3 * executor.slots), sleep=0.05))
    outcomes = drain(executor)
    for outcome in outcomes:  # the number of running ones is largest at the instant some evaluation starts
        running = [other for other in outcomes if other.started <= outcome.started < other.finished]
        assert len(running) <= executor.slots


def test_trial_can_be_retried(executor: Executor) -> None:
    executor.submit(attempts(5, raises=True))
    (first,) = drain(executor)
    assert (first.trial, first.attempt, isinstance(first, TrialFailed)) == (5, 1, True)
    executor.submit(attempts(5, attempt=2))
    (second,) = drain(executor)
    assert (second.trial, second.attempt, isinstance(second, TrialSucceeded)) == (5, 2, True)


def test_adopt_returns_no_attempt_that_is_still_evaluated_without_an_earlier_session(executor: Executor) -> None:
    adopted = executor.adopt({0: 1, 7: 2})  # inline, the first one died with its process
    assert [outcome.trial for outcome in executor.next_outcomes(None)] == sorted(adopted)
    executor.submit(attempts(0, 1))
    for outcome in drain(executor):
        executor.acknowledge([(outcome.trial, outcome.attempt), (99, 1)])
    executor.submit(attempts(2))
    assert [outcome.trial for outcome in drain(executor)] == [2]


def test_close_abandons_attempts_in_flight_and_may_be_repeated(executor: Executor) -> None:
    executor.submit(attempts(0, 1, 2, sleep=60.0))
    executor.close()
    assert executor.next_outcomes(None) == []
    executor.close()
