"""The logs of campaigns in a database, and the right to write them.

A store fulfills this contract (`tests/orchestrator/store/test_store.py` checks it on every
available database):

* `append` writes its events in one transaction and returns when they are durable. It stores all of
  them or none.
* Writing needs a claim. A claim raises the campaign's epoch, and every append checks the epoch in
  its own transaction. A process with an older epoch therefore cannot write any event
  (`FencedError`), however late it continues. The store does not decide whether a campaign may be
  claimed. `store/lease.py` decides whether its holder is alive, and claims with the epoch that it
  has read, so only one of two processes succeeds.
* A claim stores the settings of its session in the same transaction. If several processes want to
  continue a campaign, only the winner's settings are stored.
* Events are read in the order of the appends, without gaps. Each has a checksum of itself and of
  the previous checksum, which reveals an event that was changed, removed, inserted or moved.
  Reading needs no claim, never blocks a writer and creates no file.
* Several campaigns can share a store.
"""

import contextlib
import gc
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from bbkb.orchestrator import files
from bbkb.orchestrator.campaign.events import Event, body_of, event_of
from bbkb.orchestrator.errors import FencedError, HeldError, RunError, StoreError
from bbkb.orchestrator.store.connect import Place, connect, resolve, shown, translate_errors
from bbkb.orchestrator.wording import moment

FORMAT = 1  # of the tables, the events and their checksums
PAGE = 1000  # events in one query
_CHECKSUM_BITS = 63  # fits into a signed 64-bit column
_TABLES_LOCK = 0x62626B62  # "bbkb", as a number of PostgreSQL's advisory locks

Stop = Literal["", "drain", "now"]  # the request to the holder: none, drain, or stop at once

