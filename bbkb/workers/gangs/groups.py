"""Placement groups: the resources on several nodes for the evaluations of one worker.

A group is created before its worker, completely or not at all, and has the worker's name. It is
detached, so that an evaluation continues without the process that requested it. It is removed with
its worker. Ray kills the processes in a group that is removed.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ray._raylet import PlacementGroupID
from ray.exceptions import RaySystemError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from bbkb.workers.on_ray.crews import Crew
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
        row["name"]: PlacementGroup(PlacementGroupID(bytes.fromhex(row["placement_group_id"])))
        for row in placement_group_table().values()
        if row["name"].startswith(prefix) and row["state"] != "REMOVED"
    }
