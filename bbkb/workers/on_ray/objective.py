"""Transport of the objective to Ray's workers: it is pickled once per campaign and unpickled once
per worker process."""

from functools import lru_cache
from typing import TypeAlias

import ray

from bbkb.objectives.objective import Objective
from bbkb.workers.executor import ExecutorError
from bbkb.workers.messages import Outcome

Box: TypeAlias = "list[ray.ObjectRef[Objective]]"  # a list with one reference
Reference: TypeAlias = "ray.ObjectRef[Outcome]"  # to the outcome of an attempt


def put_objective(objective: Objective) -> Box:
    """Put the objective into the object store. Raises ExecutorError if it cannot be pickled.

    The reference is in a list because Ray would fetch and unpickle a bare one for every call. That
    would take a third of the throughput of cheap evaluations, and objectives that load data on
    first use would load it each time.
    """
    try:
        return [ray.put(objective)]
    except Exception as error:  # pickling runs the objective's own code, which may raise anything
        raise ExecutorError(
            f"an objective must be picklable to reach Ray's workers, got {type(objective).__name__}: {error}; "
            "open files, connections and locks in evaluate(), not before"
        ) from error


def get_objective(box: Box) -> Objective:
    """Return the objective in this worker process."""
    return _fetch(box[0])


@lru_cache(maxsize=1)
def _fetch(reference: "ray.ObjectRef[Objective]") -> Objective:
    return ray.get(reference)
