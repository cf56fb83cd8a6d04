"""Classifies the exceptions that Ray raises for an attempt."""

import re
from collections.abc import Iterable

import ray
from ray.exceptions import (
    ActorDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    RuntimeEnvSetupError,
    TaskCancelledError,
    WorkerCrashedError,
)

from bbkb.workers.evaluate import MESSAGE_CHARACTERS, summary_of
from bbkb.workers.messages import FailureKind, Outcome
from bbkb.workers.on_ray.objective import Reference
from bbkb.workers.results import printable

_COLOR = re.compile(r"\x1b\[[0-9;]*m")

# The first matching row applies: Ray derives one exception from both TaskCancelledError and
# RayTaskError.
_KINDS: tuple[tuple[type[RayError], FailureKind], ...] = (
    (OutOfMemoryError, FailureKind.OUT_OF_MEMORY),
    # The campaign itself ends the attempts that it cancels. Any other cancellation is a
    # KeyboardInterrupt raised on the worker.
    (TaskCancelledError, FailureKind.ERROR),
    (RuntimeEnvSetupError, FailureKind.ERROR),
    (RayTaskError, FailureKind.ERROR),  # the worker cannot unpickle or import the objective
    (WorkerCrashedError, FailureKind.WORKER_LOST),
    (ActorDiedError, FailureKind.WORKER_LOST),
    (RayError, FailureKind.NODE_LOST),  # node died, object or owner lost, unschedulable, …
)
# Ray's texts for external causes of an actor's death; Ray has no types for them.
_NODE_DIED = (
    "node has died",
    "node was terminated",
    "node died",
    "node is dead",
    "raylet died",
    "drained",
    "preempted",
)
_PROCESS_DIED = "worker process has died"
_CRASH = (
    "its worker process died before the evaluation ended: the evaluation crashed it (in native code) or ended it "
    "(os._exit), or the system killed it for lack of memory. Evaluate the configuration alone, or with fewer workers"
)
_OUT_OF_MEMORY = ("OutOfMemory", "out of memory", "memory monitor", "memory pressure", "low on memory")


def kind_of(error: RayError) -> FailureKind:
    """Return the kind of failure for an exception of Ray."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, ObjectLostError):
        return FailureKind.NODE_LOST  # the campaign died before the worker had the objective
    kind = next(kind for exception, kind in _KINDS if isinstance(error, exception))
    if kind is not FailureKind.WORKER_LOST:
        return kind
    text = str(error).lower()
    if any(words.lower() in text for words in _OUT_OF_MEMORY):
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.NODE_LOST if any(words in text for words in _NODE_DIED) else kind


def is_process_death(error: RayError) -> bool:
    """Return whether Ray reports only that the process of the attempt has ended."""
    return isinstance(error, WorkerCrashedError | ActorDiedError)


def describe_error(error: RayError) -> str:
    """Return cause and remedy of a process's death; else Ray's message, after a summary of the
    exception on the worker if there is one."""
    text = text_of(error)
    if kind_of(error) is FailureKind.WORKER_LOST and (isinstance(error, WorkerCrashedError) or _PROCESS_DIED in text):
        return _CRASH
    if not isinstance(error, RayTaskError):
        return f"{type(error).__name__}: {text}"[:MESSAGE_CHARACTERS]
    summary = summary_of(error.cause)
    return f"{summary}\n{text[-(MESSAGE_CHARACTERS - len(summary) - 1) :]}"


def text_of(error: RayError) -> str:
    """Return Ray's message without colors."""
    return printable(_COLOR.sub("", str(error))).strip()


def fetch(references: list[Reference]) -> Iterable[Outcome | RayError | None]:
    """Return the result of each reference, or the error that Ray raises for it.

    If Ray raises nothing, the usual case, a single call gets all results.
    """
    try:
        return list(ray.get(references))
    except RayError:
        return [_fetch_outcome(reference) for reference in references]


def _fetch_outcome(reference: Reference) -> Outcome | RayError | None:
    try:
        result: Outcome | None = ray.get(reference)
    except RayError as error:
        return error
    return result
