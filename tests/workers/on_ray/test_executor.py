"""The executor on Ray, and what it has in flight."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray import cloudpickle
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    RaySystemError,
    TaskCancelledError,
    TaskUnschedulableError,
    WorkerCrashedError,
)

from bbkb.objectives.objective import Evaluation, Objective, Parameters, Report
from bbkb.workers.evaluate import MESSAGE_CHARACTERS
from bbkb.workers.executor import ExecutorError
from bbkb.workers.limits import grace_seconds
from bbkb.workers.messages import Attempt, FailureKind, Limits, TrialFailed, TrialSucceeded
from bbkb.workers.on_ray import in_flight
from bbkb.workers.on_ray.crews import put_objective
from bbkb.workers.on_ray.executor import MANY, MEASURED, Durations, RayExecutor
from bbkb.workers.on_ray.in_flight import (
    Again,
    Ended,
    Endings,
    RunningAttempt,
    describe_error,
    kind_of,
)
from bbkb.workers.on_ray.places import Kind, Placement
from bbkb.workers.on_ray.tasks import RayTasks
from tests.present import of_type
from tests.waiting import drain, wait_until
from tests.workers.conftest import Start

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import this file


def die(_: Parameters) -> None:
    os._exit(0)


def announce_and_sleep(parameters: Parameters) -> None:
    Path(parameters["file"]).write_text(str(os.getpid()))
    time.sleep(60)


ACTIONS: dict[str, Callable[[Parameters], Any]] = {"die": die, "announce_and_sleep": announce_and_sleep}


class Misbehaving:
    """Performs the action that the parameter `action` names, if any."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        action = ACTIONS.get(parameters.get("action", ""))
        if action is not None:
            action(parameters)
        return Evaluation(1.0)


Make = Callable[..., RayExecutor]


@pytest.fixture
def make(start: Start, kind: Kind, ray_cluster: str) -> Make:
    def make_one(
        objective: Objective | None = None, limits: Limits | None = None, slots: int = 2, **placement: Any
    ) -> RayExecutor:
        asked: dict[str, Any] = {"campaign": "c", "label": "t", "kind": kind, "limits": limits or Limits(), **placement}
        return start(objective or Misbehaving(), slots, Placement(**asked))

    return make_one


def attempt(number: int, **parameters: Any) -> Attempt:
    return Attempt(number, number, parameters, seed=0)


def pid_in(file: Path) -> int:
    """The process that announced itself there."""
    return int(wait_until(lambda: file.exists() and file.read_text(), "the evaluation did not start"))


class SlowToPrepare:
    """Needs a second in each process before its first evaluation, like a function with slow
    imports."""

    is_prepared = False

    def prepare(self) -> None:
        if not SlowToPrepare.is_prepared:
            time.sleep(1.0)
        SlowToPrepare.is_prepared = True

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        self.prepare()
        return Evaluation(1.0)


def test_time_out_does_not_count_the_preparation_of_a_process(make: Make) -> None:
    executor = make(SlowToPrepare(), Limits(timeout_seconds=0.5))
    executor.submit([attempt(number) for number in range(3)])
    assert all(isinstance(outcome, TrialSucceeded) for outcome in drain(executor).values())


@ray.remote(num_cpus=4)
def occupy(announcement: str, release: str) -> None:
    """Hold every CPU of the test cluster until the file `release` exists."""
    Path(announcement).write_text(str(os.getpid()))
    while not Path(release).exists():
        time.sleep(0.02)


@pytest.mark.parametrize("kind", ["task"], indirect=True)
def test_task_that_dies_after_a_long_wait_for_its_process_has_not_timed_out(make: Make, tmp_path: Path) -> None:
    limit = 1.0
    occupant = occupy.remote(str(tmp_path / "pid"), str(tmp_path / "release"))
    pid_in(tmp_path / "pid")  # until it holds them, the trial could run at once
    executor = make(limits=Limits(timeout_seconds=limit))
    executor.submit([attempt(0, action="die")])
    time.sleep(limit + grace_seconds(limit) + 0.5)  # at this age a task that had started would have been ended
    (tmp_path / "release").touch()
    assert of_type(TrialFailed, drain(executor)[0]).failure is FailureKind.WORKER_LOST
    ray.get(occupant)


