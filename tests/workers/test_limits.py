"""`bbkb.workers.limits`: time, memory and interrupts of an evaluation."""

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.objectives.machines import RANK_VARIABLES
from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers.evaluate import evaluate
from bbkb.workers.limits import HostInterruptError, grace_seconds
from bbkb.workers.messages import Attempt, FailureKind, Limits, Outcome, TrialSucceeded
from tests.workers.evaluations import UNLIMITED, Doing, failure_of, outcome_of


def test_rank_variables_of_the_workers_parent_do_not_reach_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(_: Parameters, _seed: int, _report: Report) -> Evaluation:
        environments.append({name for name in RANK_VARIABLES if name in os.environ})
        os.environ["RANK"] = "1"  # of its own training
        environments.append({name for name in RANK_VARIABLES if name in os.environ})
        return Evaluation(1.0)

    environments: list[set[str]] = []
    for name in RANK_VARIABLES:
        monkeypatch.setenv(name, "3")
    attempt = Attempt(trial=0, arm=0, parameters={}, seed=0)
    assert isinstance(evaluate(Doing(look), attempt, UNLIMITED, is_expendable=True), TrialSucceeded)
    assert environments == [set(), {"RANK"}]
    assert [os.environ[name] for name in RANK_VARIABLES] == ["3"] * len(RANK_VARIABLES)


def test_interrupt_of_the_user_is_not_an_error_of_the_trial() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(HostInterruptError):
        outcome_of(lambda *_: signal.raise_signal(signal.SIGINT))
    assert signal.getsignal(signal.SIGINT) is before


def test_endless_conversion_of_a_value_is_stopped_at_the_time_out() -> None:
    class Slow(float):
        def __float__(self) -> float:
            time.sleep(20)
            return 0.0

    outcome = outcome_of(lambda *_: Evaluation(Slow()), Limits(timeout_seconds=0.2))
    assert failure_of(outcome).failure is FailureKind.TIMEOUT


def sleep_and_catch(exceptions: type[BaseException], times: int) -> None:
    for _ in range(times):
        with contextlib.suppress(exceptions):
            time.sleep(20)


def ignore_first_alarm(*_: object) -> None:
    sleep_and_catch(BaseException, 1)
    sleep_and_catch(Exception, 1)


@pytest.mark.parametrize(
    "action",
    [lambda *_: time.sleep(20), lambda *_: sleep_and_catch(Exception, 1), ignore_first_alarm],
)
def test_evaluation_is_stopped_at_its_time_out(action: Callable[..., Any]) -> None:
    failure = failure_of(outcome_of(action, Limits(timeout_seconds=0.05)))
    assert failure.failure is FailureKind.TIMEOUT
    assert failure.message == "no result within timeout_seconds = 0.05"
    assert failure.finished - failure.started < 15


def test_alarm_of_the_host_is_restored() -> None:
    def handler(*_: Any) -> None: ...

    before = signal.signal(signal.SIGALRM, handler)
    timer = signal.setitimer(signal.ITIMER_REAL, 500.0, 7.0)
    try:
        outcome_of(lambda *_: Evaluation(1.0), Limits(timeout_seconds=60.0))
        delay, interval = signal.getitimer(signal.ITIMER_REAL)
        assert 0.0 < delay <= 500.0
        assert interval == pytest.approx(7.0, abs=0.01)
        assert signal.getsignal(signal.SIGALRM) is handler
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)


def test_time_out_outside_the_main_thread_is_ignored() -> None:
    outcomes: list[Outcome] = []

    def evaluate_slowly(*_: object) -> Evaluation:
        time.sleep(0.05)
        return Evaluation(1.0)

    def run() -> None:
        outcomes.append(outcome_of(evaluate_slowly, Limits(timeout_seconds=0.01)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert isinstance(outcomes[0], TrialSucceeded)


def test_memory_is_bounded_in_an_expendable_process_only_while_it_evaluates() -> None:
    def bound(*_: Any) -> Evaluation:
        return Evaluation(float(resource.getrlimit(resource.RLIMIT_DATA)[0]))

    before = resource.getrlimit(resource.RLIMIT_DATA)
    limits = Limits(memory_bytes=2**33)
    inside, outside = outcome_of(bound, limits, is_expendable=True), outcome_of(bound, limits)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert isinstance(inside, TrialSucceeded)
    assert isinstance(outside, TrialSucceeded)
    assert outside.value == before[0]
    assert 2**33 < inside.value < 2**33 + 2**36


def test_allocation_beyond_the_bound_is_out_of_memory() -> None:
    def allocate(*_: Any) -> Evaluation:
        return Evaluation(float(np.ones(2**36, dtype=np.int8)[0]))

    failure = failure_of(outcome_of(allocate, Limits(memory_bytes=2**30), is_expendable=True))
    assert failure.failure is FailureKind.OUT_OF_MEMORY
    assert failure.message.startswith("MemoryError: Unable to allocate 64.0 GiB")


@given(st.floats(0.01, 1e6))
def test_grace_is_a_tenth_of_the_time_out_within_bounds(timeout: float) -> None:
    assert 2.0 <= grace_seconds(timeout) <= 30.0
    assert timeout < 20.0 or timeout > 300.0 or grace_seconds(timeout) == pytest.approx(0.1 * timeout)


def test_import_during_which_the_time_out_passes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time; time.sleep(5)")
    monkeypatch.syspath_prepend(tmp_path)
    failure = failure_of(outcome_of(lambda *_: import_module("slow_to_import"), Limits(timeout_seconds=0.1)))
    assert "while it imported slow_to_import: import it at the top" in failure.message
