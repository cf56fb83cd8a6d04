"""The processes of one evaluation: one worker actor, unless a crew of `bbkb.workers.on_ray.gangs` adds others;
and the way of the objective to them.

The `Placement` of a campaign contains its crew. The campaign's process reserves and releases
resources with the crew. It also sends the crew to each worker actor, which evaluates with it. The
objective is pickled once per campaign and unpickled once per worker process.
"""

import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

import ray

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.objective import Objective
from bbkb.objectives.pickled import PickledFunction
from bbkb.objectives.returned import WithMetrics
from bbkb.workers.evaluate import Publish, evaluate, prepare
from bbkb.workers.executor import ExecutorError
from bbkb.workers.messages import Attempt, FailureKind, Limits, Outcome
from bbkb.workers.packing import Need

Box: TypeAlias = "list[ray.ObjectRef[Objective]]"  # a list with one reference
Reference: TypeAlias = "ray.ObjectRef[Outcome]"  # to the outcome of an attempt


def put_objective(objective: Objective) -> Box:
    """Put the objective into the object store, a function of the caller's program with its pickle: other
    nodes may not have its file. Raises ExecutorError if it cannot be pickled.

    The reference is in a list because Ray would fetch and unpickle a bare one for every call. That
    would take a third of the throughput of cheap evaluations, and objectives that load data on
    first use would load it each time.
    """
    match objective:
        case WithMetrics(inner=PickledFunction() as function):
            objective = replace(objective, inner=function.with_content())
        case PickledFunction():
            objective = objective.with_content()
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
    del sys.argv[1:]  # Ray's, which an objective that parses arguments would read
    return ray.get(reference)


_CALLBACKS = "RAY_TRAIN_CALLBACKS"  # Ray Train makes these classes when a trainer starts
# named instead of imported: Ray Train imports it when a trainer starts
_TRAINER_CHECK = "bbkb.workers.on_ray.trainer_check.TrainerCheck"


class Crew:
    """The default crew: the worker actor evaluates alone."""

    further_seconds = 0.0  # for work before and after an evaluation, beyond its time limit
    end_seconds = 0.0  # that processes of an evaluation may take to end after its time-out
    # whether a worker can evaluate again after a failure, or if its resources are unknown
    is_reusable = True

    def reserve(self, name: str, need: Need) -> Mapping[str, Any]:
        """Reserve resources for the worker `name`, and return the options of its actor.

        Raises ValueError if the name is taken.
        """
        memory = int(need.memory) or None
        return {"num_cpus": need.cpus, "num_gpus": need.gpus, "memory": memory}

    def release(self, name: str) -> None:
        """Release the resources reserved for the worker `name`, if there are any."""

    def release_unused(self, title: str, in_use: Collection[str]) -> None:
        """Release the resources of workers whose names begin with `title` and are not `in_use`."""

    def prepare(self, objective: Objective, limits: Limits) -> None:
        """Prepare the worker's process for an evaluation, before its time limit begins."""
        refuse_trainers(objective)
        prepare(objective, limits)

    def evaluate(
        self,
        box: Box,
        attempt: Attempt,
        limits: Limits,
        publish: Publish,
        record: Callable[[Outcome], None],
    ) -> Outcome:
        """Evaluate an attempt in the worker's process. `record` receives the outcome if the process
        must end before it can return it."""
        objective = get_objective(box)
        return evaluate(objective, attempt, limits, is_expendable=True, publish=publish, kind_of=self.kind_of)

    def kind_of(self, error: BaseException) -> FailureKind:
        """Classify an exception of the objective."""
        return FailureKind.ERROR


def refuse_trainers(objective: Objective) -> None:
    """Make Ray Train reject the trainers that this process starts.

    The variable is not set for commands: they inherit the environment, and their Python may lack
    the module that it names.
    """
    inner = objective.inner if isinstance(objective, WithMetrics) else objective
    names = os.environ.get(_CALLBACKS, "").split(",")
    names = [name for name in names if name not in ("", _TRAINER_CHECK)]
    if not isinstance(inner, ShellCommand):
        names.append(_TRAINER_CHECK)
    if names:
        os.environ[_CALLBACKS] = ",".join(names)
    else:
        os.environ.pop(_CALLBACKS, None)
