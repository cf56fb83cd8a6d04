"""Placement groups: the resources on several nodes for the evaluations of one worker; and the common
cause of the failures of their processes.

A group is created before its worker, completely or not at all, and has the worker's name. It is
detached, so that an evaluation continues without the process that requested it. It is removed with
its worker. Ray kills the processes in a group that is removed. A process that lost its machine makes
the others fail.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RaySystemError,
    RayTaskError,
    WorkerCrashedError,
)
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from bbkb.workers.messages import FailureKind, TrialFailed
from bbkb.workers.on_ray.crews import Crew
from bbkb.workers.on_ray.in_flight import kind_of
from bbkb.workers.on_ray.packing import Need


class GroupCrew(Crew):
    """A crew whose worker actor is in bundle 0 of a placement group."""

    # after a failure, the processes on the other machines may be in a bad state
    is_reusable = False
    sharing = "SPREAD"  # Ray's strategy for bundles that may share a node

    def reserve(self, name: str, need: Need) -> Mapping[str, Any]:
        """Request a group for `need`, one bundle for each machine, without waiting for it."""
        strategy = "STRICT_SPREAD" if need.is_spread else self.sharing
        bundles = [need.resources()] * need.machines
        try:
            group = placement_group(bundles, strategy=strategy, name=name, lifetime="detached")
        except RaySystemError as error:
            if "already exists" not in str(error):
                raise
            raise ValueError(f"the name of a placement group must be new, got {name!r}") from error
        place = PlacementGroupSchedulingStrategy(group, 0)
        return {**super().reserve(name, need), "scheduling_strategy": place}

    def release(self, name: str) -> None:
        """Remove the group with this name, and kill its processes."""
        group = groups_named(name).get(name)
        if group is not None:
            remove_placement_group(group)

    def release_unused(self, title: str, in_use: Collection[str]) -> None:
        """Remove the groups whose names begin with `title`, except those named in `in_use`."""
        for name, group in groups_named(title).items():
            if name not in in_use:
                remove_placement_group(group)


def groups_named(prefix: str) -> dict[str, PlacementGroup]:
    """Return the groups whose names begin with `prefix`, by name, including pending ones.

    They are found in Ray's table, because Ray only finds a group by name in the namespace of the
    process that created it.
    """
    return {
        row["name"]: PlacementGroup(ray.PlacementGroupID(bytes.fromhex(row["placement_group_id"])))
        for row in placement_group_table().values()
        if row["name"].startswith(prefix) and row["state"] != "REMOVED"
    }


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
    # an exception of Ray Train contains those of its workers and its controller; a function's own
    # exception may have attributes with the same names and any contents
    kinds = set[FailureKind]()
    errors: list[object] = [error]
    visited: set[int] = set()
    while errors:
        part = errors.pop()
        if not isinstance(part, BaseException) or isinstance(part, RayTaskError) or id(part) in visited:
            continue
        visited.add(id(part))
        if isinstance(part, _LOST):
            kinds.add(kind_of(part))
        attributes = vars(part)
        failures = attributes.get("worker_failures")
        errors += failures.values() if isinstance(failures, Mapping) else ()
        errors += [attributes.get("controller_failure"), attributes.get("health_check_failure"), part.__cause__]
    return next((kind for kind in _LOSSES if kind in kinds), FailureKind.ERROR)
