"""`bbkb.workers.on_ray.in_flight`: the classification and the consequences of Ray's exceptions."""

import sys
import time

import pytest
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

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers.evaluate import MESSAGE_CHARACTERS
from bbkb.workers.messages import Attempt, FailureKind, TrialFailed
from bbkb.workers.on_ray.crews import put_objective
from bbkb.workers.on_ray.in_flight import (
    Again,
    Ended,
    Endings,
    RunningAttempt,
    describe_error,
    kind_of,
)
from bbkb.workers.on_ray.places import Placement
from bbkb.workers.on_ray.tasks import RayTasks


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
