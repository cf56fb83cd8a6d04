"""Several campaigns on one cluster: each takes its fair share of the places, and what the others
leave.

Each campaign has an entry in the key-value store of Ray's head, with the part of the cluster that
it could use, and a number that changes whenever it looks. An entry that stays the same for a while
is of a campaign that died, and counts no more. No process decides for the others: all compute the
same division from the same entries.

An entry also has the number of the campaign's largest evaluations that the cluster holds at a time.
Where this is smaller in any entry than the number of campaigns, all take turns: an evaluation on
all nodes cannot start while another campaign keeps one of them.

The division is max-min fair: a campaign that wants less than an equal part gets what it wants, the
others divide what is left equally. In whole places, campaigns in the order of their names get the
places between their cumulated parts.
"""

import itertools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_list, _internal_kv_put

LOST_SECONDS = 15.0  # without a change of its entry, after which a campaign is ignored
SHARES = "bbkb sharing"  # namespace of the entries
_ROUNDING = 1e-9


def fair_parts(demands: Mapping[str, float]) -> dict[str, float]:
    """Return the max-min fair part of the cluster for each campaign, by name, in the order of
    names; `demands`: parts of the whole cluster, from 0 to 1."""
    parts: dict[str, float] = {}
    free_share = 1.0
    for number, name in enumerate(sorted(demands, key=lambda name: (demands[name], name))):
        parts[name] = min(demands[name], free_share / (len(demands) - number))
        free_share -= parts[name]
    return {name: parts[name] for name in sorted(parts)}


def places_of(name: str, there: int, demands: Mapping[str, float]) -> int:
    """Return how many of the places that are `there` belong to the campaign `name`: all of them are
    given out to campaigns that want them, none twice."""
    parts = fair_parts(demands)
    ends = dict(zip(parts, itertools.accumulate(parts.values()), strict=True))
    first, last = ends[name] - parts[name], ends[name]
    return math.floor(there * last + _ROUNDING) - math.floor(there * first + _ROUNDING)


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a campaign tells the others.

    part: of the whole cluster, that it could use; from 0 to 1.
    fewest: the number of its largest evaluations that the cluster holds at a time; 0 where it holds
        none, so that no turn helps, and in entries of older versions.
    """

    part: float
    fewest: int

    def text(self, look: int) -> str:
        """Return what `_entry_of` reads; `look`: a number that changes."""
        return f"{self.part!r} {look} {self.fewest}"


def _entry_of(text: bytes) -> _Entry:
    part, _, *fewest = text.split()
    return _Entry(float(part), int(fewest[0]) if fewest else 0)


class Sharing:
    """One campaign's view of the others on its cluster."""

    def __init__(self, campaign: str, clock: Callable[[], float] = time.monotonic, namespace: str = SHARES) -> None:
        """`namespace`: of the entries; campaigns in another one do not count."""
        self._campaign = campaign
        self._namespace = namespace
        self._clock = clock
        self._looks = itertools.count()
        self._entries: dict[str, tuple[bytes, float]] = {}  # entries of other campaigns, and their last changes
        self.others: frozenset[str] = frozenset()  # names of the other campaigns that live
        self.is_crowded = False  # whether one of the campaigns counts fewer places than campaigns: they take turns

    def own(self, there: int, demand: int, fewest: int | None = None) -> int:
        """Return this campaign's part of the places that are `there`, of which it could use
        `demand`; `fewest`: the places for its largest evaluation, where they differ."""
        if there < 1:
            return there
        entry = _Entry(demand / there, there if fewest is None else fewest)
        _internal_kv_put(self._campaign, entry.text(next(self._looks)), overwrite=True, namespace=self._namespace)
        campaigns = self._others()
        self.others = frozenset(campaigns)
        entries = {**campaigns, self._campaign: entry}
        self.is_crowded = any(0 < entry.fewest < len(entries) for entry in entries.values())
        return places_of(self._campaign, there, {name: entry.part for name, entry in entries.items()})

    def leave(self) -> None:
        """Withdraw this campaign's demand, so that others get its places."""
        _internal_kv_del(self._campaign, namespace=self._namespace)

    def _others(self) -> dict[str, _Entry]:
        """Return the entries of the other campaigns that live."""
        now = self._clock()
        entries = {}
        for name in (key.decode() for key in _internal_kv_list("", namespace=self._namespace)):
            entry = _internal_kv_get(name, namespace=self._namespace)
            if name == self._campaign or entry is None:
                continue
            last_value, since = self._entries.get(name, (b"", now))
            entries[name] = (entry, since if last_value == entry else now)
        self._entries = entries
        return {name: _entry_of(entry) for name, (entry, since) in entries.items() if now - since < LOST_SECONDS}
