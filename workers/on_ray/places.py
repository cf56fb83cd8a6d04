"""What evaluations ask of a Ray cluster, and which of its nodes are there."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import ray
from ray.autoscaler.sdk import request_resources

from workers.executor import ExecutorError
from workers.messages import Attempt, Limits, Share
from workers.on_ray.packing import Need, Node, fits, places_on
from workers.on_ray.sharing import Sharing

Kind = Literal["task", "actor", "auto"]

_CHECK_SECONDS = 3.0  # between two reads of the list of nodes
_SHOWN_NODES = 8  # names of equal nodes in a message


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A node of a cluster.

    name: its address, for messages.
    resources: its total resources, by Ray's names.
    """

    name: str
    resources: Node


@dataclass(frozen=True, slots=True)
class Placement:
    """Where evaluations run."""

    campaign: str  # names the worker actors; unique on the cluster
    # what the dashboard shows for tasks: one for each campaign, since each distinct name becomes a
    # series of metrics
    label: str
    kind: Kind = "auto"  # tasks, worker actors, or whichever fits the durations
    cpus: float = 1.0  # logical CPUs of one evaluation, on each of its machines
    gpus: float = 0.0  # logical GPUs of one evaluation, on each of its machines
    # how long worker actors wait for a session when their campaign's process has died
    keep_seconds: float = 12 * 3600.0
    # the most that one evaluation takes where trials say it themselves; None where all take the
    # same
    largest: Share | None = None
    machines: int = 1  # the number of nodes of one evaluation
    is_spread: bool = True  # whether these must be different nodes
    # whether they are for the workers of the evaluation's trainer of Ray Train
    # (`workers.on_ray.trainers`)
    is_train: bool = False

    def share_of(self, attempt: Attempt | None) -> Share:
        """Return what this attempt takes; what all take, for one that is not known."""
        share = None if attempt is None else attempt.share
        return share or Share(cpus=self.cpus, gpus=self.gpus, machines=self.machines)

    def has_group(self, share: Share) -> bool:
        """Return whether the room of an evaluation is a placement group."""
        return share.machines > 1 or self.is_train


def memory_request(limits: Limits, factor: float) -> int | None:
    """Return bytes that an attempt asks Ray for: when it may use more than others, at most what the
    largest node has, since Ray would queue it without end otherwise."""
    if limits.memory_bytes is None or factor == 1.0:
        return limits.memory_bytes
    largest = max((node.get("memory", 0.0) for node in _resources()), default=0.0)
    return max(limits.memory_bytes, int(min(limits.memory_bytes * factor, largest)))


def need_of(placement: Placement, limits: Limits, share: Share, memory_factor: float = 1.0) -> Need:
    """Return what an evaluation with this share needs; `memory_factor`: see `Attempt`."""
    return Need(
        cpus=share.cpus,
        gpus=share.gpus,
        memory=float(memory_request(limits, memory_factor) or 0),
        machines=share.machines,
        is_spread=placement.is_spread,
    )


def largest_need(placement: Placement, limits: Limits) -> Need:
    """Return what an evaluation needs; the largest one where they differ."""
    return need_of(placement, limits, placement.largest or placement.share_of(None))


class Places:
    """How many evaluations the cluster has room for, as nodes join and leave: at most `most`, at
    least one, so that an attempt waits for the next node. An autoscaler is asked for room for
    `most`. Other campaigns on the cluster get their fair share of it (`workers.on_ray.sharing`)."""

    def __init__(self, placement: Placement, limits: Limits, most: int) -> None:
        self._placement = placement
        self._limits = limits
        # when trials have different demands, a resource that one does not use counts too:
        # `has_room` checks each trial
        self._need = need_of(placement, limits, placement.share_of(None))
        self._largest_need = largest_need(placement, limits)
        self._most = most
        self._sharing = Sharing(placement.campaign)
        self._has_asked = _can_grow()
        if self._has_asked:
            request_resources(bundles=[self._need.resources()] * (most * self._need.machines))
        self.count = self.look()

    def look(self) -> int:
        """Count the places again, and return their number."""
        nodes = _resources()
        there = places_on(nodes, self._need)
        fewest = places_on(nodes, self._largest_need)
        self.count = max(1, min(self._most, self._sharing.own(there, min(self._most, there), fewest)))
        return self.count

    @property
    def is_crowded(self) -> bool:
        """Whether campaigns on the cluster take turns, because one of them has fewer places than
        there are campaigns."""
        return self._sharing.is_crowded

    @property
    def others(self) -> frozenset[str]:
        """The names of the other campaigns on the cluster that live."""
        return self._sharing.others

    def has_room(self, attempt: Attempt, running: Iterable[Attempt | None]) -> bool:
        """Return whether the cluster has room for this attempt beside those that run, where trials
        take different shares."""
        if self._placement.largest is None:
            return True
        needs = [self._need_of(attempt) for attempt in running]
        return not needs or fits(_resources(), [*needs, self._need_of(attempt)])

    def _need_of(self, attempt: Attempt | None) -> Need:
        factor = 1.0 if attempt is None else attempt.memory_factor
        return need_of(self._placement, self._limits, self._placement.share_of(attempt), factor)

    def close(self) -> None:
        """Take the request to the autoscaler back, and leave the share to others."""
        self._sharing.leave()
        if self._has_asked:
            request_resources(bundles=[])


