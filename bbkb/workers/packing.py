"""What is known of a Ray cluster without Ray: the settings it starts with, and how many evaluations fit.

Ray counts resources in steps of 1/10000. Each part of an evaluation is on one node. A share of less
than one graphics processor is taken from a single one: 0.4 fits twice on each, and a fifth of it
remains unused. Larger amounts are whole processors that are not shared. Processor cores and memory
can be divided arbitrarily.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

# For a Ray instance that bbkb starts, and for every script and manifest that it writes: detect unresponsive
# nodes soon, limit output, send no usage reports. `deploy/ray.env` explains them.
RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "3000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_grpc_client_keepalive_time_ms": "20000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
    "RAY_ROTATION_MAX_BYTES": "16777216",
    "RAY_ROTATION_BACKUP_COUNT": "1",
    "RAY_metric_cardinality_level": "low",
}


Node: TypeAlias = Mapping[str, float]  # total resources of a node, by Ray's names

_WHOLE = 10_000  # Ray counts resources in units of 1/10 000
_UNBOUNDED = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The resources of one evaluation."""

    cpus: float = 0.0  # logical processor cores on each of its machines
    gpus: float = 0.0  # graphics processors on each of its machines; a whole number above 1
    memory: float = 0.0  # bytes on each of its machines
    machines: int = 1  # the number of parts, each of which is on one node
    is_spread: bool = True  # whether each part must be on a separate node

    def resources(self) -> dict[str, float]:
        """Return the nonzero amounts on one machine, by Ray's names of resources."""
        amounts = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory}
        return {name: amount for name, amount in amounts.items() if amount > 0.0}


@dataclass(slots=True)
class _Room:
    cpus: int  # in Ray's steps
    gpus: list[int]  # in Ray's steps, one entry for each graphics processor
    memory: int  # in bytes

    def copies(self, need: Need) -> int:
        """Return the number of parts of `need` that fit here together."""
        gpus = _steps(need.gpus)
        if gpus == 0:
            by_gpus = _UNBOUNDED
        elif gpus < _WHOLE:
            by_gpus = sum(free // gpus for free in self.gpus)
        else:
            by_gpus = sum(free == _WHOLE for free in self.gpus) // (gpus // _WHOLE)
        by_cpus = _most(self.cpus, _steps(need.cpus))
        return min(by_cpus, by_gpus, _most(self.memory, int(need.memory)))

    def take(self, need: Need) -> None:
        """Place one part of `need` here. It must fit."""
        self.cpus -= _steps(need.cpus)
        self.memory -= int(need.memory)
        gpus = _steps(need.gpus)
        if 0 < gpus < _WHOLE:
            fullest = min((free, number) for number, free in enumerate(self.gpus) if free >= gpus)[1]
            self.gpus[fullest] -= gpus
        for _ in range(gpus // _WHOLE):
            self.gpus[self.gpus.index(_WHOLE)] = 0


def slots_on(nodes: Iterable[Node], need: Need) -> int:
    """Return the number of evaluations with this need that fit together on empty nodes."""
    copies = [_room_of(node).copies(need) for node in nodes]
    if need.machines == 1 or not need.is_spread:
        return sum(copies) // need.machines

    def is_too_many(count: int) -> bool:
        """Return whether the nodes have fewer parts than `count` evaluations, counting each node at
        most once per evaluation."""
        return sum(min(number, count) for number in copies) < count * need.machines

    return bisect_right(range(1, sum(copies) // need.machines + 1), False, key=is_too_many)


def fits(nodes: Iterable[Node], needs: Iterable[Need]) -> bool:
    """Return whether evaluations with these needs fit together on empty nodes.

    The largest ones are placed first, on the first nodes with enough resources.
    """
    rooms = [_room_of(node) for node in nodes]
    largest_first = sorted(
        needs, key=lambda need: (need.machines * need.gpus, need.machines * need.cpus, need.memory), reverse=True
    )
    return all(_put(rooms, need) for need in largest_first)


def _put(rooms: list[_Room], need: Need) -> bool:
    """Place all parts of an evaluation, and return whether they fit."""
    part = replace(need, machines=1)
    filled: list[_Room] = []
    for _ in range(need.machines):
        free = [
            room
            for room in rooms
            if room.copies(part) > 0 and not (need.is_spread and any(room is room_before for room_before in filled))
        ]
        if not free:
            return False
        # parts on separate nodes take the nodes with the most free resources, which leaves the
        # largest number of nodes
        room = max(free, key=lambda node: node.copies(part)) if need.machines > 1 else free[0]
        room.take(part)
        filled.append(room)
    return True


def _room_of(node: Node) -> _Room:
    whole, fraction = divmod(_steps(node.get("GPU", 0.0)), _WHOLE)
    return _Room(
        cpus=_steps(node.get("CPU", 0.0)),
        gpus=[_WHOLE] * whole + [fraction] * (fraction > 0),
        memory=int(node.get("memory", 0.0)),
    )


def _most(free: int, each: int) -> int:
    return free // each if each > 0 else _UNBOUNDED


def _steps(amount: float) -> int:
    """Return the amount in Ray's units, truncated as Ray does; at least 1 if it is not 0."""
    return max(1, int(amount * _WHOLE)) if amount > 0.0 else 0
