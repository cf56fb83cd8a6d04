"""The contract of executors, and those in this process."""

import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray import cloudpickle

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers import messages
from bbkb.workers.executor import TRAITS, Executor
from bbkb.workers.local import DurationModel, Failures, InlineExecutor, SimulatedExecutor
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
from tests.examples import examples
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


def batches_of(executor: Executor) -> list[list[Outcome]]:
    return list(iter(lambda: executor.next_outcomes(None), []))


def drain(executor: Executor) -> list[Outcome]:
    return [outcome for batch in batches_of(executor) for outcome in batch]


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


class InterruptedOnce:
    def __init__(self) -> None:
        self.calls = 0

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        self.calls += 1
        if self.calls == 1:
            signal.raise_signal(signal.SIGINT)
        return Evaluation(float(self.calls))


def test_inline_executor_evaluates_one_attempt_on_request_and_again_after_an_interrupt() -> None:
    objective = InterruptedOnce()
    executor = InlineExecutor(objective, Limits())
    executor.submit([Attempt(0, 0, {}, seed=0), Attempt(1, 0, {}, seed=0)])
    assert objective.calls == 0
    with pytest.raises(KeyboardInterrupt):
        executor.next_outcomes(None)
    (outcome,) = executor.next_outcomes(None)
    assert isinstance(outcome, TrialSucceeded)
    assert (outcome.trial, outcome.value) == (0, 2.0)


def test_surroundings_are_restored_after_each_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    class Leaving:
        def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
            os.chdir("/")
            os.environ["LEAK"] = "1"
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            return Evaluation(0.0)

    executor = InlineExecutor(Leaving(), Limits())
    executor.submit([Attempt(0, 0, {}, seed=0)])
    assert isinstance(executor.next_outcomes(0)[0], TrialSucceeded)
    after = Path.cwd(), os.environ.get("LEAK"), signal.getsignal(signal.SIGUSR1)
    assert after == (tmp_path, None, signal.SIG_DFL)


def test_attempt_that_ended_with_its_process_is_a_lost_worker() -> None:
    executor = InlineExecutor(InterruptedOnce(), Limits())
    assert executor.adopt({3: 2, 1: 1}) == {3}
    (lost,) = executor.next_outcomes(0)
    assert isinstance(lost, TrialFailed)
    assert (lost.trial, lost.attempt, lost.failure) == (3, 2, FailureKind.WORKER_LOST)


SECOND = DurationModel()
NEVER = Failures()


