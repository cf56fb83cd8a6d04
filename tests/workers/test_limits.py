"""Limits of an evaluation, and objectives that harm their surroundings."""

import contextlib
import ctypes
import gc
import io
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray import cloudpickle

from bbkb.objectives.objective import RANK_VARIABLES, Evaluation, Parameters, Report
from bbkb.workers.evaluate import evaluate
from bbkb.workers.limits import (
    DAMAGED_AFTER,
    HostInterruptError,
    Streak,
    end_children,
    grace_seconds,
    restore_surroundings,
)
from bbkb.workers.messages import Attempt, FailureKind, Limits, Outcome, TrialFailed, TrialSucceeded
from bbkb.workers.on_ray.executor import RayExecutor
from bbkb.workers.on_ray.places import Kind, Placement
from tests.present import of_type
from tests.waiting import drain, is_alive, wait_until
from tests.workers.conftest import Start
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


@pytest.mark.parametrize("error", [None, KeyError])
def test_forgotten_child_is_killed_and_reaped(error: type[Exception] | None) -> None:
    with contextlib.suppress(KeyError), end_children():
        child = subprocess.Popen(["sleep", "100"])
        assert is_alive(child.pid)
        if error is not None:
            raise error
    assert not Path(f"/proc/{child.pid}").exists()
    child.poll()


def test_child_that_ignores_signals_and_has_detached_itself_is_ended(tmp_path: Path) -> None:
    daemon = tmp_path / "daemon"
    script = f"trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM HUP; echo $$ > {daemon}; sleep 100' & exit 0"
    with end_children():
        subprocess.run(["sh", "-c", script], check=True)
        pid = int(wait_until(lambda: daemon.exists() and daemon.read_text().strip()))
        assert is_alive(pid)
    assert not is_alive(pid)


def test_older_children_and_ended_children_are_left_alone() -> None:
    before = subprocess.Popen(["sleep", "100"])
    try:
        with end_children():
            assert subprocess.run([sys.executable, "-c", "raise SystemExit(7)"], check=False).returncode == 7
        assert before.poll() is None
    finally:
        before.kill()
        assert before.wait() == -signal.SIGKILL


def read_surroundings() -> dict[str, Any]:
    umask = os.umask(0o022)
    os.umask(umask)
    return {
        "folder": os.getcwd(),
        "umask": umask,
        "environment": dict(os.environ),
        "handlers": [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)],
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "depth": sys.getrecursionlimit(),
        "collects": gc.isenabled(),
    }


def ignore_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def change_environment() -> None:
    os.environ["PATH"] = "/nowhere"
    os.environ["ADDED"] = "1"
    del os.environ["HOME"]


def lower_limit() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def redirect() -> None:
    sys.stdout = io.StringIO()