class NodeWatch:
    """Reports the nodes of the cluster that have died since the watch began."""

    def __init__(self) -> None:
        self._dead = _dead_nodes()
        self._next_check = time.monotonic() + _CHECK_SECONDS

    @property
    def patience_seconds(self) -> float:
        """The seconds until the next check is due."""
        return max(0.0, self._next_check - time.monotonic())

    def check_soon(self) -> None:
        """Let the next check be due now."""
        self._next_check = 0.0

    def newly_dead(self) -> frozenset[str]:
        """Return the ids of the nodes that have died since the last call."""
        self._next_check = time.monotonic() + _CHECK_SECONDS
        before = self._dead
        self._dead = _dead_nodes()
        return self._dead - before


def _dead_nodes() -> frozenset[str]:
    return frozenset(node["NodeID"] for node in ray.nodes() if not node["Alive"])


def check_feasible(placement: Placement, limits: Limits) -> None:
    """Refuse what no node can ever hold: Ray would queue it without end or message. Raises
    ExecutorError."""
    if not _can_grow():
        check_fits(largest_need(placement, limits), nodes_here())


def check_fits(need: Need, nodes: Sequence[NamedNode]) -> None:
    """Raise ExecutorError, with the list of nodes, when these can never hold an evaluation with
    this need."""
    if places_on([node.resources for node in nodes], need) > 0:
        return
    lines = "; ".join(f"{names}: {amounts}" for names, amounts in _group_nodes(need, nodes)) or "none"
    amounts = amounts_text(need.resources())
    if need.machines == 1:
        rule, lowered, joined = f"one node, got {amounts}", "", "larger nodes"
    else:
        nodes_text = f"{need.machines} nodes" if need.is_spread else f"the nodes as {need.machines} parts"
        rule, lowered, joined = f"{nodes_text}, got {amounts} on each", "workers.machines, ", "more or larger nodes"
    raise ExecutorError(
        f"one evaluation must fit on {rule}; the nodes have {lines}: lower {lowered}workers.cpus, workers.gpus or "
        f"workers.memory_gb, or join a cluster with {joined}"
    )


def _group_nodes(need: Need, nodes: Iterable[NamedNode]) -> Iterable[tuple[str, str]]:
    """Yield the names of the nodes that have the same amounts of what is needed, and these
    amounts."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        amounts = {name: node.resources.get(name, 0.0) for name in need.resources()}
        groups.setdefault(amounts_text(amounts), []).append(node.name)
    for text, names in groups.items():
        further = len(names) - _SHOWN_NODES
        yield ", ".join(names[:_SHOWN_NODES]) + (f" and {further} more" if further > 0 else ""), text


def nodes_here() -> list[NamedNode]:
    """Return the nodes of the cluster that are alive."""
    return [NamedNode(node["NodeManagerAddress"], node["Resources"]) for node in ray.nodes() if node["Alive"]]


def _resources() -> list[Node]:
    """Return the resources of each node that is alive."""
    return [node.resources for node in nodes_here()]


def is_saturated(placement: Placement, slots: int) -> bool:
    """Return whether the cluster itself has room for no more than `slots` of these evaluations at a
    time."""
    if placement.largest is not None:
        return False
    cpus = sum(node.get("CPU", 0.0) for node in _resources())
    return cpus <= slots * placement.cpus and not _can_grow()


def amounts_text(resources: Node) -> str:
    """Return amounts of resources, named as Ray does, as text."""
    texts = (
        f"memory {amount / 2**30:.3g} GiB" if name == "memory" else f"{name} {amount:g}"
        for name, amount in resources.items()
    )
    return ", ".join(texts)


def _can_grow() -> bool:
    """Return whether an autoscaler watches this cluster: it may add a larger node. Ray tells only
    by this private door."""
    configuration = ray._private.state.state.get_cluster_config()
    return configuration is not None and bool(configuration.node_group_configs)
