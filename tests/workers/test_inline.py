"""`bbkb.workers.inline`: Evaluates in this process, one at a time: for debugging, for tests and for
machines without Ray.
"""

import os
import signal
from pathlib import Path

import pytest

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers.inline import InlineExecutor
from bbkb.workers.messages import Attempt, FailureKind, Limits, TrialFailed, TrialSucceeded


class InterruptedOnce:
    def __init__(self) -> None:
        self.calls = 0

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        self.calls += 1
        if self.calls == 1:
            signal.raise_signal(signal.SIGINT)
        return Evaluation(float(self.calls))


def test_evaluation_interrupted_from_the_keyboard_stays_in_the_queue() -> None:
    executor = InlineExecutor(InterruptedOnce(), Limits())
    executor.submit([Attempt(0, 0, {}, seed=0)])
    with pytest.raises(KeyboardInterrupt):
        executor.next_outcomes(None)
    (outcome,) = executor.next_outcomes(None)
    assert isinstance(outcome, TrialSucceeded)
    assert outcome.value == 2.0


def test_inline_executor_evaluates_one_attempt_at_a_time_on_request() -> None:
    class Counting:
        calls = 0

        def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
            self.calls += 1
            return Evaluation(0.0)

    objective = Counting()
    executor = InlineExecutor(objective, Limits())
    executor.submit([Attempt(0, 0, {}, seed=0), Attempt(1, 0, {}, seed=0)])
    assert objective.calls == 0
    executor.next_outcomes(0)
    assert objective.calls == 1


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
