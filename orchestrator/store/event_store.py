"""The store on SQLAlchemy Core: SQLite in the run's folder by default, PostgreSQL by URL. The
docstring of `store.store` has its contract. SQLite runs with a write-ahead log and
`synchronous=FULL`, PostgreSQL with its default synchronous commit.
"""

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import sqlalchemy as sa

from orchestrator import files
from orchestrator.campaign.events import Event
from orchestrator.errors import FencedError, HeldError, RunError, StoreError
from orchestrator.store.database import connect, file_of, safe_url, translate_errors
from orchestrator.store.migrations import NewerVersionError, bring_up_to_date, columns_of, tables_version
from orchestrator.store.notes import Note, insert_note, select_notes
from orchestrator.store.rows import Row, Snapshot, decode, encode
from orchestrator.store.store import PAGE, Extent, Holding, Stop
from orchestrator.store.tables import ADVANCE, CAMPAIGNS, END, EVENTS, HOLDERS, INSERT, LOCK, SNAPSHOTS
from orchestrator.wording import moment

_LEAST_ROW_BYTES = 32  # of an event in a file, a lower bound
# the columns that databases of every version have
_CAMPAIGN = sa.select(*(CAMPAIGNS.c[name] for name in ("campaign", "epoch", "holder", "since", "length")))


