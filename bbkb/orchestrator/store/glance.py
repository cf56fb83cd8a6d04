"""The end of a log in a SQLite file, read with a few plain queries, for lists of hundreds of runs.

Opening an `EventStore` takes several milliseconds for each run, because SQLAlchemy prepares its
statements for each database again. The log has precedence: the snapshot of the state is used only
if it contains the last event of the log. All other cases are left to `EventStore`, whose errors
describe the damage.
"""

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bbkb.orchestrator.campaign.events import CampaignCreated, SessionOpened
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.settings.file import Tree
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.limited import is_left_behind
from bbkb.orchestrator.store.notes import Note
from bbkb.orchestrator.store.rows import Row, Snapshot, decode
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.store.store import Holding
from bbkb.orchestrator.store.versions import TABLES_VERSION

E = TypeVar("E", CampaignCreated, SessionOpened)
_PREFIX = "sqlite:///"
_BUSY_SECONDS = 0.5  # `EventStore` may wait longer
_INSTRUCTIONS = 100_000  # SQLite instructions between two checks for an abort


@dataclass(frozen=True, slots=True)
class Glance:
    """A campaign after the last event of its log."""

    created: CampaignCreated
    settings: Tree  # the campaign file of the newest session
    state: CampaignState
    notes: tuple[Note, ...]
    holding: Holding
    length: int  # the number of events


def file_of(url: str) -> Path | None:
    """Return the SQLite file of a store's URL; None for other databases."""
    return Path(url.removeprefix(_PREFIX)) if url.startswith(f"{_PREFIX}/") else None


def glance(url: str, campaign: str) -> Glance | None:
    """Return the campaign after the last event of its log.

    None if the store is not a SQLite file, if the log has no snapshot of its end, or if anything
    looks damaged: then an `EventStore` must read it.
    """
    file = file_of(url)
    if file is None or not file.is_file():
        return None
    try:
        address = f"{file.as_uri()}?mode=rw"  # without write access, SQLite cannot read some logs
        with closing(sqlite3.connect(address, _BUSY_SECONDS, uri=True)) as connection:
            connection.set_progress_handler(is_left_behind, _INSTRUCTIONS)
            connection.execute("BEGIN")  # all queries see the same state of the file
            return _read(connection, campaign)
    except (sqlite3.Error, ValueError, TypeError):
        return None


def current_state(run: Run) -> CampaignState:
    """Return the state after the last event of a run's log.

    Raises RunError if the run has no log, and StoreError if it cannot be read.
    """
    if (seen := glance(run.store_url, run.name)) is not None:
        return seen.state
    with run.store() as store:
        return snapshots.current(run, store)[1]


def _read(connection: sqlite3.Connection, campaign: str) -> Glance | None:
    ((version,),) = connection.execute("SELECT version FROM bbkb_schema")
    columns = ", ".join(f"bbkb_snapshots.{name}" for name in Snapshot.__slots__)
    query = f"SELECT length, {columns} FROM bbkb_campaigns JOIN bbkb_snapshots USING (campaign)"
    found = connection.execute(f"{query} WHERE campaign = ?", (campaign,)).fetchone()
    if version != TABLES_VERSION or found is None:
        return None
    length, snapshot = found[0], Snapshot(*found[1:])
    query = "SELECT max(position) FROM bbkb_events WHERE campaign = ? AND kind = ?"
    ((opened,),) = connection.execute(query, (campaign, "session_opened"))
    rows = _rows(connection, campaign, {0, (opened or 1) - 1, opened or 0, length - 1})
    last = connection.execute("SELECT max(position) FROM bbkb_events WHERE campaign = ?", (campaign,)).fetchone()
    is_end = last == (length - 1,) and snapshot.position == length and rows[length - 1].checksum == snapshot.head
    state = snapshots.state_of(snapshot) if is_end else None
    if state is None:
        return None
    created = _intact_event(CampaignCreated, campaign, rows[0], 0)
    newest: CampaignCreated | SessionOpened = created
    if opened:
        newest = _intact_event(SessionOpened, campaign, rows[opened], rows[opened - 1].checksum)
    return Glance(
        created=created,
        settings=newest.settings,
        state=state,
        notes=_notes(connection, campaign),
        holding=_holding(connection, campaign),
        length=length,
    )


def _intact_event(cls: type[E], campaign: str, row: Row, previous: int | None) -> E:
    """Return the event in a row. Raises ValueError if the row was changed or has another event."""
    event = decode(row) if row.is_intact(campaign, previous) else None
    if not isinstance(event, cls):
        raise ValueError(f"event {row.position} is damaged")
    return event


def _rows(connection: sqlite3.Connection, campaign: str, positions: set[int]) -> dict[int, Row]:
    """Return position → row. Raises ValueError if a row is missing."""
    columns = ", ".join(Row._fields)
    places = ", ".join("?" * len(positions))
    query = f"SELECT {columns} FROM bbkb_events WHERE campaign = ? AND position IN ({places})"
    rows = {row[0]: Row(*row) for row in connection.execute(query, (campaign, *positions))}
    if rows.keys() != positions:
        raise ValueError(f"events are missing: {positions - rows.keys()}")
    return rows


def _notes(connection: sqlite3.Connection, campaign: str) -> tuple[Note, ...]:
    query = "SELECT time, text, tags, trial FROM bbkb_notes WHERE campaign = ? ORDER BY number"
    rows = connection.execute(query, (campaign,))
    return tuple(Note(time=at, text=text, tags=tuple(json.loads(tags)), trial=trial) for at, text, tags, trial in rows)


def _holding(connection: sqlite3.Connection, campaign: str) -> Holding:
    query = f"SELECT {', '.join(Holding.__slots__)} FROM bbkb_holders WHERE campaign = ?"
    return Holding(*(connection.execute(query, (campaign,)).fetchone() or (0,)))
