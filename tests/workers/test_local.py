"""`bbkb.workers.local`: evaluations in this process, one at a time, and in virtual time."""

import os
import signal
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers.local import DurationModel, Failures, InlineExecutor, SimulatedExecutor
from bbkb.workers.messages import Attempt, FailureKind, Limits, Outcome, TrialFailed, TrialSucceeded
from tests.examples import examples


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


def all_outcomes(executor: SimulatedExecutor) -> list[list[Outcome]]:
    batches = []
    while batch := executor.next_outcomes(None):
        batches.append(batch)
    return batches


def outcomes_by_trial(executor: SimulatedExecutor, attempts: Sequence[Attempt]) -> dict[int, Outcome]:
    executor.submit(attempts)
    return {outcome.trial: outcome for batch in all_outcomes(executor) for outcome in batch}


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
    batches = all_outcomes(executor)
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