class EventStore:
    """A database of campaigns. `is_salvage`: read-only, for the readable part of a damaged one.

    Raises StoreError whenever the database cannot be reached, written or understood.
    """

    def __init__(self, url: str, is_salvage: bool = False) -> None:
        self.url, self._name = url, safe_url(url)  # `_name` for messages
        self._engine = connect(url, is_salvage)
        self._file = file_of(self._engine)
        self._is_current = False  # whether all columns were seen; a writer may add them during a read
        if self._file is not None and not self._file.exists():  # connecting would leave an empty file behind
            if not self._file.parent.is_dir():
                raise StoreError(f"the store {self._name} cannot be there: does the folder exist?")
            return
        with translate_errors(url), self._engine.connect() as connection:  # errors of the database appear here
            tables_version(connection)

    def create(self, campaign: str, first: Sequence[Event]) -> None:
        """Begin a new campaign's log with these events. Raises RunError if its name is taken."""
        events, head = encode(campaign, 0, 0, first, previous=0)
        row = {"campaign": campaign, "epoch": 0, "holder": "", "since": time.time(), "length": len(first), "head": head}
        self._make_file()
        with translate_errors(self.url):
            try:
                with self._engine.begin() as connection:
                    bring_up_to_date(connection)
                    connection.execute(CAMPAIGNS.insert(), row)
                    connection.execute(EVENTS.insert(), events)
            except sa.exc.IntegrityError as error:
                raise RunError(
                    f"campaign {campaign!r} is in {self._name} already: watch it with `bbkb attach` if another "
                    "process has just begun it, resume it, or give another name"
                ) from error

    def make_tables(self) -> None:
        """Make or update the tables. Only this needs the right to create tables."""
        self._make_file()
        with translate_errors(self.url), self._engine.begin() as connection:
            bring_up_to_date(connection)

    def claim(
        self, campaign: str, holder: str, identity: str = "", seen: int | None = None, settings: str = ""
    ) -> "Writer":
        """Become the campaign's only writer, from now on; `holder` names this process to the one
        that is fenced off.

        `seen`: the epoch that was found free. Raises HeldError when another process was faster;
        None: take it from any holder. `settings`: the campaign file of the session to come, as
        JSON; decided by this claim.
        """
        now, is_it = time.time(), CAMPAIGNS.c.campaign == campaign
        is_free = is_it if seen is None else is_it & (CAMPAIGNS.c.epoch == seen)
        claim = CAMPAIGNS.update().where(is_free).values(epoch=CAMPAIGNS.c.epoch + 1, holder=holder, since=now)
        with self._writing() as connection:
            has_won = connection.execute(claim).rowcount == 1  # an update first: it locks
            row = self._row(connection, campaign)
            if not has_won:
                raise HeldError(
                    f"campaign {campaign!r} has just been claimed by {row.holder} (epoch {row.epoch}): watch it with "
                    "`bbkb attach`"
                )
            bring_up_to_date(connection)  # a database of an older version lacks some
            connection.execute(HOLDERS.delete().where(HOLDERS.c.campaign == campaign))
            holding = Holding(row.epoch, holder, identity, now, now)
            columns = {name: getattr(holding, name) for name in Holding.__slots__}
            connection.execute(HOLDERS.insert(), {"campaign": campaign, "settings": settings, **columns})
        return Writer(self, campaign, epoch=row.epoch, length=row.length)

    def holding(self, campaign: str) -> Holding:
        """Return who holds the campaign now. Raises RunError when there is no such campaign."""
        with self._reading() as connection:
            row = self._row(connection, campaign)
            if not sa.inspect(connection).has_table(HOLDERS.name):
                return Holding(row.epoch)  # of an older version
            query = sa.select(*(HOLDERS.c[name] for name in Holding.__slots__)).where(HOLDERS.c.campaign == campaign)
            holder = connection.execute(query).one_or_none()
        return Holding(row.epoch) if holder is None else Holding(*holder)

    def claimed_settings(self, campaign: str) -> str:
        """Return the campaign file of the newest claim, as JSON; empty where none was given."""
        with self._reading() as connection:
            query = sa.select(HOLDERS.c.settings).where(HOLDERS.c.campaign == campaign)
            return connection.execute(query).scalar_one_or_none() or ""

    def ask_to_stop(self, campaign: str, epoch: int, stop: Stop) -> bool:
        """Write a request for the holder of this epoch, for its next beat. False: it is gone."""
        mine = (HOLDERS.c.campaign == campaign) & (HOLDERS.c.epoch == epoch) & (HOLDERS.c.holder != "")
        with self._writing() as connection:
            return connection.execute(HOLDERS.update().where(mine).values(stop=stop)).rowcount == 1

    def read(self, campaign: str, after: int = 0) -> Iterator[Event]:
        """Yield events in order from position `after` on. Raises StoreError at damage or a gap."""
        position, previous, least = after, self.checksum_before(campaign, after), 0
        with contextlib.suppress(RunError):  # the campaign's own row is lost: `verify` says so
            least = self.length(campaign)
        while page := self.rows(campaign, position):
            for row in page:
                if row.position != position:
                    raise StoreError(f"event {position} of {campaign!r} is missing in {self._name}: the log is damaged")
                yield self.event(campaign, row, previous)
                position, previous = position + 1, row.checksum
        if position < least:
            raise StoreError(f"event {position} of {campaign!r} is missing in {self._name}: the log is damaged")

    def checksum_before(self, campaign: str, position: int) -> int | None:
        """Return the checksum of the event before `position`; 0 at the beginning."""
        before = self.rows(campaign, position - 1, limit=1) if position else []
        return before[0].checksum if before and before[0].position == position - 1 else 0

    def rows(self, campaign: str, position: int, limit: int = PAGE) -> list[Row]:
        """Read at most `limit` rows from `position` on, unchecked."""
        with self._reading() as connection:
            query = self._rows_of(connection).where(EVENTS.c.campaign == campaign, EVENTS.c.position >= position)
            records = connection.execute(query.order_by(EVENTS.c.position).limit(limit)).all()
        for row in records:
            self._whole("position", row.position)
        return list(map(Row._make, records))

    def salvage(self, campaign: str) -> list[Row]:
        """Return a file's events before its first damage, unordered: its index may be damaged."""
        readable: list[Row] = []
        with contextlib.suppress(StoreError), self._reading() as connection:  # the damage is reported elsewhere
            computed = EVENTS.c.campaign.concat("")  # no index contains this column, so the table itself is read
            result = connection.execute(self._rows_of(connection).where(computed == campaign))
            while (row := result.fetchone()) is not None:  # one by one: a batch would lose those before the damage
                readable += [Row(*row)] if isinstance(row.position, int) else []
        return readable

    def event_at(self, campaign: str, position: int) -> Event | None:
        """Return the event at this position, or None. Raises StoreError when it is damaged."""
        rows = self.rows(campaign, position, limit=1)
        if not rows or rows[0].position != position:
            return None
        return self.event(campaign, rows[0], self.checksum_before(campaign, position))

    def newest(self, campaign: str, kind: str) -> Event | None:
        """Return the newest event of this kind, or None. Raises StoreError when it is damaged."""
        with self._reading() as connection:
            is_it = (EVENTS.c.campaign == campaign) & (EVENTS.c.kind == kind)
            position = connection.execute(sa.select(sa.func.max(EVENTS.c.position)).where(is_it)).scalar_one()
        return None if position is None else self.event_at(campaign, position)

    def _rows_of(self, connection: sa.Connection) -> sa.Select[Any]:
        names = set(Row._fields)
        if not self._is_current:
            present = columns_of(connection, EVENTS.name)
            self._is_current, names = names <= present, names & present
        return sa.select(*(EVENTS.c[name] if name in names else sa.null().label(name) for name in Row._fields))

    def event(self, campaign: str, row: Row, previous: int | None) -> Event:
        """Return the event of a row; `previous` is the checksum before it. Raises StoreError when
        the row was changed, or cannot be decoded."""
        if not row.is_intact(campaign, previous):
            raise StoreError(
                f"{self._place(campaign, row)} is not what was written there: its checksum differs, the "
                "log is damaged (`bbkb verify` lists all damage)"
            )
        try:
            return decode(row)
        except ValueError as error:
            reason = (
                str(error)
                if isinstance(error, NewerVersionError)
                else "cannot be read: it is damaged, or a newer version wrote it"
            )
            raise StoreError(f"{self._place(campaign, row)} {reason}") from error

    def _place(self, campaign: str, row: Row) -> str:
        return f"event {row.position} ({row.kind}) of {campaign!r} in {self._name}"

    def extent(self, campaign: str) -> Extent:
        """Return the extent of the log. Raises RunError when there is no such campaign."""
        is_it = EVENTS.c.campaign == campaign
        count = sa.select(sa.func.count()).select_from(EVENTS).where(is_it).scalar_subquery()
        last = sa.select(sa.func.max(EVENTS.c.position)).where(is_it).scalar_subquery()
        with self._reading() as connection:
            is_current = "head" in columns_of(connection, CAMPAIGNS.name)
            head = CAMPAIGNS.c.head if is_current else sa.null()
            query = sa.select(CAMPAIGNS.c.length, count, sa.func.coalesce(last, -1), head)
            # one statement: no writer can intervene
            row = connection.execute(query.where(CAMPAIGNS.c.campaign == campaign)).one_or_none()
        if row is None:
            raise self._unknown_error(campaign)
        length, events, last, head = row
        return Extent(
            self._whole("length", length), events, self._whole("position", last), head and self._whole("head", head)
        )

    def has(self, campaign: str) -> bool:
        """Return whether there is such a campaign; False where none was ever stored."""
        query = sa.select(CAMPAIGNS.c.campaign).where(CAMPAIGNS.c.campaign == campaign)
        if self._file is not None and not self._file.exists():
            return False
        with self._reading() as connection:
            if not sa.inspect(connection).has_table(CAMPAIGNS.name):
                return False
            return connection.execute(query).one_or_none() is not None

    def names(self) -> list[str]:
        """Return the campaigns of this database, by name."""
        with self._reading() as connection:
            if not sa.inspect(connection).has_table(CAMPAIGNS.name):
                return []
            return list(connection.execute(sa.select(CAMPAIGNS.c.campaign).order_by(CAMPAIGNS.c.campaign)).scalars())

    def length(self, campaign: str) -> int:
        """Return the number of events by the campaign's row. Raises RunError without one."""
        with self._reading() as connection:
            return self._whole("length", self._row(connection, campaign).length)

    def damages(self) -> list[str]:
        """Return what SQLite's own check of the file finds; empty for other databases."""
        if self._engine.dialect.name != "sqlite":
            return []
        with self._reading() as connection:
            messages = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        return [str(line) for line in messages if line != "ok"]

    def capacity(self) -> int:
        """Return how many events the store can hold at most: those that its file, and its
        write-ahead log, have room for. A damaged length may exceed it."""
        if self._file is None:
            return sys.maxsize
        parts = (self._file, self._file.with_name(f"{self._file.name}-wal"))
        return sum(part.stat().st_size for part in parts if part.exists()) // _LEAST_ROW_BYTES

    def append(self, campaign: str, epoch: int, events: Sequence[Event], position: int | None = None) -> None:
        """Append under a claim; durable on return. Raises FencedError when the claim is no longer
        the newest.

        `position`: where the first of them belongs. Those that are there already are left out, so a
        writer that was interrupted and does not know whether it has written can write again. None:
        at the end.
        """
        mine = {"of": campaign, "under": epoch}
        with self._writing() as connection:
            # an update first: it locks the row until the end of the transaction
            if connection.execute(LOCK, mine).rowcount != 1:
                raise self._fenced_error(connection, campaign, epoch)
            length, head = connection.execute(END, mine).one()
            there = 0 if position is None else min(length - position, len(events))
            if there < 0:
                raise StoreError(
                    f"campaign {campaign!r} has {length} events, none can be written at position {position}"
                )
            if there == len(events):
                return
            previous = self._last_checksum(connection, campaign, length) if head is None else head
            rows, head = encode(campaign, epoch, length, events[there:], previous)
            connection.execute(INSERT, rows)
            connection.execute(ADVANCE, {**mine, "to": length + len(rows), "last": head})

    def _last_checksum(self, connection: sa.Connection, campaign: str, length: int) -> int:
        """Read the last checksum of a log that an older version wrote; 0 where it had none."""
        is_last = (EVENTS.c.campaign == campaign) & (EVENTS.c.position == length - 1)
        return connection.execute(sa.select(EVENTS.c.checksum).where(is_last)).scalar_one_or_none() or 0

    def save_snapshot(self, campaign: str, snapshot: Snapshot) -> None:
        """Replace the snapshot, a copy of the log's contents: losing it costs only time."""
        with self._writing() as connection:
            connection.execute(SNAPSHOTS.delete().where(SNAPSHOTS.c.campaign == campaign))
            connection.execute(SNAPSHOTS.insert(), {"campaign": campaign, **snapshot.columns()})

    def snapshot(self, campaign: str) -> Snapshot | None:
        """Return the last one, if the log still holds the event that it ends with; else None."""
        names = Snapshot.__slots__
        with self._reading() as connection:
            if not sa.inspect(connection).has_table(SNAPSHOTS.name):
                return None
            query = sa.select(*(SNAPSHOTS.c[name] for name in names)).where(SNAPSHOTS.c.campaign == campaign)
            row = connection.execute(query).one_or_none()
        snapshot = None if row is None else Snapshot(*row)
        if snapshot is None or not isinstance(snapshot.position, int):  # SQLite allows any value in any column
            return None
        return snapshot if self.checksum_before(campaign, snapshot.position) == snapshot.head else None

    def add_note(self, campaign: str, note: Note) -> None:
        """Store a note on the campaign or on a trial. Any process may; it is on the disk on return."""
        is_it = CAMPAIGNS.c.campaign == campaign
        with self._writing() as connection:
            if connection.execute(CAMPAIGNS.update().where(is_it).values(epoch=CAMPAIGNS.c.epoch)).rowcount != 1:
                raise self._unknown_error(campaign)
            bring_up_to_date(connection)  # the update locked: two notes do not get the same number
            insert_note(connection, campaign, note)

    def notes(self, campaign: str) -> tuple[Note, ...]:
        """Return the notes on the campaign and its trials, in the order written."""
        with self._reading() as connection:
            return select_notes(connection, campaign)

    def beat(self, campaign: str, epoch: int) -> Stop:
        """Return the heartbeat of the holder of this epoch; returns the request to it. Raises
        FencedError when another process has taken over."""
        mine = (HOLDERS.c.campaign == campaign) & (HOLDERS.c.epoch == epoch)
        beaten = HOLDERS.update().where(mine).values(beats=HOLDERS.c.beats + 1, last_beat=time.time())
        with self._writing() as connection:
            if connection.execute(beaten).rowcount != 1:
                raise self._fenced_error(connection, campaign, epoch)
            return cast(Stop, connection.execute(sa.select(HOLDERS.c.stop).where(mine)).scalar_one())

    def release(self, campaign: str, epoch: int) -> None:
        """Release the claim of this epoch; no effect when another process has taken over."""
        mine = (HOLDERS.c.campaign == campaign) & (HOLDERS.c.epoch == epoch)
        with self._writing() as connection:
            connection.execute(
                HOLDERS.update().where(mine).values(holder="", identity="", stop="", last_beat=time.time())
            )

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """A transaction that is durable at the end."""
        self._check_there()
        with translate_errors(self.url), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        self._check_there()
        with translate_errors(self.url), self._engine.connect() as connection:
            yield connection

    def _whole(self, column: str, value: object) -> int:
        """Return an integer: SQLite returns any value that a damaged or edited file has there."""
        if not isinstance(value, int):
            raise StoreError(
                f"the store {self._name} must have a whole number as {column}, got {value!r}: it is damaged, "
                "restore it from a copy"
            )
        return value

    def _make_file(self) -> None:
        """Make a SQLite file that only its owner may read; SQLite makes its other files alike."""
        if self._file is not None:
            try:
                files.make_private(self._file)
            except OSError as error:
                raise StoreError(
                    f"the store {self._name} cannot be made: {error.strerror} (does the folder exist, and may it "
                    "be written?)"
                ) from error

    def _check_there(self) -> None:
        if self._file is not None and not self._file.exists():
            raise StoreError(f"there is no database {self._name}: no campaign was ever stored there")

    def _row(self, connection: sa.Connection, campaign: str) -> sa.Row[Any]:
        row = connection.execute(_CAMPAIGN.where(CAMPAIGNS.c.campaign == campaign)).one_or_none()
        if row is None:
            raise self._unknown_error(campaign)
        return row

    def _unknown_error(self, campaign: str) -> RunError:
        return RunError(f"there is no campaign {campaign!r} in {self._name}")

    def _fenced_error(self, connection: sa.Connection, campaign: str, epoch: int) -> FencedError:
        row = connection.execute(_CAMPAIGN.where(CAMPAIGNS.c.campaign == campaign)).one_or_none()
        if row is None:
            return FencedError(f"campaign {campaign!r} is no longer in {self._name}")
        return FencedError(
            f"{row.holder} has taken over campaign {campaign!r} (epoch {row.epoch}, since {moment(row.since)}); this "
            f"process held epoch {epoch} and writes nothing more"
        )


@dataclass(frozen=True, slots=True)
class Writer:
    """The right to append to one campaign, until another process claims it."""

    store: EventStore  # where its log is
    campaign: str  # its name there
    epoch: int  # the number of the claim
    length: int  # how many events the log had when it was claimed

    def append(self, events: Sequence[Event], position: int | None = None) -> None:
        """Write these events in one transaction; they are durable on return. Raises FencedError,
        StoreError.

        `position`: see `EventStore.append`.
        """
        if events:
            self.store.append(self.campaign, self.epoch, events, position)

    def beat(self) -> Stop:
        """Beat, and return the request to this session. Raises FencedError, StoreError."""
        return self.store.beat(self.campaign, self.epoch)

    def release(self) -> None:
        """Release the claim, so the next session need not check on this one. Raises StoreError."""
        self.store.release(self.campaign, self.epoch)
