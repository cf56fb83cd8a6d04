"""Hostile objectives on real Ray: each ends as a failure with its cause, and good ones continue."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray import cloudpickle

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers.limits import DAMAGED_AFTER
from bbkb.workers.messages import Attempt, FailureKind, Limits, TrialFailed, TrialSucceeded
from bbkb.workers.on_ray.executor import RayExecutor
from bbkb.workers.on_ray.places import Kind, Placement
from tests.present import of_type
from tests.waiting import drain, wait_until
from tests.workers.conftest import Start

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import this file

pytestmark = pytest.mark.usefixtures("ray_cluster")

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


def test_process_that_fails_outside_of_its_evaluations_is_replaced(make: Make) -> None:
    executor, outcomes = make(slots=1), []
    for number, action in enumerate(["break_clock", *["work"] * 5]):
        executor.submit([attempt(number, action)])
        outcomes.append(drain(executor)[number])
    assert sum(isinstance(outcome, TrialFailed) for outcome in outcomes) <= 1, outcomes


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
