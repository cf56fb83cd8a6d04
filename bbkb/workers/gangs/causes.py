"""The common cause of several failures: a process that lost its machine makes the others fail."""

from collections.abc import Iterator, Mapping, Sequence

from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from bbkb.workers.messages import FailureKind, TrialFailed
from bbkb.workers.on_ray.failures import kind_of

# the kinds of failures that cause others, the most informative first
_LOSSES = (FailureKind.NODE_LOST, FailureKind.OUT_OF_MEMORY, FailureKind.WORKER_LOST)
# Ray's exceptions for a lost process or node. Others (a time-out of `ray.get`, a full object store,
# …) are errors of the function that raises them.
_LOST = (
    RayActorError,
    WorkerCrashedError,
    OutOfMemoryError,
    NodeDiedError,
    LocalRayletDiedError,
    ObjectLostError,
)


def cause_of(failures: Sequence[TrialFailed]) -> TrialFailed:
    """Return the failure that caused the others: a lost machine or process, else the first."""
    in_order = sorted(failures, key=lambda failure: failure.finished)
    losses = [failure for kind in _LOSSES for failure in in_order if failure.failure is kind]
    return (losses or in_order)[0]


def kind_of_trainers_error(error: BaseException) -> FailureKind:
    """Classify an exception of a function that starts trainers.

    The kind is the loss of a process, a node or memory if Ray reports one in the exception or in
    its causes, else an error of the function.
    """
    kinds = {kind_of(loss) for loss in _losses(error)}
    return next((kind for kind in _LOSSES if kind in kinds), FailureKind.ERROR)


def _losses(error: BaseException) -> Iterator[RayError]:
    """Yield the exceptions about lost processes and nodes inside an exception of Ray Train, which
    contains those of its workers and its controller.

    A function's own exception may have attributes with the same names and any contents.
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