DAMAGES: dict[str, Callable[[], Any]] = {
    "another folder": lambda: os.chdir("/"),
    "its folder removed": lambda: shutil.rmtree(os.getcwd()),
    "umask": lambda: os.umask(0o777),
    "signals": ignore_signals,
    "environment": change_environment,
    "limit": lower_limit,
    "streams": redirect,
    "recursion": lambda: sys.setrecursionlimit(5000),
    "collector": gc.disable,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_state_of_the_process_is_restored_after_an_evaluation(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", "/home/somebody")
    before = read_surroundings()
    with restore_surroundings():
        DAMAGES[damage]()
    assert read_surroundings() == before
    assert not list(Path.cwd().iterdir())


def outcome(kind: FailureKind | None) -> Outcome:
    if kind is None:
        return TrialSucceeded(trial=0, attempt=1, value=1.0, started=0.0, finished=1.0, worker="w")
    return TrialFailed(trial=0, attempt=1, failure=kind, message="why", started=0.0, finished=1.0, worker="w")


@pytest.mark.parametrize("kind", [None, FailureKind.INVALID_VALUE, FailureKind.TIMEOUT])
def test_streak_counts_failures_on_different_arms_until_a_success(kind: FailureKind | None) -> None:
    streak = Streak()
    damaged = [streak.is_damaged_after(arm, outcome(FailureKind.ERROR)) for arm in range(DAMAGED_AFTER)]
    assert damaged == [False] * (DAMAGED_AFTER - 1) + [True]
    streak = Streak()
    assert not any(streak.is_damaged_after(7, outcome(FailureKind.ERROR)) for _ in range(20))
    for arm in range(20):
        assert not streak.is_damaged_after(arm, outcome(FailureKind.ERROR if arm % DAMAGED_AFTER else kind))


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import this file


# on a busy machine, actions that end by themselves may take seconds: only endless ones get a short
# time-out
PATIENT = Limits(timeout_seconds=250.0, memory_bytes=200 * 2**20)
HASTY = Limits(timeout_seconds=4.0, memory_bytes=200 * 2**20)
ENDLESS = ("hang", "ignore_every_signal", "fork_and_hang")


class UnpicklableError(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


def work(_: Parameters) -> float:
    return 1.0


def hang(_: Parameters) -> None:
    threading.Event().wait()


def ignore_every_signal(_: Parameters) -> None:
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def touch_address_zero(_: Parameters) -> None:
    ctypes.string_at(0)


def leave_at_once(_: Parameters) -> None:
    os._exit(0)


def raise_unpicklable(_: Parameters) -> None:
    raise UnpicklableError


def interrupt(_: Parameters) -> None:
    raise KeyboardInterrupt


def exit_with_message(_: Parameters) -> None:
    sys.exit("enough")


def allocate(_: Parameters) -> float:
    return float(np.ones(2**30, dtype=np.int8)[0])


def allocate_bit_by_bit(_: Parameters) -> float:
    return float(len([bytes(2**20) for _ in range(1024)]))


def leak_descriptors(_: Parameters) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),) * 2)
    while True:
        os.dup(0)


def break_clock(_: Parameters) -> float:
    vars(time)["time"] = None
    return 1.0


def fork_and_return(parameters: Parameters) -> float:
    script = f"trap '' TERM HUP; setsid sh -c 'trap \"\" TERM; echo $$ > {parameters['file']}; sleep 100' & exit 0"
    subprocess.run(["sh", "-c", script], check=True)
    while not Path(parameters["file"]).exists():
        time.sleep(0.01)
    return 1.0


def fork_and_hang(parameters: Parameters) -> None:
    fork_and_return(parameters)
    ignore_every_signal(parameters)


def fork_and_die(parameters: Parameters) -> None:
    fork_and_return(parameters)
    os._exit(1)


ACTIONS: dict[str, Callable[[Parameters], Any]] = {
    function.__name__: function
    for function in (
        work,
        hang,
        ignore_every_signal,
        touch_address_zero,
        leave_at_once,
        raise_unpicklable,
        interrupt,
        exit_with_message,
        allocate,
        allocate_bit_by_bit,
        leak_descriptors,
        break_clock,
        fork_and_return,
        fork_and_hang,
        fork_and_die,
    )
}
RETURNED: dict[str, Any] = {"nan": float("nan"), "inf": float("inf"), "text": "0.5", "long": 10**1_000_000}

EXPECTED: dict[str, tuple[FailureKind, str]] = {
    "hang": (FailureKind.TIMEOUT, "no result within timeout_seconds = 4"),
    "ignore_every_signal": (FailureKind.TIMEOUT, "nor when asked to stop: its worker was ended"),
    "touch_address_zero": (FailureKind.WORKER_LOST, "died"),
    "leave_at_once": (FailureKind.WORKER_LOST, "died"),
    "raise_unpicklable": (FailureKind.ERROR, "UnpicklableError: holds a lock"),
    "interrupt": (FailureKind.ERROR, "KeyboardInterrupt"),
    "exit_with_message": (FailureKind.ERROR, "SystemExit: enough"),
    "allocate": (FailureKind.OUT_OF_MEMORY, "MemoryError: Unable to allocate 1.00 GiB"),
    "allocate_bit_by_bit": (FailureKind.OUT_OF_MEMORY, "MemoryError"),
    "nan": (FailureKind.INVALID_VALUE, "value must be a finite number, got nan"),
    "inf": (FailureKind.INVALID_VALUE, "value must be a finite number, got inf"),
    "text": (FailureKind.INVALID_VALUE, "value must be a finite number, got '0.5' (str)"),
    "long": (FailureKind.INVALID_VALUE, "value must be a finite number, got an int of 3321929 bits"),
}


