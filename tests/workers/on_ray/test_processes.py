"""Suspended worker actors: their attempts time out, their processes end, and their CPUs are
released."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray import cloudpickle

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers.messages import Attempt, FailureKind, Limits, TrialFailed, TrialSucceeded
from bbkb.workers.on_ray import in_flight
from bbkb.workers.on_ray.actors import end_actor, kill_worker
from bbkb.workers.on_ray.executor import RayExecutor
from bbkb.workers.on_ray.internals import node_and_pid
from bbkb.workers.on_ray.places import Placement
from tests.present import of_type
from tests.waiting import drain, is_alive, wait_until
from tests.workers.conftest import Start

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import this file

pytestmark = pytest.mark.usefixtures("ray_cluster")

SECONDS = 200.0


class StopsItself:
    """Writes its process id into the file `note`, and sends itself the signal `signal` if one is
    given."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        with open(parameters["note"], "a", encoding="ascii") as note:
            note.write(f"{os.getpid()}\n")
        if parameters.get("signal"):
            os.kill(os.getpid(), parameters["signal"])
        while parameters.get("sleeps"):
            time.sleep(0.1)
        return Evaluation(float(os.getpid()))


class StopsWhenUnpickled(StopsItself):
    """Stops the worker before its attempt begins, once: `note` shows that it has."""

    def __init__(self, note: Path) -> None:
        self.note = note

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if not self.note.exists():
            self.note.write_text(str(os.getpid()), encoding="ascii")
            os.kill(os.getpid(), signal.SIGSTOP)


Make = Callable[..., RayExecutor]


@pytest.fixture
def make(start: Start, request: pytest.FixtureRequest) -> Make:
    def make_one(objective: StopsItself | None = None, slots: int = 1, timeout: float | None = 1.0) -> RayExecutor:
        cpus = ray.cluster_resources()["CPU"] / slots  # so that a process that is left would block the next attempt
        limits = Limits(timeout_seconds=timeout)
        placement = Placement(request.node.name, "t", "actor", cpus=cpus, keep_seconds=600.0, limits=limits)
        return start(objective or StopsItself(), slots, placement)

    return make_one


def attempt(trial: int, note: Path, **parameters: Any) -> Attempt:
    return Attempt(trial, trial, {"note": str(note), **parameters}, seed=0, attempt=1)


def pids(note: Path) -> list[int]:
    return [int(line) for line in note.read_text().split()] if note.exists() else []


def test_stopped_worker_is_a_timeout_and_gives_its_cpus_back(make: Make, tmp_path: Path) -> None:
    executor, note = make(), tmp_path / "note"
    # not SIGTSTP: the kernel stops no process whose group has lost its terminal's session
    executor.submit([attempt(0, note, signal=signal.SIGSTOP), attempt(1, note)])
    outcomes = drain(executor)
    failure = of_type(TrialFailed, outcomes[0])
    assert failure.failure is FailureKind.TIMEOUT
    assert "timeout_seconds = 1" in failure.message
    assert isinstance(outcomes[1], TrialSucceeded)
    wait_until(lambda: not is_alive(pids(note)[0]))


def test_worker_stopped_before_its_attempt_begins_is_replaced(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "stopped"
    executor = make(StopsWhenUnpickled(note))
    executor.submit([attempt(0, tmp_path / "note")])
    executor.next_outcomes(0.0)
    wait_until(note.exists)
    monkeypatch.setattr(in_flight, "BEGIN_SECONDS", 1.0)
    failure = of_type(TrialFailed, executor.next_outcomes(SECONDS)[0])
    assert failure.failure is FailureKind.WORKER_LOST
    assert "not begun" in failure.message
    monkeypatch.undo()
    executor.submit([attempt(1, tmp_path / "note")])
    assert isinstance(drain(executor)[1], TrialSucceeded)
    wait_until(lambda: not is_alive(pids(note)[0]))


@pytest.mark.parametrize("how", ["close", "adopt"])
def test_process_of_a_stopped_worker_ends_whatever_ends_the_worker(make: Make, tmp_path: Path, how: str) -> None:
    executor, note = make(timeout=None), tmp_path / "note"
    executor.submit([attempt(0, note, signal=signal.SIGSTOP)])
    executor.next_outcomes(0.0)
    wait_until(lambda: pids(note))
    executor.close(leave_running=how == "adopt")
    if how == "adopt":
        make(timeout=None).adopt({5: 1})
    wait_until(lambda: not is_alive(pids(note)[0]))


def test_attempt_that_waits_for_its_worker_is_not_late_and_is_in_the_log(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = make(timeout=None), make(timeout=0.5)
    note = tmp_path / "note"
    first.submit([attempt(0, note, sleeps=True)])
    wait_until(lambda: first.next_outcomes(0.0) or pids(note))
    monkeypatch.setattr(in_flight, "WAITING_SECONDS", 0.5)
    second.submit([attempt(1, note)])
    wait_until(lambda: second.next_outcomes(0.1) or "waited for a worker" in caplog.text)
    assert "the first of trial 1" in caplog.text
    first.close()
    assert isinstance(drain(second)[1], TrialSucceeded)


@ray.remote(num_cpus=0)
class Idle:
    def process(self) -> int:
        return os.getpid()


def test_worker_that_is_stopped_on_another_node_is_killed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    actor: Any = Idle.remote()  # type: ignore[attr-defined]
    pid = ray.get(actor.process.remote())
    assert node_and_pid(actor) == (ray.get_runtime_context().get_node_id(), pid)
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "another node"))
    end_actor(actor, reaches_other_nodes=True)
    wait_until(lambda: not is_alive(pid))


def test_actor_without_a_process_is_ended_too() -> None:
    actor: Any = Idle.options(num_cpus=10_000).remote()  # type: ignore[attr-defined]
    assert node_and_pid(actor) is None
    end_actor(actor, reaches_other_nodes=True)


def test_process_that_is_not_a_worker_is_not_killed() -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        assert not kill_worker(other.pid)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert not kill_worker(other.pid)
