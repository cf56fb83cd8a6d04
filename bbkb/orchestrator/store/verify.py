"""`bbkb verify`: whether a run's log is intact, and which evaluations a resume would repeat.

This module reads all readable parts of the log, and `audit` checks them. It also compares a log
with a copy of it, event by event.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from bbkb.orchestrator.errors import RunError, StoreError
from bbkb.orchestrator.store.audit import Audit
from bbkb.orchestrator.store.event_store import EventStore
from bbkb.orchestrator.store.rows import Row
from bbkb.orchestrator.store.store import PAGE, Extent


def verify(store: EventStore, campaign: str) -> Audit:
    """Check a campaign's log, and return the audit with its findings, including damage.

    Raises StoreError if the database cannot be used at all, and RunError if the campaign does not
    exist.
    """
    audit = Audit(store, campaign, store.holding(campaign).holder)
    problems = audit.problems
    try:
        damages = store.damages()
    except StoreError as error:
        damages = [str(error)]
    problems += [f"SQLite's own check: {line}" for line in damages]
    extent = _extent(store, campaign, problems)
    if extent.events != extent.length or extent.last + 1 != extent.length:
        problems.append(
            f"the log must have the {extent.length} events of its row, got {extent.events}, the last at {extent.last}"
        )
    position = 0
    for row in _rows(store, campaign, min(max(extent.length, extent.last + 1), store.capacity()), problems):
        if row.position > position:
            problems.append(_missing(position, row.position - 1))
            audit.is_gap = True
        audit.take(row)
        position = row.position + 1
    if position < extent.length:
        problems.append(_missing(position, extent.length - 1))
    audit.compare(extent)
    return audit


def _extent(store: EventStore, campaign: str, problems: list[str]) -> Extent:
    length = store.length(campaign)
    try:
        return store.extent(campaign)
    except StoreError as error:
        problems.append(f"events cannot be counted: {error}")
        return Extent(length, length, length - 1)


def _missing(first: int, last: int) -> str:
    return f"event {first} is missing" if first == last else f"events {first} to {last} are missing"


def _rows(store: EventStore, campaign: str, length: int, problems: list[str]) -> Iterator[Row]:
    """Yield all readable rows page by page, and one by one in a damaged page."""
    salvaged: dict[int, Row] | None = None
    for start in range(0, length, PAGE):
        try:
            page = store.rows(campaign, start, min(PAGE, length - start))
        except StoreError:
            if salvaged is None:
                salvaged = {row.position: row for row in store.salvage(campaign)}
            page = _one_by_one(store, campaign, range(start, min(start + PAGE, length)), salvaged, problems)
        yield from (row for row in page if row.position < min(start + PAGE, length))


def _one_by_one(
    store: EventStore, campaign: str, positions: range, salvaged: Mapping[int, Row], problems: list[str]
) -> list[Row]:
    salvageable = []
    for position in positions:
        if position in salvaged:
            salvageable.append(salvaged[position])
            continue
        try:
            salvageable += [row for row in store.rows(campaign, position, limit=1) if row.position == position]
        except StoreError as error:
            problems.append(f"event {position} cannot be read: {error}")
    return salvageable


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
            return f"compared: the copy has {self.older} more events, which this log has lost"
        return f"compared: {self.events} events are those of the copy, and {self.newer} came after it was made"


def compare(log: EventStore, copy: EventStore, campaign: str) -> LogComparison:
    """Compare the campaign's events in both stores. A difference shows that one of them was changed,
    but not which one.

    Checksums reveal accidental changes. But a person who can write to the database can recompute
    them, and only a copy in another place reveals such a change.

    Raises StoreError if a log cannot be read, and RunError if `copy` lacks the campaign.
    """
    position = 0
    while True:
        pages = log.rows(campaign, position, PAGE), copy.rows(campaign, position, PAGE)
        if not pages[1] and not position:
            raise RunError(f"the copy has no event of campaign {campaign!r}: is it a copy of another run?")
        for mine, theirs in zip_longest(*pages):
            if mine is None or theirs is None:
                remaining = log.length(campaign) - position, copy.length(campaign) - position
                return LogComparison(position, newer=max(0, remaining[0]), older=max(0, remaining[1]))
            if mine._replace(version=None) != theirs._replace(version=None):
                return LogComparison(position, difference=position)
            position += 1
        if len(pages[0]) < PAGE:
            return LogComparison(position)
