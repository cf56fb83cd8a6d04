"""Tests of `bbkb.workers.on_ray.gangs`: the cause of an exception of a function that starts trainers."""

from typing import Any

import pytest
from ray.exceptions import (
    GetTimeoutError,
    NodeDiedError,
    OutOfMemoryError,
    RayTaskError,
    WorkerCrashedError,
)
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

from bbkb.workers.messages import FailureKind
from bbkb.workers.on_ray.gangs import kind_of_trainers_error
from tests.workers.on_ray.test_in_flight import actor_died


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


def test_users_error_with_such_attributes_or_that_contains_itself_is_an_error() -> None:
    for failures in (None, [1], {0: "text"}, 3):
        error = holding(worker_failures=failures, controller_failure=failures)
        assert kind_of_trainers_error(error) == FailureKind.ERROR
    error = holding()
    vars(error)["controller_failure"] = raised_from(error)
    assert kind_of_trainers_error(error) == FailureKind.ERROR
