"""Tests of `bbkb.workers.on_ray.failures`: the classification of Ray's exceptions."""

import pytest
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

from bbkb.workers.evaluate import MESSAGE_CHARACTERS
from bbkb.workers.messages import FailureKind
from bbkb.workers.on_ray.failures import describe_error, is_process_death, kind_of


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


def test_processes_death_differs_from_other_failures() -> None:
    assert is_process_death(WorkerCrashedError())
    assert is_process_death(actor_died("worker process has died"))
    assert not is_process_death(OutOfMemoryError("no room"))


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
