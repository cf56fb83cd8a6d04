"""Divides a cluster among several campaigns: each gets its fair share of the slots.

Each campaign has an entry in the key-value store of Ray's head, with its demand as a fraction of
the cluster, and a counter that changes at every check. If an entry does not change for a while, its
campaign is considered dead and ignored. No process decides for the others: all of them compute the
same division from the same entries.

An entry also contains the number of the campaign's largest evaluations that fit together on the
cluster. If this number is smaller in any entry than the number of campaigns, all campaigns take
turns, because an evaluation on all nodes cannot start while another campaign occupies one of them.

The division is max-min fair: a campaign with a demand below an equal part gets its demand, and the
others divide the remaining capacity equally. Whole slots result from rounding down the cumulative
fractions, in the order of the campaigns' names.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ray.util.placement_group import placement_group_table

from bbkb.workers.on_ray import head_store

LOST_SECONDS = 15.0  # the time without a change of its entry after which a campaign is ignored
SHARES = "bbkb sharing"  # namespace of the entries
_ROUNDING = 1e-9
_TURN_SECONDS = 5.0  # Ray tries to place a pending group at least once a second


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


@dataclass(frozen=True, slots=True)
class _Entry:
    """The entry of a campaign."""

    part: float  # its demand as a fraction of the cluster, from 0 to 1
    # the number of its largest evaluations that fit together on the cluster. It is 0 if none
    # fits, since turns would not help then.
    fewest: int

    def text(self, look: int) -> str:
        """Return the entry as text, for `_entry_of`. `look` is a counter."""
        return f"{self.part!r} {look} {self.fewest}"


def _entry_of(text: bytes) -> _Entry:
    part, _, fewest = text.split()
    return _Entry(float(part), int(fewest))


class Sharing:
    """One campaign's view of the others on its cluster."""

    def __init__(self, campaign: str, clock: Callable[[], float] = time.monotonic, namespace: str = SHARES) -> None:
        """`namespace`: the namespace of the entries; campaigns in another namespace are ignored."""
        self._campaign = campaign
        self._namespace = namespace
        self._clock = clock
        self._looks = itertools.count()
        self._entries: dict[str, tuple[bytes, float]] = {}  # entries of other campaigns, and their last changes
        self.others: frozenset[str] = frozenset()  # names of the other live campaigns
        self.is_crowded = False  # whether the campaigns take turns

    def own(self, total: int, demand: int, fewest: int | None = None) -> int:
        """Publish this campaign's demand, and return how many of the cluster's `total` slots belong
        to it. `fewest`: the number of slots for its largest evaluation; `total` by default."""
        if total < 1:
            return total
        entry = _Entry(demand / total, total if fewest is None else fewest)
        head_store.put(self._campaign, entry.text(next(self._looks)), namespace=self._namespace)
        campaigns = self._others()
        self.others = frozenset(campaigns)
        entries = {**campaigns, self._campaign: entry}
        self.is_crowded = any(0 < entry.fewest < len(entries) for entry in entries.values())
        return slots_of(self._campaign, total, {name: entry.part for name, entry in entries.items()})

    def leave(self) -> None:
        """Withdraw this campaign's demand, so that the others get its slots."""
        head_store.delete(self._campaign, namespace=self._namespace)

    def _others(self) -> dict[str, _Entry]:
        """Return the entries of the other live campaigns."""
        now = self._clock()
        entries = {}
        for name in (key.decode() for key in head_store.keys("", namespace=self._namespace)):
            entry = head_store.get(name, namespace=self._namespace)
            if name == self._campaign or entry is None:
                continue
            last_value, since = self._entries.get(name, (b"", now))
            entries[name] = (entry, since if last_value == entry else now)
        self._entries = entries
        return {name: _entry_of(entry) for name, (entry, since) in entries.items() if now - since < LOST_SECONDS}


class Turns:
    """Lets other campaigns use the resources that this one released before it requests them again.

    Ray tries a new request at once and an older one only after a pause, so a campaign that requests
    again without waiting would always be first.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._prefixes: tuple[str, ...] = ()  # prefixes of the names of the other campaigns' groups
        self._waiting: set[str] = set()  # names of the groups that come first
        self._deadline = 0.0  # on the clock passed to the methods

    def give(self, prefixes: Iterable[str]) -> None:
        """Record that resources were released. Pending groups whose names begin with one of
        `prefixes` then come first."""
        self._prefixes = tuple(prefixes)
        self._waiting = self._still_waiting()
        self._deadline = self._clock() + _TURN_SECONDS

    def is_of_others(self) -> bool:
        """Return whether these groups still come first: for a short time, or until one of them is
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
