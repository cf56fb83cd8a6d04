"""Tests of `workers.on_ray.failures`: the classification of Ray's exceptions."""

from typing import Any

import pytest
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    GetTimeoutError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    RaySystemError,
    RayTaskError,
    TaskCancelledError,
    TaskUnschedulableError,
    WorkerCrashedError,
)
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

from workers.evaluate import MESSAGE_CHARACTERS
from workers.messages import FailureKind
from workers.on_ray.failures import describe_error, is_process_death, kind_of, kind_of_trainers_error


def actor_died(words: str) -> ActorDiedError:
    error = ActorDiedError()
    error.args = (words,)
    error.error_msg = words
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (WorkerCrashedError(), FailureKind.WORKER_LOST),
        (
            actor_died("The actor died because its worker process has died. Worker exit type: SYSTEM_ERROR"),
            "worker lost",
        ),
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


def test_processes_death_differs_from_other_failures() -> None:
    assert is_process_death(WorkerCrashedError())
    assert is_process_death(actor_died("worker process has died"))
    assert not is_process_death(OutOfMemoryError("no room"))


def test_description_is_short_and_plain() -> None:
    text = describe_error(NodeDiedError("\x1b[31mred\x1b[0m " + "x" * 10_000))
    assert text.startswith("NodeDiedError: red xxx")
    assert len(text) == MESSAGE_CHARACTERS


def raised_from(cause: BaseException) -> BaseException:
    error = RuntimeError("the training failed")
    error.__cause__ = cause
    return error


def holding(**attributes: Any) -> RuntimeError:
    """An exception of a function, with attributes that Ray Train's have too."""
    error = RuntimeError("of the function")
    vars(error).update(attributes)
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (WorkerGroupError("x", {0: ValueError("x")}), FailureKind.ERROR),
        (WorkerGroupError("x", {0: ValueError("x"), 1: OutOfMemoryError("oom")}), FailureKind.OUT_OF_MEMORY),
        (WorkerGroupError("x", {0: actor_died("worker exit"), 1: NodeDiedError("gone")}), FailureKind.NODE_LOST),
        (ControllerError(actor_died("worker exit")), FailureKind.WORKER_LOST),
        (raised_from(WorkerGroupError("x", {0: WorkerCrashedError()})), FailureKind.WORKER_LOST),
        (OutOfMemoryError("oom"), FailureKind.OUT_OF_MEMORY),
        (WorkerGroupError("x", {0: RayTaskError("f", "trace", ValueError("x"))}), FailureKind.ERROR),
        (GetTimeoutError("the function's own wait"), FailureKind.ERROR),
    ],
)
def test_trainers_error_is_a_loss_if_ray_says_so_in_it(error: BaseException, kind: str) -> None:
    assert kind_of_trainers_error(error) == kind


@pytest.mark.parametrize("failures", [None, [1], {0: "text"}, 3])
def test_functions_own_attributes_of_the_same_names_are_no_losses(failures: object) -> None:
    error = holding(worker_failures=failures, controller_failure=failures)
    assert kind_of_trainers_error(error) == FailureKind.ERROR


def test_error_that_holds_itself_is_read_once() -> None:
    error = holding()
    vars(error)["controller_failure"] = raised_from(error)
    assert kind_of_trainers_error(error) == FailureKind.ERROR
