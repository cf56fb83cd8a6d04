"""`bbkb verify`: whether a run's log is intact, and which evaluations a resume would repeat.

This module reads all readable parts of the log, and `audit` checks them.
"""

from collections.abc import Iterator, Mapping

from orchestrator.errors import StoreError
from orchestrator.store.audit import Audit, Findings
from orchestrator.store.event_store import EventStore
from orchestrator.store.rows import Row
from orchestrator.store.store import Extent

_PAGE = 1000


def verify(store: EventStore, campaign: str) -> Findings:
    """Check a campaign's log, and return the findings, including damage.

    Raises StoreError if the database cannot be used at all, and RunError if the campaign does not
    exist.
    """
    holding = store.holding(campaign)
    problems = [f"SQLite's own check: {line}" for line in _damages(store)]
    extent = _extent(store, campaign, problems)
    if extent.events != extent.length or extent.last + 1 != extent.length:
        problems.append(
            f"the log must have the {extent.length} events of its row, got {extent.events}, the last at {extent.last}"
        )
    audit = Audit(store, campaign, problems)
    position = 0
    for row in _rows(store, campaign, min(max(extent.length, extent.last + 1), store.capacity()), problems):
        if row.position > position:
            problems.append(_missing(position, row.position - 1))
            audit.skip()
        audit.take(row)
        position = row.position + 1
    if position < extent.length:
        problems.append(_missing(position, extent.length - 1))
    audit.compare_head(extent)
    audit.compare()
    return audit.findings(holding.holder)


def _extent(store: EventStore, campaign: str, problems: list[str]) -> Extent:
    length = store.length(campaign)
    try:
        return store.extent(campaign)
    except StoreError as error:
        problems.append(f"events cannot be counted: {error}")
        return Extent(length, length, length - 1)


def _damages(store: EventStore) -> list[str]:
    try:
        return store.damages()
    except StoreError as error:
        return [str(error)]


def _missing(first: int, last: int) -> str:
    return f"event {first} is missing" if first == last else f"events {first} to {last} are missing"


def _rows(store: EventStore, campaign: str, length: int, problems: list[str]) -> Iterator[Row]:
    """Yield all readable rows page by page, and one by one in a damaged page."""
    salvaged: dict[int, Row] | None = None
    for start in range(0, length, _PAGE):
        try:
            page = store.rows(campaign, start, min(_PAGE, length - start))
        except StoreError:
            if salvaged is None:
                salvaged = {row.position: row for row in store.salvage(campaign)}
            page = _one_by_one(store, campaign, range(start, min(start + _PAGE, length)), salvaged, problems)
        yield from (row for row in page if row.position < min(start + _PAGE, length))


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
