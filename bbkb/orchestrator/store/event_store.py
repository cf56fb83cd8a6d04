"""The store on SQLAlchemy Core.

It is SQLite in the run's folder by default, or PostgreSQL by URL. `store.store` documents its
contract. SQLite uses a write-ahead log and `synchronous=FULL`, PostgreSQL its default synchronous
commit.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import cast

import sqlalchemy as sa

from bbkb.orchestrator.campaign.events import Event
from bbkb.orchestrator.errors import HeldError
from bbkb.orchestrator.store.event_log import EventLog
from bbkb.orchestrator.store.migrations import bring_up_to_date
from bbkb.orchestrator.store.notes import Note
from bbkb.orchestrator.store.rows import Snapshot
from bbkb.orchestrator.store.store import Holding, Stop
from bbkb.orchestrator.store.tables import CAMPAIGNS, HOLDERS, NOTES, SNAPSHOTS


class EventStore(EventLog):
    """A database of campaigns: events, holders, snapshots and notes."""

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
        now = time.time()
        is_it = CAMPAIGNS.c.campaign == campaign
        is_free = is_it if seen is None else is_it & (CAMPAIGNS.c.epoch == seen)
        claim = CAMPAIGNS.update().where(is_free).values(epoch=CAMPAIGNS.c.epoch + 1, holder=holder, since=now)
        with self._writing() as connection:
            has_won = connection.execute(claim).rowcount == 1  # the update locks the row
            row = self._row(connection, campaign)
            if not has_won:
                raise HeldError(
                    f"campaign {campaign!r} has just been claimed by {row.holder} (epoch {row.epoch}): watch it with "
                    "`bbkb attach`"
                )
            bring_up_to_date(connection)  # of a database of an older version
            connection.execute(HOLDERS.delete().where(HOLDERS.c.campaign == campaign))
            holding = asdict(Holding(row.epoch, holder, identity, now, now))
            connection.execute(HOLDERS.insert(), {"campaign": campaign, "settings": settings, **holding})
        return Writer(self, campaign, epoch=row.epoch, length=row.length)

    def holding(self, campaign: str) -> Holding:
        """Return the current holder of the campaign. Raises RunError if the campaign does not exist."""
        with self._reading() as connection:
            row = self._row(connection, campaign)
            if not sa.inspect(connection).has_table(HOLDERS.name):
                return Holding(row.epoch)  # a database of an older version
            query = sa.select(*(HOLDERS.c[name] for name in Holding.__slots__)).where(HOLDERS.c.campaign == campaign)
            return Holding(*(connection.execute(query).one_or_none() or (row.epoch,)))

    def claimed_settings(self, campaign: str) -> str:
        """Return the campaign file of the newest claim as JSON; empty if the claim has none."""
        with self._reading() as connection:
            query = sa.select(HOLDERS.c.settings).where(HOLDERS.c.campaign == campaign)
            return connection.execute(query).scalar_one_or_none() or ""

    def ask_to_stop(self, campaign: str, epoch: int, stop: Stop) -> bool:
        """Store a stop request for the holder of this epoch, who reads it with the next heartbeat.

        Return False if the epoch no longer has a holder.
        """
        mine = (HOLDERS.c.campaign == campaign) & (HOLDERS.c.epoch == epoch) & (HOLDERS.c.holder != "")
        with self._writing() as connection:
            return connection.execute(HOLDERS.update().where(mine).values(stop=stop)).rowcount == 1

    def beat(self, campaign: str, epoch: int) -> Stop:
        """Record a heartbeat of the holder of this epoch, and return the pending stop request.

        Raises FencedError if another process has taken over.
        """
        mine = (HOLDERS.c.campaign == campaign) & (HOLDERS.c.epoch == epoch)
        beaten = HOLDERS.update().where(mine).values(beats=HOLDERS.c.beats + 1, last_beat=time.time())
        with self._writing() as connection:
            if connection.execute(beaten).rowcount != 1:
                raise self._fenced_error(connection, campaign, epoch)
            return cast(Stop, connection.execute(sa.select(HOLDERS.c.stop).where(mine)).scalar_one())

    def release(self, campaign: str, epoch: int) -> None:
        """Release the claim of this epoch. Do nothing if another process has taken over."""
        mine = (HOLDERS.c.campaign == campaign) & (HOLDERS.c.epoch == epoch)
        with self._writing() as connection:
            connection.execute(
                HOLDERS.update().where(mine).values(holder="", identity="", stop="", last_beat=time.time())
            )

    def save_snapshot(self, campaign: str, snapshot: Snapshot) -> None:
        """Replace the snapshot of the log. Losing a snapshot costs only time."""
        with self._writing() as connection:
            connection.execute(SNAPSHOTS.delete().where(SNAPSHOTS.c.campaign == campaign))
            connection.execute(SNAPSHOTS.insert(), {"campaign": campaign, **asdict(snapshot)})

    def snapshot(self, campaign: str) -> Snapshot | None:
        """Return the snapshot if the log still contains its last event; else None."""
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
        """Store a note on the campaign or on a trial, without a claim. It is durable on return."""
        is_it = CAMPAIGNS.c.campaign == campaign
        with self._writing() as connection:
            if connection.execute(CAMPAIGNS.update().where(is_it).values(epoch=CAMPAIGNS.c.epoch)).rowcount != 1:
                raise self._unknown_error(campaign)
            bring_up_to_date(connection)  # the update has locked the row, so `number` is unique
            count = sa.select(sa.func.count()).select_from(NOTES).where(NOTES.c.campaign == campaign)
            row = {**asdict(note), "number": connection.execute(count).scalar_one(), "tags": json.dumps(note.tags)}
            connection.execute(NOTES.insert(), {"campaign": campaign, **row})

    def notes(self, campaign: str) -> tuple[Note, ...]:
        """Return the notes on the campaign and its trials in the order of writing."""
        with self._reading() as connection:
            if not sa.inspect(connection).has_table(NOTES.name):
                return ()
            columns = (NOTES.c.time, NOTES.c.text, NOTES.c.tags, NOTES.c.trial)
            query = sa.select(*columns).where(NOTES.c.campaign == campaign)
            rows = connection.execute(query.order_by(NOTES.c.number)).all()
        return tuple(
            Note(time=at, text=text, tags=tuple(json.loads(tags)), trial=trial) for at, text, tags, trial in rows
        )


@dataclass(frozen=True, slots=True)
class Writer:
    """The right to append to a campaign's log until another process claims it."""

    store: EventStore
    campaign: str
    epoch: int  # the epoch of the claim
    length: int  # the length of the log at the time of the claim

    def append(self, events: Sequence[Event], position: int | None = None) -> None:
        """Append events in one transaction, as `EventLog.append` does.

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