class Table:
    """A table of values, and of durations for trials with `seconds`."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        return Evaluation(float(seed), dict(parameters))


def attempts_of(seconds: Sequence[float]) -> list[Attempt]:
    return [Attempt(i, i, {"seconds": s}, seed=i) for i, s in enumerate(seconds)]


def plain_attempts(count: int, attempt: int = 1) -> list[Attempt]:
    return [Attempt(i, i, {}, seed=i, attempt=attempt) for i in range(count)]


def outcomes_by_trial(executor: SimulatedExecutor, attempts: Sequence[Attempt]) -> dict[int, Outcome]:
    executor.submit(attempts)
    return {outcome.trial: outcome for outcome in drain(executor)}


@given(st.lists(st.integers(0, 20), min_size=1, max_size=25), st.integers(1, 6))
def test_schedule_equals_that_of_a_queue_before_slots(seconds: list[int], slots: int) -> None:
    executor = SimulatedExecutor(Table(), slots, SECOND, NEVER, seed=0)
    outcomes = outcomes_by_trial(executor, attempts_of(seconds))
    free = [0.0] * slots  # oracle: each trial in turn begins on the worker that is free first
    for i, duration in enumerate(seconds):
        started = min(free)
        free[free.index(started)] = started + duration
        assert (outcomes[i].started, outcomes[i].finished) == (started, started + duration)
    assert executor.now() == max(free)


@settings(max_examples=examples(30))
@given(st.lists(st.integers(1, 5), min_size=1, max_size=25), st.integers(1, 4))
def test_virtual_worker_evaluates_one_attempt_at_a_time_and_simultaneous_outcomes_arrive_together(
    seconds: list[int], slots: int
) -> None:
    executor = SimulatedExecutor(Table(), slots, SECOND, NEVER, seed=0)
    executor.submit(attempts_of(seconds))
    batches = batches_of(executor)
    instants = [{outcome.finished for outcome in batch} for batch in batches]
    assert all(len(instant) == 1 for instant in instants)
    assert [min(i) for i in instants] == sorted({min(i) for i in instants})
    spans: dict[str, list[tuple[float, float]]] = {}
    for outcome in (outcome for batch in batches for outcome in batch):
        spans.setdefault(outcome.worker, []).append((outcome.started, outcome.finished))
    assert set(spans) <= {f"worker-{i}" for i in range(slots)}
    for busy in spans.values():
        busy.sort()
        assert all(end <= begin for (_, end), (begin, _) in pairwise(busy))


def test_virtual_time_passes_without_waiting() -> None:
    executor = SimulatedExecutor(Table(), 1, SECOND, NEVER, seed=0, start_at=1000.0)
    executor.submit(attempts_of([10.0]))
    (outcome,) = executor.next_outcomes(0)
    assert (outcome.started, outcome.finished, executor.now()) == (1000.0, 1010.0, 1010.0)
    assert executor.next_outcomes(0) == []


def test_durations_and_failures_depend_on_the_attempt_but_not_on_the_order() -> None:
    def run(attempts: Sequence[Attempt], slots: int) -> dict[int, tuple[object, type]]:
        executor = SimulatedExecutor(Table(), slots, DurationModel(5.0, 1.0), Failures(0.3), seed=3)
        outcomes = outcomes_by_trial(executor, attempts)
        return {i: (pytest.approx(o.finished - o.started), type(o)) for i, o in outcomes.items()}

    attempts = plain_attempts(40)
    assert run(attempts, 3) == run(attempts[::-1], 7)
    assert run(attempts, 3) != run(plain_attempts(40, attempt=2), 3)


def test_failure_rate_does_not_change_other_durations() -> None:
    def durations(rate: float) -> dict[int, float]:
        executor = SimulatedExecutor(Table(), 100, DurationModel(5.0, 1.0), Failures(rate), seed=3)
        outcomes = outcomes_by_trial(executor, plain_attempts(60))
        return {i: o.finished - o.started for i, o in outcomes.items() if isinstance(o, TrialSucceeded)}

    without, some = durations(0.0), durations(0.5)
    assert 0 < len(some) < len(without) == 60
    assert all(without[i] == seconds for i, seconds in some.items())


def test_drawn_durations_have_the_requested_mean() -> None:
    rng = np.random.default_rng(0)
    draws = [DurationModel(3.0, 0.5).draw(rng) for _ in range(4000)]
    standard_error = np.std(draws) / np.sqrt(len(draws))
    assert abs(np.mean(draws) - 3.0) < 5 * standard_error
    assert np.std(np.log(draws)) == pytest.approx(0.5, rel=0.1)
    assert DurationModel(3.0).draw(rng) == 3.0


@pytest.mark.parametrize("kind", [FailureKind.WORKER_LOST, FailureKind.ERROR])
def test_injected_failures_come_at_their_rate_and_before_the_evaluation_would_end(kind: FailureKind) -> None:
    executor = SimulatedExecutor(Table(), 1000, DurationModel(8.0), Failures(0.25, kind), seed=1)
    outcomes = outcomes_by_trial(executor, plain_attempts(400))
    failures = [outcome for outcome in outcomes.values() if isinstance(outcome, TrialFailed)]
    assert 60 <= len(failures) <= 140  # binomial(400, 0.25): 4.6 standard deviations either side
    assert all(failure.failure is kind and failure.finished < 8.0 for failure in failures)


def test_table_with_a_negative_duration_is_an_invalid_value() -> None:
    executor = SimulatedExecutor(Table(), 1, SECOND, NEVER, seed=0)
    failure = outcomes_by_trial(executor, attempts_of([-1.0]))[0]
    assert isinstance(failure, TrialFailed)
    assert failure.failure is FailureKind.INVALID_VALUE
