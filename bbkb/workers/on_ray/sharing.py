"""Divides a cluster among several campaigns: each gets its fair share of the slots.

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
from collections.abc import Callable, Mapping

from bbkb.workers.on_ray import head_store

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
        head_store.put(self._campaign, f"{part!r} {next(self._looks)}", namespace=self._namespace)
        return slots_of(self._campaign, total, {**self._others(), self._campaign: part})

    def leave(self) -> None:
        """Withdraw this campaign's demand, so that the others get its slots."""
        head_store.delete(self._campaign, namespace=self._namespace)

    def _others(self) -> dict[str, float]:
        """Return the demands of the other live campaigns as fractions of the cluster."""
        now = self._clock()
        entries = {}
        for name in (key.decode() for key in head_store.keys("", namespace=self._namespace)):
            entry = head_store.get(name, namespace=self._namespace)
            if name == self._campaign or entry is None:
                continue
            last_value, since = self._entries.get(name, (b"", now))
            entries[name] = (entry, since if last_value == entry else now)
        self._entries = entries
        return {name: float(entry.split()[0]) for name, (entry, since) in entries.items() if now - since < LOST_SECONDS}
