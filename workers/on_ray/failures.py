"""What Ray raises for an attempt, as a failure of its kind."""

import re
from collections.abc import Iterable, Iterator, Mapping

import ray
from ray.exceptions import (
    ActorDiedError,
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    RuntimeEnvSetupError,
    TaskCancelledError,
    WorkerCrashedError,
)

from workers.evaluate import MESSAGE_CHARACTERS, printable, summary_of
from workers.messages import FailureKind, Outcome
from workers.on_ray.objective import Reference

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

# The first row that fits counts: Ray derives one exception from both TaskCancelledError and
# RayTaskError.
_KINDS: tuple[tuple[type[RayError], FailureKind], ...] = (
    (OutOfMemoryError, FailureKind.OUT_OF_MEMORY),
    # The campaign settles what it cancels itself. Anything else that Ray takes for a cancellation
    # is a KeyboardInterrupt that was raised on the worker.
    (TaskCancelledError, FailureKind.ERROR),
    (RuntimeEnvSetupError, FailureKind.ERROR),
    (RayTaskError, FailureKind.ERROR),  # the objective cannot be unpickled or imported there
    (WorkerCrashedError, FailureKind.WORKER_LOST),
    (ActorDiedError, FailureKind.WORKER_LOST),
    (RayError, FailureKind.NODE_LOST),  # node died, object or owner lost, unschedulable, …
)
# Which failure is the cause when several processes fail: one that lost its machine or process makes
# the others fail.
LOSSES = (FailureKind.NODE_LOST, FailureKind.OUT_OF_MEMORY, FailureKind.WORKER_LOST)
# What Ray raises when a process or a node is lost. Its other exceptions (a time-out of `ray.get`,
# a full object store, …) are for the function that raises them to prevent.
_LOST = (
    RayActorError,
    WorkerCrashedError,
    OutOfMemoryError,
    NodeDiedError,
    LocalRayletDiedError,
    ObjectLostError,
)
# Texts of Ray for causes of an actor's death outside of its process; Ray has no types for them.
_NODE_DIED = (
    "node has died",
    "node was terminated",
    "node died",
    "node is dead",
    "raylet died",
    "drained",
    "preempted",
)
_OUT_OF_MEMORY = ("OutOfMemory", "out of memory", "memory monitor", "memory pressure", "low on memory")


def kind_of(error: RayError) -> FailureKind:
    """Return what kind of failure Ray's exception means."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, ObjectLostError):
        return FailureKind.NODE_LOST  # the campaign's process died before the worker had got the objective
    kind = next(kind for exception, kind in _KINDS if isinstance(error, exception))
    if kind is not FailureKind.WORKER_LOST:
        return kind
    text = str(error).lower()
    if any(words.lower() in text for words in _OUT_OF_MEMORY):
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.NODE_LOST if any(words in text for words in _NODE_DIED) else kind


def kind_of_trainers_error(error: BaseException) -> FailureKind:
    """Return what an exception of a function that starts trainers means: a process of the trainer
    or its node is lost, or its memory is full, where Ray says so in it or in what it was raised
    from, else an error of the function."""
    kinds = {kind_of(loss) for loss in _losses(error)}
    return next((kind for kind in LOSSES if kind in kinds), FailureKind.ERROR)


def _losses(error: BaseException) -> Iterator[RayError]:
    """Yield what Ray says of lost processes and nodes in an exception of Ray Train, which holds
    those of its workers or of its controller.

    A function's own exception may have attributes of the same names, with anything in them.
    """
    errors: list[object] = [error]
    visited: set[int] = set()
    while errors:
        part = errors.pop()
        if not isinstance(part, BaseException) or isinstance(part, RayTaskError) or id(part) in visited:
            continue
        visited.add(id(part))
        if isinstance(part, _LOST):
            yield part
        attributes = vars(part)
        failures = attributes.get("worker_failures")
        errors += failures.values() if isinstance(failures, Mapping) else ()
        errors += [attributes.get("controller_failure"), attributes.get("health_check_failure"), part.__cause__]


def is_process_death(error: RayError) -> bool:
    """Return whether all Ray saw is that the process which evaluated is gone."""
    return isinstance(error, WorkerCrashedError | ActorDiedError)


def describe_error(error: RayError) -> str:
    """Return what Ray says of it; led by what the code on the worker raised, if that is what
    happened."""
    text = printable(_COLOUR.sub("", str(error))).strip()
    if not isinstance(error, RayTaskError):
        return f"{type(error).__name__}: {text}"[:MESSAGE_CHARACTERS]
    summary = summary_of(error.cause)
    return f"{summary}\n{text[-(MESSAGE_CHARACTERS - len(summary) - 1) :]}"


def fetch(references: list[Reference]) -> Iterable[Outcome | RayError | None]:
    """Return each one's result or what Ray raises for it; all at once in the common case that
    nothing was raised."""
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
