"""The append-only event log, on SQLAlchemy Core: SQLite in the run's folder by default, PostgreSQL by URL.

Contract (`tests/orchestrator/store/test_event_store.py` runs it on every database at hand):

* `append` writes its events in one transaction and returns when they are durable: SQLite runs with a write-ahead log
  and `synchronous=FULL`, PostgreSQL with its default synchronous commit. Either all of them are there or none.
* Writing needs a claim. A claim raises the campaign's epoch; every append checks it in its own transaction, so whoever
  holds an older epoch cannot write a single event more (`FencedError`), however late it wakes up. Whether a campaign
  may be claimed is no question of the store: `orchestrator/store/lease.py` knows who is alive, and claims with the
  epoch that it has seen, so that of two who take over one wins.
* Events come back in the order they were appended, gap-free, each with the checksum it was written with. Reading needs
  no claim, never blocks a writer and makes no file.
* Several campaigns can share a database.
"""

import contextlib
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import sqlalchemy as sa

from orchestrator.campaign.events import Event, from_json, to_json
from orchestrator.errors import FencedError, HeldError, RunError, StoreError
from orchestrator.store.database import (
    CAMPAIGNS,
    EVENTS,
    HOLDERS,
    connect,
    file_of,
    has_checksums,
    make_tables,
    shown,
    translated,
)
from orchestrator.wording import moment

_PAGE = 1000  # events a reader takes at a time

Stop = Literal["", "drain", "now"]  # what somebody asked the holder to do: nothing, end cleanly, end at once


@dataclass(frozen=True, slots=True)
class Holding:
    """Who runs a campaign. `holder` is for people, empty: nobody; `since` and `last_beat` are the holder's clock."""

    epoch: int
    holder: str = ""
    identity: str = ""
    since: float = 0.0
    last_beat: float = 0.0
    beats: int = 0
    stop: Stop = ""


@dataclass(frozen=True, slots=True)
class Row:
    """An event as it lies in the database. `checksum` is None when a version that had none wrote it."""

    position: int
    epoch: int
    kind: str
    body: str
    checksum: int | None = None

    def is_intact(self, campaign: str) -> bool:
        """Whether it is what was written, as far as that can be told."""
        return self.checksum in (None, _checksum(campaign, self.position, self.epoch, self.kind, self.body))


@dataclass(frozen=True, slots=True)
class Extent:
    """How long a log says it is, how many events there are, and the position of the last (-1: none)."""

    length: int
    events: int
    last: int


