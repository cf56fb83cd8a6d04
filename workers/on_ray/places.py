"""What evaluations ask of a Ray cluster, and which of its nodes are there."""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import ray
from ray.autoscaler.sdk import request_resources

from workers.executor import ExecutorError
from workers.messages import Attempt, Limits, Share
from workers.on_ray.sharing import Sharing

Kind = Literal["task", "actor", "auto"]

_LOOK_SECONDS = 3.0  # between two reads of the list of nodes
_ROUNDING = 1e-9  # of fractions of a resource


@dataclass(frozen=True, slots=True)
class Placement:
    """Where evaluations run. `campaign` names the worker actors and must be unique on the cluster; `label` is what the
    dashboard shows for tasks: one a campaign, since each distinct name becomes a series of metrics.

    `cpus` and `gpus` are logical units of one evaluation; `largest` is the most that one takes where trials say it
    themselves, None where all take the same; `keep_seconds` is how long worker actors wait for a session
    when their campaign's process has died.
    """

    campaign: str
    label: str
    kind: Kind = "auto"
    cpus: float = 1.0
    gpus: float = 0.0
    keep_seconds: float = 12 * 3600.0
    largest: Share | None = None

    def share_of(self, attempt: Attempt | None) -> Share:
        """What this attempt takes; what all take, for one that is not known."""
        own = None if attempt is None else attempt.share
        return own or Share(cpus=self.cpus, gpus=self.gpus)


def memory_request(limits: Limits, factor: float) -> int | None:
    """Bytes that an attempt asks Ray for: when it may use more than others, at most what the largest node has, since
    Ray would queue it without end otherwise."""
    if limits.memory_bytes is None or factor == 1.0:
        return limits.memory_bytes
    largest = max((node.get("memory", 0.0) for node in _resources()), default=0.0)
    return max(limits.memory_bytes, int(min(limits.memory_bytes * factor, largest)))


def places_on(nodes: Iterable[Mapping[str, float]], wanted: Mapping[str, float]) -> int:
    """How many evaluations that each take `wanted` run at the same time on nodes with these resources."""
    return sum(
        min(math.floor(node.get(name, 0.0) / amount + _ROUNDING) for name, amount in wanted.items()) for node in nodes
    )


def fits(nodes: Iterable[Mapping[str, float]], shares: Iterable[Share]) -> bool:
    """Whether evaluations that take these shares run at the same time on nodes with these resources: the largest first,
    each on the first node with room."""
    free = [[node.get("CPU", 0.0), node.get("GPU", 0.0)] for node in nodes]
    for share in sorted(shares, key=lambda one: (one.gpus, one.cpus), reverse=True):
        room = [one for one in free if one[0] + _ROUNDING >= share.cpus and one[1] + _ROUNDING >= share.gpus]
        if not room:
            return False
        room[0][0] -= share.cpus
        room[0][1] -= share.gpus
    return True


def request_of(placement: Placement, limits: Limits) -> dict[str, float]:
    """What one evaluation asks of a node, by Ray's names of resources: the largest one where they differ."""
    share = placement.largest or placement.share_of(None)
    request = {"CPU": share.cpus, "GPU": share.gpus, "memory": float(limits.memory_bytes or 0)}
    return {name: amount for name, amount in request.items() if amount > 0.0}


class Places:
    """How many evaluations the cluster has room for, as nodes join and leave: at most `most`, at least one, so that an
    attempt waits for the next node. An autoscaler is asked for room for `most`. Other campaigns on the cluster get
    their fair share of it (`workers.on_ray.sharing`)."""

    def __init__(self, placement: Placement, limits: Limits, most: int) -> None:
        self._placement = placement
        # when trials have different demands, a resource that one does not use counts too: `has_room` checks each trial
        self._wanted = request_of(replace(placement, largest=None), limits)
        self._most = most
        self._sharing = Sharing(placement.campaign)
        self._has_asked = _can_grow()
        if self._has_asked:
            request_resources(bundles=[self._wanted] * most)
        self.count = self.look()

    def look(self) -> int:
        """Count them again."""
        there = places_on(_resources(), self._wanted)
        self.count = max(1, min(self._most, self._sharing.own(there, min(self._most, there))))
        return self.count

    def has_room(self, attempt: Attempt, running: Iterable[Attempt | None]) -> bool:
        """Whether the cluster has room for this attempt beside those that run, where trials take different shares."""
        if self._placement.largest is None:
            return True
        shares = [self._placement.share_of(one) for one in running]
        return not shares or fits(_resources(), [*shares, self._placement.share_of(attempt)])

    def close(self) -> None:
        """Take the request to the autoscaler back, and leave the share to others."""
        self._sharing.leave()
        if self._has_asked:
            request_resources(bundles=[])


class NodeWatch:
    """Tells which nodes have died since it was made, looking at the cluster's list every few seconds."""

    def __init__(self) -> None:
        self._dead = _dead_nodes()
        self._next_look = time.monotonic() + _LOOK_SECONDS

    def look_next_time(self) -> None:
        """Let the next look be due now."""
        self._next_look = 0.0

    @property
    def patience_seconds(self) -> float:
        """How long until the next look."""
        return max(0.0, self._next_look - time.monotonic())

    def lost(self) -> frozenset[str]:
        """Ids of the nodes that died since the last call; nothing between two looks."""
        return frozenset() if self.patience_seconds > 0.0 else self.look()

    def look(self) -> frozenset[str]:
        """As `lost`, looking now."""
        self._next_look = time.monotonic() + _LOOK_SECONDS
        dead = _dead_nodes()
        new, self._dead = dead - self._dead, dead
        return new


def _dead_nodes() -> frozenset[str]:
    return frozenset(node["NodeID"] for node in ray.nodes() if not node["Alive"])


def check_feasible(placement: Placement, limits: Limits) -> None:
    """Refuse what no node can ever hold: Ray would queue it without end or message. Raises ExecutorError."""
    wanted = request_of(placement, limits)
    nodes = _resources()
    if any(all(node.get(name, 0.0) >= amount for name, amount in wanted.items()) for node in nodes) or _can_grow():
        return
    largest = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in wanted}
    raise ExecutorError(
        f"one evaluation must fit on one node, got {_amounts(wanted)}; the {len(nodes)} nodes of this cluster have at "
        f"most {_amounts(largest)}: lower workers.cpus, workers.gpus or workers.memory_gb, or join a larger cluster"
    )


def _resources() -> list[dict[str, float]]:
    """Of each node that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def is_saturated(placement: Placement, slots: int) -> bool:
    """Whether the cluster itself has room for no more than `slots` of these evaluations at a time."""
    if placement.largest is not None:
        return False
    cpus = sum(node.get("CPU", 0.0) for node in _resources())
    return cpus <= slots * placement.cpus and not _can_grow()


def _amounts(resources: Mapping[str, float]) -> str:
    texts = (
        f"memory {amount / 2**30:.3g} GiB" if name == "memory" else f"{name} {amount:g}"
        for name, amount in resources.items()
    )
    return ", ".join(texts)


def _can_grow() -> bool:
    """Whether an autoscaler watches this cluster: it may add a larger node. Ray tells only by this private door."""
    configuration = ray._private.state.state.get_cluster_config()
    return configuration is not None and bool(configuration.node_group_configs)