_METADATA = sa.MetaData()
_FORMAT = sa.Table("bbkb_format", _METADATA, sa.Column("format", sa.Integer, nullable=False))
_CAMPAIGNS = sa.Table(
    "bbkb_campaigns",
    _METADATA,
    sa.Column("campaign", sa.String(200), primary_key=True),
    sa.Column("length", sa.Integer, nullable=False),  # the number of events
    sa.Column("head", sa.BigInteger, nullable=False),  # the checksum of the last event
    # the lease; see `Holding`
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("identity", sa.Text, nullable=False),
    sa.Column("since", sa.Float, nullable=False),
    sa.Column("last_beat", sa.Float, nullable=False),
    sa.Column("beats", sa.BigInteger, nullable=False),
    sa.Column("stop", sa.String(10), nullable=False),
    sa.Column("settings", sa.Text, nullable=False),  # the campaign file of the newest claim, as JSON
)
_EVENTS = sa.Table(
    "bbkb_events",
    _METADATA,
    sa.Column("campaign", sa.String(200), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),  # in the log, from 0
    sa.Column("epoch", sa.Integer, nullable=False),  # of the session that wrote the event
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # its fields as JSON
    sa.Column("checksum", sa.BigInteger, nullable=False),  # of this event and the previous checksum
)
_SNAPSHOTS = sa.Table(
    "bbkb_snapshots",
    _METADATA,
    sa.Column("campaign", sa.String(200), primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("head", sa.BigInteger, nullable=False),
    sa.Column("version", sa.String(20), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

# The driver gets these texts as they are (`_run`): SQLAlchemy would compile each statement again for
# each database, which takes most of the time of a list of runs.
_LEASE_COLUMNS = "epoch, holder, identity, since, last_beat, beats, stop"
_MINE = "campaign = :campaign AND epoch = :epoch"
_CREATE = (
    f"INSERT INTO bbkb_campaigns (campaign, length, head, {_LEASE_COLUMNS}, settings) "
    "VALUES (:campaign, :length, :head, 0, '', '', :now, :now, 0, '', '')"
)
_INSERT = (
    "INSERT INTO bbkb_events (campaign, position, epoch, kind, body, checksum) "
    "VALUES (:campaign, :position, :epoch, :kind, :body, :checksum)"
)
_LOCK = f"UPDATE bbkb_campaigns SET epoch = epoch WHERE {_MINE}"  # the row, until the transaction ends
_END = "SELECT length, head FROM bbkb_campaigns WHERE campaign = :campaign"
_ADVANCE = "UPDATE bbkb_campaigns SET length = :length, head = :head WHERE campaign = :campaign"
_ROWS = (
    "SELECT position, epoch, kind, body, checksum FROM bbkb_events "
    "WHERE campaign = :campaign AND position >= :position ORDER BY position LIMIT :limit"
)
_CLAIM = (
    "UPDATE bbkb_campaigns SET epoch = epoch + 1, holder = :holder, identity = :identity, since = :now, "
    "last_beat = :now, beats = 0, stop = '', settings = :settings WHERE campaign = :campaign"
)
_HOLDING = f"SELECT {_LEASE_COLUMNS} FROM bbkb_campaigns WHERE campaign = :campaign"
_BEAT = f"UPDATE bbkb_campaigns SET beats = beats + 1, last_beat = :now WHERE {_MINE}"
_ASK = f"UPDATE bbkb_campaigns SET stop = :stop WHERE {_MINE} AND holder <> ''"
_RELEASE = f"UPDATE bbkb_campaigns SET holder = '', identity = '', stop = '', last_beat = :now WHERE {_MINE}"
_SAVE = "INSERT INTO bbkb_snapshots VALUES (:campaign, :position, :head, :version, :body)"
_SAVED = (
    "SELECT saved.position, head, version, saved.body FROM bbkb_snapshots AS saved JOIN bbkb_events AS last "
    "ON last.campaign = saved.campaign AND last.position = saved.position - 1 AND last.checksum = head "
    "WHERE saved.campaign = :campaign"
)


@dataclass(frozen=True, slots=True)
class Holding:
    """The right to write a campaign's log, and its holder. The times are on the holder's clock."""

    epoch: int  # the number of claims
    holder: str = ""  # the process, for display; empty if there is none
    identity: str = ""  # the process as text of `Identity.to_text`
    since: float = 0.0  # the time of the claim in seconds
    last_beat: float = 0.0  # the time of the last heartbeat in seconds
    beats: int = 0  # the number of heartbeats
    stop: Stop = ""  # a request to stop, if any


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The stored state after the first events of a log, so that a reader need not fold all of it."""

    position: int  # the number of these events
    head: int  # the checksum of the last of these events
    version: str  # a checksum of the program that can read `body`, and of `body`
    body: str  # the state as JSON


class Row(NamedTuple):
    """An event in the database."""

    position: int
    epoch: int
    kind: str
    body: str
    checksum: int = 0

    def checksum_after(self, campaign: str, previous: int) -> int:
        """Return 63 bits of BLAKE2b over the other columns and the previous checksum."""
        position, epoch, kind, body, _ = self
        content = f"{previous}\n{campaign}\n{position}\n{epoch}\n{kind}\n{body}"
        digest = blake2b(content.encode(errors="surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> (64 - _CHECKSUM_BITS)


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Pause Python's cycle collector, which takes a third of the time while many events are decoded. They form no
    cycles."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_collecting:
            gc.enable()


def rows_of(campaign: str, epoch: int, position: int, events: Sequence[Event], previous: int) -> list[Row]:
    """Return the rows of events from `position` on, chained to the checksum `previous`."""
    rows = []
    for index, event in enumerate(events, start=position):
        row = Row(index, epoch, event.kind, body_of(event))
        previous = row.checksum_after(campaign, previous)
        rows.append(row._replace(checksum=previous))
    return rows


class EventStore:
    """The campaigns of a database. Every method raises StoreError if the database cannot be reached,
    written or understood, and RunError if it has no such campaign."""

    def __init__(self, place: Place) -> None:
        """Open the SQLite file or the database at a URL; it need not exist yet."""
        self.name = shown(place)  # for messages
        self._place = place
        self._engine = connect(place)
        found = resolve(place)
        self._file = None if isinstance(found, sa.URL) else found
        self._has_tables = False
        if self._file is not None and not self._file.exists():  # connecting would create an empty file
            if not self._file.parent.is_dir():
                raise StoreError(f"the store {self.name} cannot exist there: does the folder exist?")
            return
        with translate_errors(place), self._engine.connect() as connection:
            self._check_format(connection)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def make_tables(self) -> None:
        """Create the tables. Only this method needs the right to create tables, and `create` if
        there are none."""
        if self._file is not None:
            try:
                files.make_private(self._file)  # SQLite's other files get the same rights
            except OSError as error:
                raise StoreError(
                    f"the store {self.name} cannot be created: {error.strerror} (does the folder exist, and may it "
                    "be written?)"
                ) from error
        with translate_errors(self._place), self._engine.begin() as connection:
            # two processes that create the same table at the same time would fail
            is_sqlite = connection.dialect.name == "sqlite"
            connection.exec_driver_sql(
                "BEGIN IMMEDIATE" if is_sqlite else f"SELECT pg_advisory_xact_lock({_TABLES_LOCK})"
            )
            if not self._check_format(connection):
                _METADATA.create_all(connection)
                _run(connection, "INSERT INTO bbkb_format VALUES (:format)", {"format": FORMAT})
        self._has_tables = True

    def create(self, campaign: str, first: Sequence[Event]) -> None:
        """Create the log of a new campaign with these events. Raises RunError if it exists."""
        if not self._has_tables:
            self.make_tables()
        rows = rows_of(campaign, 0, 0, first, previous=0)
        head = rows[-1].checksum if rows else 0
        with translate_errors(self._place):
            try:
                with self._engine.begin() as connection:
                    created = {"campaign": campaign, "length": len(rows), "head": head, "now": time.time()}
                    _run(connection, _CREATE, created)
                    _insert(connection, campaign, rows)
            except sa.exc.IntegrityError as error:
                raise RunError(
                    f"campaign {campaign!r} is in {self.name} already: watch it with `bbkb attach` if another "
                    "process has just begun it, resume it, or give another name"
                ) from error

    def append(self, campaign: str, epoch: int, events: Sequence[Event], position: int | None = None) -> None:
        """Append events under a claim. They are durable on return.

        Args:
            campaign: the campaign.
            epoch: the epoch of the claim.
            events: the events.
            position: the position of the first event; None: the end of the log. Events that are
                already in the log are skipped, so an interrupted writer can safely retry.

        Raises:
            FencedError: the claim is no longer the newest.
        """
        with self._writing() as connection:
            if _run(connection, _LOCK, {"campaign": campaign, "epoch": epoch}).rowcount != 1:
                raise self._fenced_error(connection, campaign, epoch)
            length, head = _run(connection, _END, {"campaign": campaign}).one()
            there = 0 if position is None else min(length - position, len(events))
            if there < 0:
                raise StoreError(
                    f"campaign {campaign!r} has {length} events, none can be written at position {position}"
                )
            if rows := rows_of(campaign, epoch, length, events[there:], head):
                _insert(connection, campaign, rows)
                end = {"campaign": campaign, "length": length + len(rows), "head": rows[-1].checksum}
                _run(connection, _ADVANCE, end)

    def names(self) -> list[str]:
        """Return the names of the campaigns, sorted."""
        with self._reading(may_be_empty=True) as connection:
            if not self._has_tables:
                return []
            return list(_run(connection, "SELECT campaign FROM bbkb_campaigns ORDER BY campaign").scalars())

    def has(self, campaign: str) -> bool:
        """Return whether the campaign exists; False if the database does not exist."""
        if self._file is not None and not self._file.exists():
            return False
        with self._reading(may_be_empty=True) as connection:
            return self._has_tables and _run(connection, _END, {"campaign": campaign}).one_or_none() is not None

    def length(self, campaign: str) -> int:
        """Return the number of events."""
        with self._reading() as connection:
            return self._end(connection, campaign)[0]

    def read(
        self, campaign: str, after: int = 0, until: int | None = None, kinds: Collection[str] | None = None
    ) -> Iterator[Event]:
        """Yield the events in order from position `after` on, and only those before `until` and of these `kinds` if
        they are given.

        Every event is compared with its checksum, also one that is not yielded. Raises StoreError for damage or a gap.
        """
        with self._reading() as connection:
            length, head = self._end(connection, campaign)
        end = length if until is None else min(until, length)
        position = after
        previous, page = self._rows_from(campaign, after) if after < end else (head, [])
        while page:
            for row in page if until is None else page[: until - position]:
                if row.position != position:
                    raise self._missing_error(campaign, position)
                if kinds is None or row.kind in kinds:
                    yield self.event(campaign, row, previous)
                elif row.checksum_after(campaign, previous) != row.checksum:
                    raise self._changed_error(campaign, row)
                position += 1
                previous = row.checksum
                if position == length and previous != head:
                    raise StoreError(
                        f"the log of {campaign!r} in {self.name} does not end with the event that was written last: "
                        "it is damaged"
                    )
            page = self.rows(campaign, position) if len(page) >= PAGE and position != until else []
        if position < end:
            raise self._missing_error(campaign, position)

    def rows(self, campaign: str, position: int, limit: int = PAGE) -> list[Row]:
        """Return at most `limit` rows from `position` on, without checking them."""
        wanted = {"campaign": campaign, "position": position, "limit": limit}
        with self._reading() as connection:
            rows = list(map(Row._make, _run(connection, _ROWS, wanted).all()))
        for position in (row.position for row in rows if not isinstance(row.position, int)):
            self._check_whole("position", position)
        return rows

    def event(self, campaign: str, row: Row, previous: int) -> Event:
        """Return the event of a row. `previous` is the checksum of the previous event.

        Raises StoreError if the row was changed or cannot be decoded.
        """
        if row.checksum_after(campaign, previous) != row.checksum:
            raise self._changed_error(campaign, row)
        try:
            return event_of(row.kind, row.body)
        except ValueError as error:
            raise StoreError(f"{self._place_of(campaign, row)} cannot be read: another program wrote it") from error

    def event_at(self, campaign: str, position: int) -> Event | None:
        """Return the event at this position, or None. Raises StoreError if it is damaged."""
        previous, rows = self._rows_from(campaign, position, limit=1)
        return self.event(campaign, rows[0], previous) if rows and rows[0].position == position else None

    def checksum_before(self, campaign: str, position: int) -> int:
        """Return the checksum of the event before `position`; 0 at the beginning of the log."""
        return self._rows_from(campaign, position, limit=0)[0]

    def _rows_from(self, campaign: str, position: int, limit: int = PAGE) -> tuple[int, list[Row]]:
        """Return the checksum before `position`, and at most `limit` rows from there on."""
        rows = self.rows(campaign, max(0, position - 1), limit + 1)
        if position and rows and rows[0].position == position - 1:
            return rows[0].checksum, rows[1:]
        return 0, rows[:limit]

    def claim(
        self, campaign: str, holder: str, identity: str = "", seen: int | None = None, settings: str = ""
    ) -> "Writer":
        """Claim the campaign, and return its only writer.

        Args:
            campaign: the campaign.
            holder: a description of this process, shown to others.
            identity: this process, as `Identity.to_text` writes it.
            seen: the epoch that was found to be free; None: take over from any holder.
            settings: the campaign file of the next session, as JSON.

        Raises:
            HeldError: another process has claimed the campaign since epoch `seen`.
        """
        is_free = "" if seen is None else f" AND epoch = {int(seen)}"
        values = {"holder": holder, "identity": identity, "settings": settings, "now": time.time()}
        with self._writing() as connection:
            has_won = _run(connection, _CLAIM + is_free, {"campaign": campaign, **values}).rowcount == 1
            holding = self._holding(connection, campaign)
            if not has_won:
                raise HeldError(
                    f"campaign {campaign!r} has just been claimed by {holding.holder} (epoch {holding.epoch}): watch "
                    "it with `bbkb attach`"
                )
            return Writer(self, campaign, holding.epoch, self._end(connection, campaign)[0])

    def holding(self, campaign: str) -> Holding:
        """Return the current holder of the campaign."""
        with self._reading() as connection:
            return self._holding(connection, campaign)

    def claimed_settings(self, campaign: str) -> str:
        """Return the campaign file of the newest claim as JSON; empty if the claim has none."""
        query = "SELECT settings FROM bbkb_campaigns WHERE campaign = :campaign"
        with self._reading() as connection:
            return _run(connection, query, {"campaign": campaign}).scalar_one_or_none() or ""

    def ask_to_stop(self, campaign: str, epoch: int, stop: Stop) -> bool:
        """Store a stop request for the holder of this epoch, who reads it with the next heartbeat.

        Return False if the epoch no longer has a holder.
        """
        with self._writing() as connection:
            return _run(connection, _ASK, {"campaign": campaign, "epoch": epoch, "stop": stop}).rowcount == 1

    def beat(self, campaign: str, epoch: int) -> Stop:
        """Record a heartbeat of the holder of this epoch, and return the pending stop request.

        Raises FencedError if another process has taken over.
        """
        with self._writing() as connection:
            if _run(connection, _BEAT, {"campaign": campaign, "epoch": epoch, "now": time.time()}).rowcount != 1:
                raise self._fenced_error(connection, campaign, epoch)
            return self._holding(connection, campaign).stop

    def release(self, campaign: str, epoch: int) -> None:
        """Release the claim of this epoch. Do nothing if another process has taken over."""
        with self._writing() as connection:
            _run(connection, _RELEASE, {"campaign": campaign, "epoch": epoch, "now": time.time()})

    def save_snapshot(self, campaign: str, snapshot: Snapshot) -> None:
        """Replace the snapshot of the log. Losing a snapshot costs only time."""
        with self._writing() as connection:
            _run(connection, "DELETE FROM bbkb_snapshots WHERE campaign = :campaign", {"campaign": campaign})
            _run(connection, _SAVE, {"campaign": campaign, **asdict(snapshot)})

    def snapshot(self, campaign: str) -> Snapshot | None:
        """Return the snapshot if the log still contains its last event; else None."""
        with self._reading() as connection:
            record = _run(connection, _SAVED, {"campaign": campaign}).one_or_none()
        return None if record is None else Snapshot(*record)

    def check_pages(self) -> list[str]:
        """Return the findings of SQLite's own integrity check; empty for other databases."""
        if self._file is None:
            return []
        with self._reading() as connection:
            messages = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        return [str(line) for line in messages if line != "ok"]

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Open a transaction that is durable at its end."""
        self._check_there()
        with translate_errors(self._place), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _reading(self, may_be_empty: bool = False) -> Iterator[sa.Connection]:
        self._check_there()
        with translate_errors(self._place), self._engine.connect() as connection:
            if not self._has_tables and not self._check_format(connection) and not may_be_empty:
                raise StoreError(f"no campaign was ever stored there: the store {self.name} has no tables")
            yield connection

    def _check_there(self) -> None:
        if self._file is not None and not os.path.exists(self._file):
            raise StoreError(f"there is no database {self.name}: no campaign was ever stored there")

    def _check_format(self, connection: sa.Connection) -> bool:
        """Return whether there are tables. Raises StoreError if they have another format."""
        is_sqlite = connection.dialect.name == "sqlite"
        there = (
            "SELECT 1 FROM sqlite_master WHERE name = 'bbkb_format'"
            if is_sqlite
            else "SELECT to_regclass('bbkb_format')"
        )
        if _run(connection, there).scalar() is None:
            return False
        format_ = _run(connection, "SELECT max(format) FROM bbkb_format").scalar_one()
        if format_ != FORMAT:
            raise StoreError(
                f"the store {self.name} was written by another version: its format is {format_}, not {FORMAT}"
            )
        self._has_tables = True
        return True

    def _end(self, connection: sa.Connection, campaign: str) -> tuple[int, int]:
        """Return the number of events and the checksum of the last one."""
        row = _run(connection, _END, {"campaign": campaign}).one_or_none()
        if row is None:
            raise self._unknown_error(campaign)
        self._check_whole("length", row.length)
        return row.length, row.head

    def _holding(self, connection: sa.Connection, campaign: str) -> Holding:
        row = _run(connection, _HOLDING, {"campaign": campaign}).one_or_none()
        if row is None:
            raise self._unknown_error(campaign)
        return Holding(*row)

    def _check_whole(self, column: str, value: object) -> None:
        """Raise StoreError if `value` is no integer. A damaged SQLite file may contain any value."""
        if not isinstance(value, int):
            raise StoreError(
                f"the store {self.name} must have a whole number as {column}, got {value!r}: it is damaged, restore "
                "it from a copy"
            )

    def _unknown_error(self, campaign: str) -> RunError:
        return RunError(f"there is no campaign {campaign!r} in {self.name}")

    def _missing_error(self, campaign: str, position: int) -> StoreError:
        return StoreError(f"event {position} of {campaign!r} is missing in {self.name}: the log is damaged")

    def _changed_error(self, campaign: str, row: Row) -> StoreError:
        return StoreError(f"{self._place_of(campaign, row)} has been changed: its checksum differs, the log is damaged")

    def _place_of(self, campaign: str, row: Row) -> str:
        return f"event {row.position} ({row.kind}) of {campaign!r} in {self.name}"

    def _fenced_error(self, connection: sa.Connection, campaign: str, epoch: int) -> FencedError:
        row = _run(connection, _HOLDING, {"campaign": campaign}).one_or_none()
        if row is None:
            return FencedError(f"campaign {campaign!r} is no longer in {self.name}")
        return FencedError(
            f"{row.holder or 'another process'} has taken over campaign {campaign!r} (epoch {row.epoch}, since "
            f"{moment(row.since)}); this process held epoch {epoch} and writes nothing more"
        )


def _run(
    connection: sa.Connection, statement: str, values: Mapping[str, Any] | list[Mapping[str, Any]] | None = None
) -> "sa.CursorResult[*tuple[Any, ...]]":
    """Execute a statement with values for its `:names`, once or for each of several."""
    if connection.dialect.name != "sqlite":
        statement = re.sub(r":(\w+)", r"%(\1)s", statement)
    return connection.exec_driver_sql(statement, values)


def _insert(connection: sa.Connection, campaign: str, rows: Sequence[Row]) -> None:
    if rows:
        values: list[Mapping[str, Any]] = [{"campaign": campaign, **row._asdict()} for row in rows]
        _run(connection, _INSERT, values)


@dataclass(frozen=True, slots=True)
class Writer:
    """The right to append to a campaign's log until another process claims it."""

    store: EventStore
    campaign: str
    epoch: int  # the epoch of the claim
    length: int  # the length of the log at the time of the claim

    def append(self, events: Sequence[Event], position: int | None = None) -> None:
        """Append events in one transaction, as `EventStore.append` does.

        Raises FencedError if another process has taken over, and StoreError.
        """
        if events:
            self.store.append(self.campaign, self.epoch, events, position)

    def beat(self) -> Stop:
        """Record a heartbeat, and return the stop request. Raises as `append` does."""
        return self.store.beat(self.campaign, self.epoch)

    def release(self) -> None:
        """Release the claim, so that the next session can start at once. Raises StoreError."""
        self.store.release(self.campaign, self.epoch)