class EventStore:
    """A database of campaigns. `is_salvage`: for reading only, what can be read of a damaged one.

    Raises StoreError whenever the database cannot be reached, written or understood.
    """

    def __init__(self, url: str, is_salvage: bool = False) -> None:
        self.url = url
        self._engine = connect(url, is_salvage)
        self._file = file_of(self._engine)
        self._has_checksums = False  # until seen: a writer may add them while we read
        if self._file is not None and not self._file.exists():  # connecting would leave an empty file behind
            if not self._file.parent.is_dir():
                raise StoreError(f"the store {shown(url)} cannot be there: does the folder exist?")
            return
        with translated(url):
            self._engine.connect().close()  # what is wrong with it shows now

    def create(self, campaign: str, first: Sequence[Event]) -> None:
        """Begin the log of a new campaign with these events. Raises RunError if there is one of this name."""
        row = {"campaign": campaign, "epoch": 0, "holder": "", "since": time.time(), "length": len(first)}
        with translated(self.url):
            try:
                with self._engine.begin() as connection:
                    make_tables(connection)
                    connection.execute(CAMPAIGNS.insert(), row)
                    connection.execute(EVENTS.insert(), _rows(campaign, 0, 0, first))
            except sa.exc.IntegrityError as error:
                raise RunError(
                    f"campaign {campaign!r} is in {shown(self.url)} already: resume it, or give another name"
                ) from error

    def claim(self, campaign: str, holder: str, identity: str = "", seen: int | None = None) -> "Writer":
        """Become the campaign's only writer, from now on; `holder` names this process for whoever is fenced off.

        `seen`: the epoch that was found free. Raises HeldError when somebody was faster; None: take it from anybody.
        """
        now, is_it = time.time(), CAMPAIGNS.c.campaign == campaign
        is_free = is_it if seen is None else is_it & (CAMPAIGNS.c.epoch == seen)
        taken = CAMPAIGNS.update().where(is_free).values(epoch=CAMPAIGNS.c.epoch + 1, holder=holder, since=now)
        with self._writing() as connection:
            has_won = connection.execute(taken).rowcount == 1  # an update first: it locks
            row = connection.execute(CAMPAIGNS.select().where(is_it)).one_or_none()
            if row is None:
                raise self._unknown(campaign)
            if not has_won:
                raise HeldError(
                    f"campaign {campaign!r} has just been taken up by {row.holder} (epoch {row.epoch}): watch it with "
                    "`bbkb attach`"
                )
            make_tables(connection)  # a database of an older version lacks some
            connection.execute(HOLDERS.delete().where(HOLDERS.c.campaign == campaign))
            held = Holding(row.epoch, holder, identity, now, now)
            connection.execute(HOLDERS.insert(), {"campaign": campaign, **_columns(held)})
        return Writer(self, campaign, epoch=row.epoch, length=row.length)

    def holding(self, campaign: str) -> Holding:
        """Who holds the campaign now. Raises RunError when there is no such campaign."""
        with self._reading() as connection:
            row = connection.execute(CAMPAIGNS.select().where(CAMPAIGNS.c.campaign == campaign)).one_or_none()
            if row is None:
                raise self._unknown(campaign)
            if not sa.inspect(connection).has_table(HOLDERS.name):
                return Holding(row.epoch)  # of an older version
            query = sa.select(*(HOLDERS.c[name] for name in Holding.__slots__)).where(HOLDERS.c.campaign == campaign)
            held = connection.execute(query).one_or_none()
        return Holding(row.epoch) if held is None else Holding(*held)

    def ask_to_stop(self, campaign: str, epoch: int, stop: Stop) -> bool:
        """Leave a request for the holder of this epoch, which finds it with its next beat. False: it is gone."""
        mine = (HOLDERS.c.campaign == campaign) & (HOLDERS.c.epoch == epoch) & (HOLDERS.c.holder != "")
        with self._writing() as connection:
            return connection.execute(HOLDERS.update().where(mine).values(stop=stop)).rowcount == 1

    def read(self, campaign: str, after: int = 0) -> Iterator[Event]:
        """The campaign's events from position `after` on, in order. Raises StoreError at a damaged or missing one."""
        position = after
        while page := self.rows(campaign, position):
            for row in page:
                if row.position != position:
                    raise StoreError(
                        f"event {position} of {campaign!r} is missing in {shown(self.url)}: the log is damaged"
                    )
                yield self.event(campaign, row)
                position += 1

    def rows(self, campaign: str, position: int, limit: int = _PAGE) -> list[Row]:
        """At most `limit` events as they lie there, from `position` on; unchecked."""
        with self._reading() as connection:
            query = self._rows_of(connection).where(EVENTS.c.campaign == campaign, EVENTS.c.position >= position)
            return [Row(*row) for row in connection.execute(query.order_by(EVENTS.c.position).limit(limit))]

    def salvage(self, campaign: str) -> list[Row]:
        """The events that lie before the first damage, in no order, where their index cannot be read any more."""
        found: list[Row] = []
        with contextlib.suppress(StoreError), self._reading() as connection:  # that there is damage is known
            computed = EVENTS.c.campaign.concat("")  # no index holds it: the table itself is read
            result = connection.execute(self._rows_of(connection).where(computed == campaign))
            while (row := result.fetchone()) is not None:  # one by one, or those before the damage were lost with it
                found.append(Row(*row))
        return found

    def _rows_of(self, connection: sa.Connection) -> sa.Select[Any]:
        self._has_checksums = self._has_checksums or has_checksums(connection)
        names = [name for name in Row.__slots__ if name != "checksum" or self._has_checksums]
        return sa.select(*(EVENTS.c[name] for name in names))

    def event(self, campaign: str, row: Row) -> Event:
        """What the row says. Raises StoreError when it is not what was written, or makes no sense."""
        if not row.is_intact(campaign):
            raise StoreError(
                f"event {row.position} ({row.kind}) of {campaign!r} in {shown(self.url)} is not what was written: its "
                "checksum differs, the log is damaged (`bbkb verify` tells what else is)"
            )
        try:
            return from_json(row.body)
        except ValueError as error:
            raise StoreError(
                f"event {row.position} ({row.kind}) of {campaign!r} in {shown(self.url)} cannot be read: it is "
                f"damaged, or a newer version wrote it"
            ) from error

    def extent(self, campaign: str) -> Extent:
        """How much there is of the log. Raises RunError when there is no such campaign."""
        is_it = EVENTS.c.campaign == campaign
        count = sa.select(sa.func.count()).select_from(EVENTS).where(is_it).scalar_subquery()
        last = sa.select(sa.func.max(EVENTS.c.position)).where(is_it).scalar_subquery()
        query = sa.select(CAMPAIGNS.c.length, count, sa.func.coalesce(last, -1))
        with self._reading() as connection:  # one statement: no writer comes between
            row = connection.execute(query.where(CAMPAIGNS.c.campaign == campaign)).one_or_none()
        if row is None:
            raise self._unknown(campaign)
        return Extent(*row)

    def has(self, campaign: str) -> bool:
        """Whether there is a campaign of this name; False also where no campaign was ever stored."""
        query = sa.select(CAMPAIGNS.c.campaign).where(CAMPAIGNS.c.campaign == campaign)
        if self._file is not None and not self._file.exists():
            return False
        with self._reading() as connection:
            if not sa.inspect(connection).has_table(CAMPAIGNS.name):
                return False
            return connection.execute(query).one_or_none() is not None

    def length(self, campaign: str) -> int:
        """How many events the log says it has. Raises RunError when there is no such campaign."""
        with self._reading() as connection:
            query = sa.select(CAMPAIGNS.c.length).where(CAMPAIGNS.c.campaign == campaign)
            found: int | None = connection.execute(query).scalar_one_or_none()
        if found is None:
            raise self._unknown(campaign)
        return found

    def damages(self) -> list[str]:
        """What SQLite's own check of the whole file finds; nothing for other databases, which check their pages."""
        if self._engine.dialect.name != "sqlite":
            return []
        with self._reading() as connection:
            found = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        return [str(line) for line in found if line != "ok"]

    def append(self, campaign: str, epoch: int, events: Sequence[Event], position: int | None = None) -> None:
        """Append under a claim; durable on return. Raises FencedError when the claim is no longer the newest.

        `position`: where the first of them belongs. Those that are there already are left out, so a writer that was
        interrupted and does not know whether it has written can write again. None: at the end.
        """
        mine = (CAMPAIGNS.c.campaign == campaign) & (CAMPAIGNS.c.epoch == epoch)
        # an update first: it locks the row until the end of the transaction
        longer = CAMPAIGNS.update().where(mine).values(length=CAMPAIGNS.c.length + len(events))
        with self._writing() as connection:
            if connection.execute(longer).rowcount != 1:
                raise self._fenced(connection, campaign, epoch)
            length = connection.execute(sa.select(CAMPAIGNS.c.length).where(mine)).scalar_one() - len(events)
            there = 0 if position is None else min(length - position, len(events))
            if there < 0:
                raise StoreError(
                    f"campaign {campaign!r} has {length} events, none can be written at position {position}"
                )
            if there:
                connection.execute(CAMPAIGNS.update().where(mine).values(length=length + len(events) - there))
            if rows := _rows(campaign, epoch, length, events[there:]):
                connection.execute(EVENTS.insert(), rows)

    def beat(self, campaign: str, epoch: int) -> Stop:
        """Show that the holder of this epoch lives; what it was asked to do. Raises FencedError when it is no more."""
        mine = (HOLDERS.c.campaign == campaign) & (HOLDERS.c.epoch == epoch)
        beaten = HOLDERS.update().where(mine).values(beats=HOLDERS.c.beats + 1, last_beat=time.time())
        with self._writing() as connection:
            if connection.execute(beaten).rowcount != 1:
                raise self._fenced(connection, campaign, epoch)
            return cast(Stop, connection.execute(sa.select(HOLDERS.c.stop).where(mine)).scalar_one())

    def release(self, campaign: str, epoch: int) -> None:
        """The holder of this epoch lets go; nothing happens when it holds the campaign no more."""
        mine = (HOLDERS.c.campaign == campaign) & (HOLDERS.c.epoch == epoch)
        with self._writing() as connection:
            connection.execute(
                HOLDERS.update().where(mine).values(holder="", identity="", stop="", last_beat=time.time())
            )

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """A transaction that is durable at the end."""
        self._check_there()
        with translated(self.url), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        self._check_there()
        with translated(self.url), self._engine.connect() as connection:
            yield connection

    def _check_there(self) -> None:
        if self._file is not None and not self._file.exists():
            raise StoreError(f"there is no database {shown(self.url)}: no campaign was ever stored there")

    def _unknown(self, campaign: str) -> RunError:
        return RunError(f"there is no campaign {campaign!r} in {shown(self.url)}")

    def _fenced(self, connection: sa.Connection, campaign: str, epoch: int) -> FencedError:
        row = connection.execute(CAMPAIGNS.select().where(CAMPAIGNS.c.campaign == campaign)).one_or_none()
        if row is None:
            return FencedError(f"campaign {campaign!r} is no longer in {shown(self.url)}")
        return FencedError(
            f"{row.holder} has taken campaign {campaign!r} over (epoch {row.epoch}, since {moment(row.since)}); this "
            f"process held epoch {epoch} and writes nothing more"
        )


