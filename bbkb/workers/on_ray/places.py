"""The resources that evaluations request, and the slots of the cluster, which campaigns share.

Each campaign has an entry in the key-value store of Ray's head, with its demand as a fraction of
the cluster, and a counter that changes at every check. If an entry does not change for a while, its
campaign is considered dead and ignored. No process decides for the others: all of them compute the
same division from the same entries.

The division is max-min fair: a campaign with a demand below an equal part gets its demand, and the
others divide the remaining capacity equally. Whole slots result from rounding down the cumulative
fractions, in the order of the campaigns' names.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import ray

from bbkb.workers.executor import ExecutorError
from bbkb.workers.messages import Attempt, Limits, Share
from bbkb.workers.on_ray import internals
from bbkb.workers.on_ray.crews import Crew
from bbkb.workers.packing import Need, Node, fits, slots_on

LOST_SECONDS = 15.0  # the time without a change of its entry after which a campaign is ignored
SHARES = "bbkb sharing"  # namespace of the entries
_ROUNDING = 1e-9


def fair_parts(demands: Mapping[str, float]) -> dict[str, float]:
    """Return the max-min fair part of the cluster for each campaign, sorted by name. `demands`:
    fractions of the whole cluster, from 0 to 1."""
    parts: dict[str, float] = {}
    free_share = 1.0
    for number, name in enumerate(sorted(demands, key=lambda name: (demands[name], name))):
        parts[name] = min(demands[name], free_share / (len(demands) - number))
        free_share -= parts[name]
    return {name: parts[name] for name in sorted(parts)}


def slots_of(name: str, total: int, demands: Mapping[str, float]) -> int:
    """Return the number of the `total` slots that belong to the campaign `name`. Each requested
    slot belongs to exactly one campaign."""
    parts = fair_parts(demands)
    ends = dict(zip(parts, itertools.accumulate(parts.values()), strict=True))
    last = ends[name]
    first = last - parts[name]
    return math.floor(total * last + _ROUNDING) - math.floor(total * first + _ROUNDING)


class Sharing:
    """One campaign's view of the others on its cluster."""

    def __init__(self, campaign: str, clock: Callable[[], float] = time.monotonic, namespace: str = SHARES) -> None:
        """`namespace`: the namespace of the entries; campaigns in another namespace are ignored."""
        self._campaign = campaign
        self._namespace = namespace
        self._clock = clock
        self._looks = itertools.count()
        self._entries: dict[str, tuple[bytes, float]] = {}  # entries of other campaigns, and their last changes

    def own(self, total: int, demand: int) -> int:
        """Publish this campaign's demand, and return how many of the cluster's `total` slots belong
        to it."""
        if total < 1:
            return total
        part = demand / total
        internals.put(self._campaign, f"{part!r} {next(self._looks)}", namespace=self._namespace)
        now = self._clock()
        entries = {}
        for name in (key.decode() for key in internals.keys("", namespace=self._namespace)):
            entry = internals.get(name, namespace=self._namespace)
            if name == self._campaign or entry is None:
                continue
            last_value, since = self._entries.get(name, (b"", now))
            entries[name] = (entry, since if last_value == entry else now)
        self._entries = entries
        live = {name: entry for name, (entry, since) in entries.items() if now - since < LOST_SECONDS}
        others = {name: float(entry.split()[0]) for name, entry in live.items()}
        return slots_of(self._campaign, total, {**others, self._campaign: part})

    def leave(self) -> None:
        """Withdraw this campaign's demand, so that the others get its slots."""
        internals.delete(self._campaign, namespace=self._namespace)


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

    def need(self, share: Share) -> Need:
        """Return the resources of an evaluation with this share."""
        return Need(
            cpus=share.cpus,
            gpus=share.gpus,
            memory=float(self.limits.memory_bytes or 0),
            machines=share.machines,
            is_spread=self.is_spread,
        )

    def largest_need(self) -> Need:
        """Return the resources of the largest evaluation."""
        return self.need(self.largest or self.share_of(None))


class Capacity:
    """The number of evaluations that the cluster can run concurrently, as nodes join and leave:
    `slots`. It is at least one, so that an attempt waits for the next node.

    Other campaigns on the cluster get their fair share.
    """

    def __init__(self, placement: Placement, most: int) -> None:
        """Count up to `most` slots, and request all of them from an autoscaler."""
        self._placement = placement
        # if trials have different shares, their common maximum; `has_room` then checks each attempt
        self._need = self._need_of(None)
        self._most = most
        self._sharing = Sharing(placement.campaign)
        self._has_asked = internals.can_grow()
        if self._has_asked:
            _request([self._need.resources()] * (most * self._need.machines))
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
        return self._placement.need(self._placement.share_of(attempt))

    def close(self) -> None:
        """Withdraw the request to the autoscaler, and leave the capacity to other campaigns."""
        self._sharing.leave()
        if self._has_asked:
            _request([])


def _request(bundles: list[dict[str, float]]) -> None:
    # imported here because workers import this module, too, and would start a quarter of a second later
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=bundles)


def check_feasible(placement: Placement) -> None:
    """Raise ExecutorError if no node can ever hold an evaluation, which Ray would queue forever."""
    if not internals.can_grow():
        check_fits(placement.largest_need(), nodes_here())


def check_fits(need: Need, nodes: Sequence[NamedNode]) -> None:
    """Raise ExecutorError with a list of the nodes if they can never hold an evaluation."""
    if slots_on([node.resources for node in nodes], need) > 0:
        return
    groups: dict[str, list[str]] = {}  # the names of nodes with equal amounts of the needed resources
    for node in nodes:
        text = amounts_text({name: node.resources.get(name, 0.0) for name in need.resources()})
        groups.setdefault(text, []).append(node.name)
    listed = []
    for text, names in groups.items():
        further = len(names) - _SHOWN_NODES
        listed.append(f"{', '.join(names[:_SHOWN_NODES])}{f' and {further} more' if further > 0 else ''}: {text}")
    lines = "; ".join(listed) or "none"
    amounts = amounts_text(need.resources())
    if need.machines == 1:
        rule = f"one node, got {amounts}"
        lowered = ""
        joined = "larger nodes"
    else:
        count = need.machines
        where = f"{count} nodes" if need.is_spread else f"the nodes as {count} parts"
        rule = f"{where}, got {amounts} on each"
        lowered = "workers.machines, "
        joined = "more or larger nodes"
    raise ExecutorError(
        f"one evaluation must fit on {rule}; the nodes have {lines}: lower {lowered}workers.cpus, workers.gpus or "
        f"workers.memory_gb, or join a cluster with {joined}"
    )


def nodes_here() -> list[NamedNode]:
    """Return the nodes of the cluster that are alive."""
    return [NamedNode(node["NodeManagerAddress"], node["Resources"]) for node in ray.nodes() if node["Alive"]]


def _resources() -> list[Node]:
    return [node.resources for node in nodes_here()]


def is_saturated(placement: Placement, slots: int) -> bool:
    """Return whether the cluster itself limits the number of these evaluations to `slots`."""
    if placement.largest is not None:
        return False
    cpus = sum(node.get("CPU", 0.0) for node in _resources())
    return cpus <= slots * placement.cpus and not internals.can_grow()


def amounts_text(resources: Node) -> str:
    """Return amounts of resources, by Ray's names, as text."""
    texts = (
        f"memory {amount / 2**30:.3g} GiB" if name == "memory" else f"{name} {amount:g}"
        for name, amount in resources.items()
    )
    return ", ".join(texts)
