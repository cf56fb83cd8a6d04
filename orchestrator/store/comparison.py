"""Compares a log with a copy of it, event by event. A difference shows that one of them was
changed, but not which one.

Checksums reveal accidental changes. But a person who can write to the database can recompute them,
and only a copy in another place reveals such a change.
"""

from dataclasses import dataclass
from itertools import zip_longest

from orchestrator.errors import RunError
from orchestrator.store.event_store import EventStore
from orchestrator.store.rows import Row

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class LogComparison:
    """The result of comparing a log with a copy of it."""

    events: int  # the number of equal events from the beginning
    # the position of the first different event; None if one log is a prefix of the other
    difference: int | None = None
    newer: int = 0  # the number of events that only the log has
    older: int = 0  # the number of events that only the copy has

    @property
    def is_same(self) -> bool:
        """Whether the copy is an earlier state of the log."""
        return self.difference is None and not self.older

    def __str__(self) -> str:
        if self.difference is not None:
            return f"compared: event {self.difference} differs from the copy's, after {self.events} that are alike"
        if self.older:
            return f"compared: the copy has {self.older} events more; these are missing at the end of this log"
        return f"compared: {self.events} events are those of the copy, and {self.newer} came after it was made"


def compare(log: EventStore, copy: EventStore, campaign: str) -> LogComparison:
    """Compare the campaign's events in both stores.

    Raises StoreError if a log cannot be read, and RunError if `copy` lacks the campaign.
    """
    position = 0
    while True:
        pages = log.rows(campaign, position, _PAGE), copy.rows(campaign, position, _PAGE)
        if not pages[1] and not position:
            raise RunError(f"the copy has no event of campaign {campaign!r}: is it a copy of another run?")
        for mine, theirs in zip_longest(*pages):
            if mine is None or theirs is None:
                remaining = log.length(campaign) - position, copy.length(campaign) - position
                return LogComparison(position, newer=max(0, remaining[0]), older=max(0, remaining[1]))
            if _content(mine) != _content(theirs):
                return LogComparison(position, difference=position)
            position += 1
        if len(pages[0]) < _PAGE:
            return LogComparison(position)


def _content(row: Row) -> tuple[int, int, str, str, int | None]:
    return row.position, row.epoch, row.kind, row.body, row.checksum