@dataclass(frozen=True, slots=True)
class Writer:
    """The right to append to one campaign, until somebody claims it anew. `length`: of the log when it was claimed."""

    store: EventStore
    campaign: str
    epoch: int
    length: int

    def append(self, events: Sequence[Event], position: int | None = None) -> None:
        """Write these events in one transaction; they are durable on return. Raises FencedError, StoreError.

        `position`: see `EventStore.append`.
        """
        if events:
            self.store.append(self.campaign, self.epoch, events, position)

    def beat(self) -> Stop:
        """A sign of life; what somebody asked this session to do. Raises FencedError, StoreError."""
        return self.store.beat(self.campaign, self.epoch)

    def release(self) -> None:
        """Let go, so that the next session need not ask whether this one lives. Raises StoreError."""
        self.store.release(self.campaign, self.epoch)


def _rows(campaign: str, epoch: int, position: int, events: Sequence[Event]) -> list[dict[str, Any]]:
    bodies = ((index, event.kind, to_json(event)) for index, event in enumerate(events, start=position))
    return [
        {
            "campaign": campaign,
            "position": index,
            "epoch": epoch,
            "kind": kind,
            "body": body,
            "checksum": _checksum(campaign, index, epoch, kind, body),
        }
        for index, kind, body in bodies
    ]


def _checksum(campaign: str, position: int, epoch: int, kind: str, body: str) -> int:
    """CRC-32 over everything an event's row says, its place included: a row moved elsewhere is damage too."""
    return zlib.crc32(f"{campaign}\n{position}\n{epoch}\n{kind}\n{body}".encode())


def _columns(holding: Holding) -> dict[str, Any]:
    return {name: getattr(holding, name) for name in Holding.__slots__}
