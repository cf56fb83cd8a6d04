"""Placement groups: the resources on several nodes for the evaluations of one worker.

A group is created before its worker, as a whole or not at all, and has the worker's name. It is
detached, so that an evaluation continues without the process that requested it, and is removed with
its worker. Ray kills the processes in a group that is removed.
"""

import time
from collections.abc import Callable, Collection, Iterable

from ray._raylet import PlacementGroupID
from ray.exceptions import RaySystemError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from workers.on_ray.packing import Need

_REMOVED = "REMOVED"
_TURN_SECONDS = 5.0  # Ray tries to place a pending group at least once a second


def make_group(name: str, need: Need, is_packed: bool) -> PlacementGroup:
    """Request resources for `need`, one bundle for each machine, without waiting for them.

    With `is_packed`, bundles that may share a node are packed onto as few nodes as possible. Raises
    ValueError if a group with this name exists.
    """
    try:
        group: PlacementGroup = placement_group(
            [need.resources()] * need.machines,
            strategy="STRICT_SPREAD" if need.is_spread else "PACK" if is_packed else "SPREAD",
            name=name,
            lifetime="detached",
        )
    except RaySystemError as error:
        if "already exists" not in str(error):
            raise
        raise ValueError(f"the name of a placement group must be new, got {name!r}") from error
    return group


def remove_group(group: PlacementGroup) -> None:
    """Release the resources of a group, and kill its processes."""
    remove_placement_group(group)


def groups_named(prefix: str) -> dict[str, PlacementGroup]:
    """Return the groups whose names begin with `prefix`, by name, including pending ones.

    They are found in Ray's table, because Ray finds a group by its name only in the namespace of
    the process that created it.
    """
    return {
        row["name"]: PlacementGroup(PlacementGroupID(bytes.fromhex(row["placement_group_id"])))
        for row in placement_group_table().values()
        if row["name"].startswith(prefix) and row["state"] != _REMOVED
    }


def sweep_groups(prefix: str, in_use: Collection[str]) -> None:
    """Remove the groups whose names begin with `prefix`, except those named in `in_use`."""
    for name, group in groups_named(prefix).items():
        if name not in in_use:
            remove_group(group)


class Turns:
    """Lets other campaigns have the resources that this one released before it requests them again.

    Ray tries a new request at once and an older one after a pause, so a campaign that requests them
    again without waiting is always first.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._prefixes: tuple[str, ...] = ()  # of the names of the others' groups
        self._waiting: set[str] = set()  # names of the groups that come first
        self._deadline = 0.0  # on the clock

    def give(self, prefixes: Iterable[str]) -> None:
        """Record that resources were released: pending groups whose names begin with one of
        `prefixes` come first."""
        self._prefixes = tuple(prefixes)
        self._waiting = self._still_waiting()
        self._deadline = self._clock() + _TURN_SECONDS

    def is_of_others(self) -> bool:
        """Return whether these groups still come first: for a short time, and until one of them was
        placed."""
        if self._waiting and (self._clock() >= self._deadline or not self._waiting <= self._still_waiting()):
            self._waiting = set()
        return bool(self._waiting)

    def _still_waiting(self) -> set[str]:
        return {
            row["name"]
            for row in placement_group_table().values()
            if row["state"] == "PENDING" and row["name"].startswith(self._prefixes)
        }


def remove_group_named(name: str) -> None:
    """Remove the group with this name, if there is one."""
    group = groups_named(name).get(name)
    if group is not None:
        remove_group(group)