class Hostile:
    """Performs the action that the parameter `action` names."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        action = parameters["action"]
        return Evaluation(RETURNED[action] if action in RETURNED else ACTIONS[action](parameters))


Make = Callable[..., RayExecutor]


@pytest.fixture
def make(start: Start, kind: Kind) -> Make:
    def make_one(slots: int, limits: Limits = PATIENT) -> RayExecutor:
        return start(Hostile(), slots, Placement("hostile", "t", kind, limits=limits))

    return make_one


def attempt(number: int, action: str, **parameters: Any) -> Attempt:
    return Attempt(number, number, {"action": action, **parameters}, seed=0)


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("limits", [HASTY, PATIENT])
def test_failures_name_their_cause_and_other_evaluations_finish(make: Make, limits: Limits) -> None:
    executor = make(slots=4, limits=limits)
    hostile = [action for action in EXPECTED if (action in ENDLESS) == (limits is HASTY)]
    actions = [name for action in hostile for name in (action, "work")]
    executor.submit([attempt(number, action) for number, action in enumerate(actions)])
    outcomes = drain(executor)
    assert sorted(outcomes) == list(range(len(actions)))
    for number, action in enumerate(actions):
        outcome = outcomes[number]
        if action == "work":
            assert isinstance(outcome, TrialSucceeded), outcome
            continue
        assert isinstance(outcome, TrialFailed), action
        assert (action, outcome.failure) == (action, EXPECTED[action][0]), outcome
        assert EXPECTED[action][1] in outcome.message


@pytest.mark.usefixtures("ray_cluster")
def test_worker_out_of_descriptors_is_not_used_again(make: Make) -> None:
    executor = make(slots=1)
    executor.submit([attempt(0, "leak_descriptors")])
    leak = of_type(TrialFailed, drain(executor)[0])
    assert leak.failure is FailureKind.ERROR
    assert leak.message.startswith("OSError: [Errno 24] Too many open files\n")
    for number in range(1, 12):
        executor.submit([attempt(number, "work")])
        outcome = of_type(TrialSucceeded, drain(executor)[number])
        assert outcome.worker != leak.worker


@pytest.mark.usefixtures("ray_cluster")
def test_evaluations_after_a_streak_of_failures_run_in_another_process(make: Make) -> None:
    executor, failures = make(slots=1), Counter[str]()
    # a busy machine may begin a second process, which then has some of the failures
    while max(failures.values(), default=0) < DAMAGED_AFTER:
        number = failures.total()
        executor.submit([attempt(number, "exit_with_message")])
        failures[drain(executor)[number].worker] += 1
    damaged, number = failures.most_common(1)[0][0], failures.total()
    executor.submit([attempt(number, "work")])
    outcome = of_type(TrialSucceeded, drain(executor)[number])
    assert outcome.worker != damaged


@pytest.mark.usefixtures("ray_cluster")
def test_process_that_fails_outside_of_its_evaluations_is_replaced(make: Make) -> None:
    executor, outcomes = make(slots=1), []
    for number, action in enumerate(["break_clock", *["work"] * 5]):
        executor.submit([attempt(number, action)])
        outcomes.append(drain(executor)[number])
    assert sum(isinstance(outcome, TrialFailed) for outcome in outcomes) <= 1, outcomes


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("action", ["fork_and_return", "fork_and_hang", "fork_and_die"])
def test_children_do_not_outlive_their_evaluation(make: Make, action: str, tmp_path: Path) -> None:
    executor = make(slots=1, limits=HASTY if action in ENDLESS else PATIENT)
    executor.submit([attempt(0, action, file=str(tmp_path / "pid"))])
    outcome = drain(executor)[0]
    assert isinstance(outcome, TrialSucceeded) == (action == "fork_and_return"), outcome
    pid = int((tmp_path / "pid").read_text())
    process = Path(f"/proc/{pid}")
    wait_until(lambda: not process.exists() or ") Z " in (process / "stat").read_text(), "the child lives on")
    executor.submit([attempt(1, "work")])
    assert isinstance(drain(executor)[1], TrialSucceeded)
