"""The resources that evaluations request, and the capacity and the nodes of the cluster."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import ray
from ray.autoscaler.sdk import request_resources

from bbkb.workers.executor import ExecutorError
from bbkb.workers.messages import Attempt, Limits, Share
from bbkb.workers.on_ray.crews import Crew
from bbkb.workers.on_ray.packing import Need, Node, fits, slots_on
from bbkb.workers.on_ray.sharing import Sharing

Kind = Literal["task", "actor", "auto"]

_SHOWN_NODES = 8  # names of equivalent nodes in a message


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A node of a cluster."""

    name: str  # its address, for messages
    resources: Node  # its total resources, by Ray's names


@dataclass(frozen=True, slots=True)
class Placement:
    """The resources of a campaign's evaluations, and the way in which they run."""

    campaign: str  # the prefix of the names of worker actors; unique on the cluster
    label: str  # the beginning of each task's name in Ray's dashboard, before the trial's index
    kind: Kind = "auto"  # tasks, worker actors, or a choice that depends on the durations
    cpus: float = 1.0  # logical CPUs of one evaluation, on each of its machines
    gpus: float = 0.0  # logical GPUs of one evaluation, on each of its machines
    # the time that worker actors wait for a session after their campaign's process died
    keep_seconds: float = 12 * 3600.0
    # the largest share if trials determine their shares; None if all shares are equal
    largest: Share | None = None
    machines: int = 1  # the number of nodes of one evaluation
    is_spread: bool = True  # whether these must be different nodes
    crew: Crew = field(default_factory=Crew)  # the processes of an evaluation
    limits: Limits = field(default_factory=Limits)  # the time and memory of an evaluation

    def share_of(self, attempt: Attempt | None) -> Share:
        """Return the share of this attempt, or the common share if the attempt is unknown."""
        share = None if attempt is None else attempt.share
        return share or Share(cpus=self.cpus, gpus=self.gpus, machines=self.machines)

    def memory_request(self, factor: float) -> int | None:
        """Return the memory that an attempt with this factor reserves, in bytes.

        An attempt that may use more than the others reserves at most the memory of the largest
        node; otherwise Ray would queue it forever.
        """
        usual = self.limits.memory_bytes
        if usual is None or factor == 1.0:
            return usual
        largest = max((node.get("memory", 0.0) for node in _resources()), default=0.0)
        return max(usual, int(min(usual * factor, largest)))

    def need(self, share: Share, memory: int | None) -> Need:
        """Return the resources of an evaluation with this share and this request for memory."""
        return Need(
            cpus=share.cpus,
            gpus=share.gpus,
            memory=float(memory or 0),
            machines=share.machines,
            is_spread=self.is_spread,
        )

    def largest_need(self) -> Need:
        """Return the resources of the largest evaluation."""
        return self.need(self.largest or self.share_of(None), self.limits.memory_bytes)


class Capacity:
    """The number of evaluations that the cluster can run concurrently, as nodes join and leave:
    `slots`. It is at least one, so that an attempt waits for the next node.

    Other campaigns on the cluster get their fair share (`bbkb.workers.on_ray.sharing`).
    """

    def __init__(self, placement: Placement, most: int) -> None:
        """Count up to `most` slots, and request all of them from an autoscaler."""
        self._placement = placement
        # if trials have different shares, their common maximum; `has_room` then checks each attempt
        self._need = self._need_of(None)
        self._most = most
        self._sharing = Sharing(placement.campaign)
        self._has_asked = _can_grow()
        if self._has_asked:
            request_resources(bundles=[self._need.resources()] * (most * self._need.machines))
        self.slots = self.update()

    def update(self) -> int:
        """Count the slots again, and return their number."""
        total = slots_on(_resources(), self._need)
        own = self._sharing.own(total, min(self._most, total))
        self.slots = max(1, min(self._most, own))
        return self.slots

    def has_room(self, attempt: Attempt, running: Iterable[Attempt | None]) -> bool:
        """Return whether this attempt fits beside the running ones. Always true if all trials have
        the same share, because the slots limit their number."""
        if self._placement.largest is None:
            return True
        needs = [self._need_of(attempt) for attempt in running]
        return not needs or fits(_resources(), [*needs, self._need_of(attempt)])

    def _need_of(self, attempt: Attempt | None) -> Need:
        memory = self._placement.memory_request(1.0 if attempt is None else attempt.memory_factor)
        return self._placement.need(self._placement.share_of(attempt), memory)

    def close(self) -> None:
        """Withdraw the request to the autoscaler, and leave the capacity to other campaigns."""
        self._sharing.leave()
        if self._has_asked:
            request_resources(bundles=[])


def check_feasible(placement: Placement) -> None:
    """Raise ExecutorError if no node can ever hold an evaluation, which Ray would queue forever."""
    if not _can_grow():
        check_fits(placement.largest_need(), nodes_here())


def check_fits(need: Need, nodes: Sequence[NamedNode]) -> None:
    """Raise ExecutorError with a list of the nodes if they can never hold an evaluation."""
    if slots_on([node.resources for node in nodes], need) > 0:
        return
    lines = "; ".join(f"{names}: {amounts}" for names, amounts in _group_nodes(need, nodes)) or "none"
    amounts = amounts_text(need.resources())
    if need.machines == 1:
        rule = f"one node, got {amounts}"
        lowered = ""
        joined = "larger nodes"
    else:
        count = need.machines
        parts = f"{count} nodes" if need.is_spread else f"the nodes as {count} parts"
        rule = f"{parts}, got {amounts} on each"
        lowered = "workers.machines, "
        joined = "more or larger nodes"
    raise ExecutorError(
        f"one evaluation must fit on {rule}; the nodes have {lines}: lower {lowered}workers.cpus, workers.gpus or "
        f"workers.memory_gb, or join a cluster with {joined}"
    )


def _group_nodes(need: Need, nodes: Iterable[NamedNode]) -> Iterable[tuple[str, str]]:
    """Yield the names of nodes with equal amounts of the needed resources, and these amounts."""
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
    """Return whether the cluster itself limits the number of these evaluations to `slots`."""
    if placement.largest is not None:
        return False
    cpus = sum(node.get("CPU", 0.0) for node in _resources())
    return cpus <= slots * placement.cpus and not _can_grow()


def amounts_text(resources: Node) -> str:
    """Return amounts of resources, by Ray's names, as text."""
    texts = (
        f"memory {amount / 2**30:.3g} GiB" if name == "memory" else f"{name} {amount:g}"
        for name, amount in resources.items()
    )
    return ", ".join(texts)


def _can_grow() -> bool:
    """Return whether an autoscaler manages this cluster and may add a larger node.

    Only a private API of Ray reports this.
    """
    configuration = ray._private.state.state.get_cluster_config()
    return configuration is not None and bool(configuration.node_group_configs)
