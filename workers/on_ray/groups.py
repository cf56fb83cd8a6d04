"""Placement groups: the room on several nodes for the evaluations of one worker.

A group is made before its worker, all of it or nothing, and has the worker's name. It is detached,
so that an evaluation continues without the process that asked for it, and is removed with its
worker. Ray ends what runs in a group that is removed.
"""

import time
from collections.abc import Collection

from ray._raylet import PlacementGroupID
from ray.exceptions import RaySystemError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from workers.on_ray.packing import Need

_REMOVED = "REMOVED"
_TURN_SECONDS = 5.0  # Ray tries to place a group that waits for room at least once a second
_LOOK_SECONDS = 0.1


def make_group(name: str, need: Need, is_packed: bool) -> PlacementGroup:
    """Ask Ray for room for `need`, one bundle for each machine, and return without waiting for it.

    `is_packed`: parts that may share a node do so, instead of only where there are too few nodes.
    Raises ValueError when there is a group of that name.
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
    """Give its room back; ends what still runs in it."""
    remove_placement_group(group)


def groups_named(prefix: str) -> dict[str, PlacementGroup]:
    """Return the groups whose names begin with `prefix`, by name, also those that wait for room.

    Names count in the namespace of the process that made the group, so they are looked up in Ray's
    table.
    """
    return {
        row["name"]: PlacementGroup(PlacementGroupID(bytes.fromhex(row["placement_group_id"])))
        for row in placement_group_table().values()
        if row["name"].startswith(prefix) and row["state"] != _REMOVED
    }


def sweep_groups(prefix: str, kept: Collection[str]) -> None:
    """Remove the groups whose names begin with `prefix`, except those named `kept`."""
    for name, group in groups_named(prefix).items():
        if name not in kept:
            remove_group(group)


def let_others_begin(campaigns: str, own: str) -> None:
    """Wait until Ray has given room to a group whose name begins with `campaigns` and not with
    `own`, where one waits for it; a short while at most, since there may be too little room.

    Ray tries a new request at once and an older one after a pause: who asks again without waiting
    is always first.
    """
    waiting = _waiting(campaigns, own)
    deadline = time.monotonic() + _TURN_SECONDS
    while waiting and waiting <= _waiting(campaigns, own) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _waiting(campaigns: str, own: str) -> set[str]:
    """Return the names of the groups of others that wait for room."""
    return {
        row["name"]
        for row in placement_group_table().values()
        if row["state"] == "PENDING" and row["name"].startswith(campaigns) and not row["name"].startswith(own)
    }


def remove_group_named(name: str) -> None:
    """Remove the group with this name, if there is one."""
    group = groups_named(name).get(name)
    if group is not None:
        remove_group(group)