def test_worker_killed_during_an_evaluation_is_lost_without_blame_on_the_evaluation(make: Make, tmp_path: Path) -> None:
    executor = make(limits=Limits(timeout_seconds=300.0))
    executor.submit([attempt(0, action="announce_and_sleep", file=str(tmp_path / "pid"))])
    os.kill(pid_in(tmp_path / "pid"), signal.SIGKILL)
    (outcome,) = executor.next_outcomes(200)
    assert of_type(TrialFailed, outcome).failure is FailureKind.WORKER_LOST


def test_silent_attempt_is_given_up_when_its_lease_expires(
    make: Make, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "START_UP_SECONDS", 0.0)
    monkeypatch.setattr(in_flight, "grace_seconds", lambda _: 0.5)
    executor = make(limits=Limits(timeout_seconds=5.0), slots=1)
    executor.submit([attempt(0, action="announce_and_sleep", file=str(tmp_path / "pid")), attempt(1)])
    pid = pid_in(tmp_path / "pid")
    os.kill(pid, signal.SIGSTOP)  # no response, as from a disconnected node
    try:
        outcome = of_type(TrialFailed, executor.next_outcomes(200)[0])
        is_task = "task" in request.node.name  # the start of an evaluation in an actor is known
        kind = FailureKind.NODE_LOST if is_task else FailureKind.TIMEOUT
        assert (outcome.trial, outcome.failure) == (0, kind)
        assert ("it has not answered for 6 s" if is_task else "timeout_seconds = 5") in outcome.message
        monkeypatch.setattr(in_flight, "START_UP_SECONDS", 200.0)  # the next one's process may take long to start
        assert isinstance(drain(executor)[1], TrialSucceeded)
    finally:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)


class HoldsArray:
    def __init__(self) -> None:
        self.array = np.arange(2**18, dtype=np.float64)

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        return Evaluation(self.array[seed], {"is_own_copy": float(self.array.flags.writeable)})


def test_objectives_arrays_are_read_from_the_object_store_without_a_copy(make: Make) -> None:
    executor = make(HoldsArray())
    executor.submit([Attempt(0, 0, {}, seed=12345)])
    outcome = of_type(TrialSucceeded, drain(executor)[0])
    assert outcome.value == 12345.0
    assert outcome.metrics == {"is_own_copy": 0.0}


class CountsItsUnpicklings:
    unpicklings = 0

    def __setstate__(self, state: Any) -> None:
        type(self).unpicklings += 1

    def __getstate__(self) -> Any:
        return "something"

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        return Evaluation(float(self.unpicklings))


def test_worker_unpickles_the_objective_once(make: Make) -> None:
    executor = make(CountsItsUnpicklings(), slots=1)
    executor.submit([attempt(i) for i in range(4)])
    assert [of_type(TrialSucceeded, outcome).value for outcome in drain(executor).values()] == [1.0] * 4


class CountsArguments:
    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        return Evaluation(float(len(sys.argv)))


def test_objective_sees_the_name_of_its_program_and_none_of_rays_arguments(make: Make) -> None:
    executor = make(CountsArguments(), slots=1)
    executor.submit([attempt(0)])
    assert of_type(TrialSucceeded, drain(executor)[0]).value == 1.0


class UnpicklesNowhere:
    def __reduce__(self) -> Any:
        return (float, ("not here",))

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        return Evaluation(1.0)


def test_objective_that_cannot_be_unpickled_on_the_worker_is_an_error(make: Make) -> None:
    executor = make(UnpicklesNowhere())
    executor.submit([attempt(0)])
    failure = of_type(TrialFailed, drain(executor)[0])
    assert failure.failure is FailureKind.ERROR
    assert "not here" in failure.message
    assert "\x1b" not in failure.message


class HoldsLock(Misbehaving):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_objective_that_cannot_be_pickled_is_rejected(make: Make) -> None:
    with pytest.raises(ExecutorError, match=r"must be picklable .* got HoldsLock"):
        make(HoldsLock())


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"cpus": 1000.0}, r"CPU 1000; the nodes have [\d.]+: CPU 4"),
        ({"gpus": 3.0}, "GPU 3"),
        ({"limits": Limits(memory_bytes=2**60)}, "memory 1.07e\\+09 GiB"),
        ({"slots": 0}, r"workers.count must be >= 1, got 0"),
    ],
)
def test_executor_rejects_resources_that_no_node_has(make: Make, request_: dict[str, Any], text: str) -> None:
    with pytest.raises(ExecutorError, match=text):
        make(**request_)


