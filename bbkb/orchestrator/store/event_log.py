"""The events of campaigns in a database."""

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from bbkb.orchestrator.campaign.events import Event
from bbkb.orchestrator.errors import RunError, StoreError
from bbkb.orchestrator.store.campaign_database import CampaignDatabase
from bbkb.orchestrator.store.database import translate_errors
from bbkb.orchestrator.store.migrations import bring_up_to_date, columns_of
from bbkb.orchestrator.store.rows import Row, decode, encode
from bbkb.orchestrator.store.store import PAGE, Extent
from bbkb.orchestrator.store.tables import ADVANCE, CAMPAIGNS, END, EVENTS, INSERT, LOCK
from bbkb.orchestrator.store.versions import NewerVersionError

_LEAST_ROW_BYTES = 32  # a lower bound for an event in a file


class EventLog(CampaignDatabase):
    """Creates, appends to and reads the logs of campaigns."""

    def create(self, campaign: str, first: Sequence[Event]) -> None:
        """Create the log of a new campaign with these events. Raises RunError if it exists."""
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
        mine = {"of": campaign, "under": epoch}
        with self._writing() as connection:
            # the update locks the row until the end of the transaction
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
        """Return the last checksum of a log of an older version; 0 if it has no checksums."""
        is_last = (EVENTS.c.campaign == campaign) & (EVENTS.c.position == length - 1)
        return connection.execute(sa.select(EVENTS.c.checksum).where(is_last)).scalar_one_or_none() or 0

    def read(self, campaign: str, after: int = 0) -> Iterator[Event]:
        """Yield events in order from position `after` on. Raises StoreError for damage or a gap."""
        position = after
        previous = self.checksum_before(campaign, after)
        least = 0
        with contextlib.suppress(RunError):  # `verify` reports the loss of the campaign's row
            least = self.length(campaign)
        while page := self.rows(campaign, position):
            for row in page:
                if row.position != position:
                    raise StoreError(f"event {position} of {campaign!r} is missing in {self._name}: the log is damaged")
                yield self.event(campaign, row, previous)
                position += 1
                previous = row.checksum
        if position < least:
            raise StoreError(f"event {position} of {campaign!r} is missing in {self._name}: the log is damaged")

    def checksum_before(self, campaign: str, position: int) -> int | None:
        """Return the checksum of the event before `position`; 0 at the beginning of the log."""
        before = self.rows(campaign, position - 1, limit=1) if position else []
        return before[0].checksum if before and before[0].position == position - 1 else 0

    def rows(self, campaign: str, position: int, limit: int = PAGE) -> list[Row]:
        """Return at most `limit` rows from `position` on, without checking them."""
        with self._reading() as connection:
            query = self._rows_of(connection).where(EVENTS.c.campaign == campaign, EVENTS.c.position >= position)
            records = connection.execute(query.order_by(EVENTS.c.position).limit(limit)).all()
        for row in records:
            self._whole("position", row.position)
        return list(map(Row._make, records))

    def event_at(self, campaign: str, position: int) -> Event | None:
        """Return the event at this position, or None. Raises StoreError if it is damaged."""
        rows = self.rows(campaign, position, limit=1)
        if not rows or rows[0].position != position:
            return None
        return self.event(campaign, rows[0], self.checksum_before(campaign, position))

    def newest(self, campaign: str, kind: str) -> Event | None:
        """Return the newest event of this kind, or None. Raises StoreError if it is damaged."""
        with self._reading() as connection:
            is_it = (EVENTS.c.campaign == campaign) & (EVENTS.c.kind == kind)
            position = connection.execute(sa.select(sa.func.max(EVENTS.c.position)).where(is_it)).scalar_one()
        return None if position is None else self.event_at(campaign, position)

    def event(self, campaign: str, row: Row, previous: int | None) -> Event:
        """Return the event of a row. `previous` is the checksum of the previous event.

        Raises StoreError if the row was changed or cannot be decoded.
        """
        if not row.is_intact(campaign, previous):
            raise StoreError(
                f"{self._place(campaign, row)} has been changed: its checksum differs, the "
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

    def _rows_of(self, connection: sa.Connection) -> sa.Select[Any]:
        names = set(Row._fields)
        if not self._is_current:
            present = columns_of(connection, EVENTS.name)
            self._is_current = names <= present
            names &= present
        return sa.select(*(EVENTS.c[name] if name in names else sa.null().label(name) for name in Row._fields))

    def _place(self, campaign: str, row: Row) -> str:
        return f"event {row.position} ({row.kind}) of {campaign!r} in {self._name}"

    def extent(self, campaign: str) -> Extent:
        """Return the extent of the log. Raises RunError if the campaign does not exist."""
        is_it = EVENTS.c.campaign == campaign
        count = sa.select(sa.func.count()).select_from(EVENTS).where(is_it).scalar_subquery()
        last = sa.select(sa.func.max(EVENTS.c.position)).where(is_it).scalar_subquery()
        with self._reading() as connection:
            is_current = "head" in columns_of(connection, CAMPAIGNS.name)
            head = CAMPAIGNS.c.head if is_current else sa.null()
            query = sa.select(CAMPAIGNS.c.length, count, sa.func.coalesce(last, -1), head)
            # a single statement, so that no writer can intervene
            row = connection.execute(query.where(CAMPAIGNS.c.campaign == campaign)).one_or_none()
        if row is None:
            raise self._unknown_error(campaign)
        length, events, last, head = row
        return Extent(
            self._whole("length", length), events, self._whole("position", last), head and self._whole("head", head)
        )

    def has(self, campaign: str) -> bool:
        """Return whether the campaign exists; False if the database does not exist."""
        query = sa.select(CAMPAIGNS.c.campaign).where(CAMPAIGNS.c.campaign == campaign)
        if self._file is not None and not self._file.exists():
            return False
        with self._reading() as connection:
            if not sa.inspect(connection).has_table(CAMPAIGNS.name):
                return False
            return connection.execute(query).one_or_none() is not None

    def names(self) -> list[str]:
        """Return the names of the campaigns in this database, sorted."""
        with self._reading() as connection:
            if not sa.inspect(connection).has_table(CAMPAIGNS.name):
                return []
            return list(connection.execute(sa.select(CAMPAIGNS.c.campaign).order_by(CAMPAIGNS.c.campaign)).scalars())

    def length(self, campaign: str) -> int:
        """Return the number of events in the campaign's row. Raises RunError if it has no row."""
        with self._reading() as connection:
            return self._whole("length", self._row(connection, campaign).length)

    def salvage(self, campaign: str) -> list[Row]:
        """Return a file's events before its first damage, unordered and without using the index."""
        readable: list[Row] = []
        with contextlib.suppress(StoreError), self._reading() as connection:  # the damage is reported by `damages`
            computed = EVENTS.c.campaign.concat("")  # not in an index, so SQLite reads the table
            result = connection.execute(self._rows_of(connection).where(computed == campaign))
            while (row := result.fetchone()) is not None:  # a batch would lose events before it
                readable += [Row(*row)] if isinstance(row.position, int) else []
        return readable

    def damages(self) -> list[str]:
        """Return the findings of SQLite's own integrity check; empty for other databases."""
        if self._engine.dialect.name != "sqlite":
            return []
        with self._reading() as connection:
            messages = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        return [str(line) for line in messages if line != "ok"]

    def capacity(self) -> int:
        """Return an upper bound for the number of events, from the size of the file and its
        write-ahead log. A damaged length may exceed it."""
        if self._file is None:
            return sys.maxsize
        parts = (self._file, self._file.with_name(f"{self._file.name}-wal"))
        return sum(part.stat().st_size for part in parts if part.exists()) // _LEAST_ROW_BYTES