def success(seconds: float) -> TrialSucceeded:
    return TrialSucceeded(trial=0, attempt=0, started=0.0, finished=seconds, worker="w", value=1.0)


@pytest.mark.parametrize(
    ("evaluations", "seconds", "expected"),
    [
        pytest.param(MEASURED + MANY, 0.001, MEASURED, id="many-are-left"),
        pytest.param(MEASURED + MANY - 1, 0.001, MANY, id="too-few-are-left"),
        pytest.param(0, 0.001, MANY, id="unknown-number"),
        pytest.param(10 * MANY, 0.15, None, id="long-evaluations"),
    ],
)
def test_attempts_become_tasks_if_many_short_ones_follow(
    evaluations: int, seconds: float, expected: int | None
) -> None:
    durations = Durations("auto", evaluations)
    became_tasks = None
    for count in range(1, MANY + 1):
        durations.learn(success(seconds), 1.0)
        if durations.is_short and became_tasks is None:
            became_tasks = count
    assert became_tasks == expected


def actor_died(words: str) -> ActorDiedError:
    error = ActorDiedError()
    error.args = (words,)
    error.error_msg = words
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (WorkerCrashedError(), FailureKind.WORKER_LOST),
        (actor_died("The actor died because its worker process has died. Type: X"), "worker lost"),
        (actor_died("The actor died because its node has died. Node Id: 12ab"), FailureKind.NODE_LOST),
        (actor_died("Task was killed due to the node running low on memory."), FailureKind.OUT_OF_MEMORY),
        (OutOfMemoryError("used 99 %"), FailureKind.OUT_OF_MEMORY),
        (NodeDiedError("gone"), FailureKind.NODE_LOST),
        (TaskCancelledError(), FailureKind.ERROR),
        (TaskUnschedulableError("its node is not there"), FailureKind.NODE_LOST),
        (ObjectLostError("ab", None, ""), FailureKind.NODE_LOST),
        (ActorUnavailableError("connection reset", b"0" * 16), FailureKind.NODE_LOST),
        (RaySystemError("?"), FailureKind.NODE_LOST),
    ],
)
def test_failure_is_the_evaluations_fault_only_if_its_process_died_by_itself(error: RayError, kind: str) -> None:
    assert kind_of(error) == kind


def test_description_is_short_and_plain() -> None:
    text = describe_error(NodeDiedError("\x1b[31mred\x1b[0m " + "x" * 10_000))
    assert text.startswith("NodeDiedError: red xxx")
    assert len(text) == MESSAGE_CHARACTERS


def test_description_of_a_dead_process_has_cause_and_remedy_and_that_of_a_failed_start_has_rays_text() -> None:
    crashes = (WorkerCrashedError(), actor_died("The actor is dead because its worker process has died. Exit type: X"))
    for text in map(describe_error, crashes):
        assert text.startswith("its worker process died before the evaluation ended: ")
        assert text.endswith("Evaluate the configuration alone, or with fewer workers")
    start = "The actor died because of an error raised in its creation task: ImportError: no module"
    assert describe_error(actor_died(start)) == f"ActorDiedError: {start}"


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import this file


class Sleep:
    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        time.sleep(60.0)
        return Evaluation(0.0)


@pytest.mark.usefixtures("ray_cluster")
def test_task_whose_process_dies_just_after_a_kill_is_queued_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RayTasks, "last_kill", -1e9)  # of other tests
    placement = Placement("kills", "t", "task")
    tasks = RayTasks(put_objective(Sleep()), placement)
    endings = Endings(placement)
    requests = [Attempt(trial, trial, {}, 0) for trial in range(4)]
    references = [tasks.start(request) for request in requests]

    def is_lost(trial: int) -> bool:
        """Return whether the attempt fails if Ray reports that its process has died."""
        attempt = RunningAttempt(trial=trial, attempt=1, runner=tasks, request=requests[trial])
        ending = endings.of(references[trial], attempt, WorkerCrashedError())
        if isinstance(ending, Ended):
            assert isinstance(ending.outcome, TrialFailed)
            assert ending.outcome.failure is FailureKind.WORKER_LOST
            return True
        assert ending is Again.QUEUE
        return False

    assert is_lost(0)
    tasks.end(references[0])
    assert [is_lost(trial) for trial in (1, 1, 2, 2)] == [False, True, False, True]
    monkeypatch.setattr(RayTasks, "last_kill", time.monotonic() - 3.0)
    assert is_lost(3)
    for reference in references[1:]:
        tasks.end(reference)
