"""The interface of stores: the append-only event log of a campaign, and the right to write it.

Contract (`tests/orchestrator/store/test_event_store.py` runs it on every database at hand):

* `append` writes its events in one transaction and returns when they are durable. Either all of
  them are stored or none.
* Writing needs a claim. A claim raises the campaign's epoch; every append checks it in its own
  transaction, so a process that holds an older epoch cannot write any event (`FencedError`),
  however late it continues. The store does not decide whether a campaign may be claimed:
  `orchestrator/store/lease.py` decides whether its holder is alive, and claims with the epoch that
  it has read, so that one of two processes wins.
* A claim decides the settings of its session in the same transaction: of several processes that
  want to continue a campaign, the settings of the one that wins are the campaign's, and nothing of
  the others is written.
* Events come back in the order they were appended, gap-free. Each carries a checksum over itself
  and the checksum before it, so an event that is changed, removed, inserted or moved is found.
  Reading needs no claim, never blocks a writer and makes no file.
* Several campaigns can share a store.

Modules that are given a store take it as `Store`; `event_store.EventStore` is the one there is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from orchestrator.campaign.events import Event
from orchestrator.store.notes import Note
from orchestrator.store.rows import Row, Snapshot

PAGE = 1000  # events that are read at a time

Stop = Literal["", "drain", "now"]  # what the holder was asked to do: nothing, end cleanly, end at once


@dataclass(frozen=True, slots=True)
class Holding:
    """The right to write a campaign's log, and who has it.

    Attributes:
        epoch: the number of the session that may write.
        holder: the process for display; empty when there is none.
        identity: the process as `Identity.written` gives it.
        since: when it took the campaign, in seconds on its own clock.
        last_beat: its last heartbeat, in seconds on its own clock.
        beats: the number of its heartbeats.
        stop: a request to stop, if any.
    """

    epoch: int
    holder: str = ""
    identity: str = ""
    since: float = 0.0
    last_beat: float = 0.0
    beats: int = 0
    stop: Stop = ""


@dataclass(frozen=True, slots=True)
class Extent:
    """The length that the campaign's row states, the number of events there are, and the position
    of the last (-1: none). `head`: the checksum that the last one must have; None where an older
    version wrote it."""

    length: int
    events: int
    last: int
    head: int | None = None


class Store(Protocol):
    """A database of campaigns.

    Every method raises StoreError when the database cannot be reached, written or understood, and
    RunError when it is given a campaign that is not there.
    """

    @property
    def url(self) -> str:
        """The address of the database, as it was given."""
        ...

    def create(self, campaign: str, first: Sequence[Event]) -> None:
        """Begin the log of a new campaign with these events. Raises RunError if there is one of
        this name."""
        ...

    def make_tables(self) -> None:
        """Make the tables, or bring those of an older version up to date."""
        ...

    def claim(
        self, campaign: str, holder: str, identity: str = "", seen: int | None = None, settings: str = ""
    ) -> "Writer":
        """Become the campaign's only writer, from now on; `holder` names this process to the one
        that is fenced off.

        `seen`: the epoch that was found free. Raises HeldError when another process was faster;
        None: take it from any holder. `settings`: the campaign file of the session to come, as
        JSON; decided by this claim.
        """
        ...

    def holding(self, campaign: str) -> Holding:
        """Return who holds the campaign now."""
        ...

    def claimed_settings(self, campaign: str) -> str:
        """Return the campaign file of the newest claim, as JSON; empty where none was given."""
        ...

    def ask_to_stop(self, campaign: str, epoch: int, stop: Stop) -> bool:
        """Write a request for the holder of this epoch, which reads it with its next beat. False:
        that holder is gone."""
        ...

    def append(self, campaign: str, epoch: int, events: Sequence[Event], position: int | None = None) -> None:
        """Append under a claim; durable on return. Raises FencedError when the claim is no longer
        the newest.

        `position`: where the first of them belongs. Those that are there already are left out, so a
        writer that was interrupted and does not know whether it has written can write again. None:
        at the end.
        """
        ...

    def add_note(self, campaign: str, note: Note) -> None:
        """Keep a note on the campaign or one of its trials, whichever process holds it; durable on
        return."""

    def notes(self, campaign: str) -> tuple[Note, ...]:
        """Return the notes on the campaign and its trials, in the order written; none where an
        older version made the tables."""

    def beat(self, campaign: str, epoch: int) -> Stop:
        """Return the heartbeat of the holder of this epoch; returns the request to it. Raises
        FencedError when another process has taken over."""
        ...

    def release(self, campaign: str, epoch: int) -> None:
        """Release the claim of this epoch; no effect when another process has taken over."""
        ...

    def names(self) -> list[str]:
        """Return the campaigns of this database, by name."""
        ...

    def has(self, campaign: str) -> bool:
        """Return whether there is a campaign of this name; False also where no campaign was ever
        stored."""
        ...

    def length(self, campaign: str) -> int:
        """Return the number of events by the campaign's row."""
        ...

    def read(self, campaign: str, after: int = 0) -> Iterator[Event]:
        """Return the campaign's events from position `after` on, in order. Raises StoreError at a
        damaged or missing one."""
        ...

    def event_at(self, campaign: str, position: int) -> Event | None:
        """Return the event at this position; None when there is none. Raises StoreError when it is
        damaged."""
        ...

    def newest(self, campaign: str, kind: str) -> Event | None:
        """Return the newest event of this kind; None when there is none. Raises StoreError when it
        is damaged."""
        ...

    def save_snapshot(self, campaign: str, snapshot: Snapshot) -> None:
        """Replace the snapshot. It is a copy of the log's contents, so losing it costs time
        only."""
        ...

    def snapshot(self, campaign: str) -> Snapshot | None:
        """Return the last one, if the log still holds the event that it ends with; None where there
        is none."""
        ...

    def extent(self, campaign: str) -> Extent:
        """Return the extent of the log."""
        ...

    def rows(self, campaign: str, position: int, limit: int = PAGE) -> list[Row]:
        """Read at most `limit` rows from `position` on, unchecked."""
        ...

    def event(self, campaign: str, row: Row, previous: int | None) -> Event:
        """Return the event of a row; `previous` is the checksum before it. Raises StoreError when
        the row was changed, or cannot be decoded."""
        ...

    def checksum_before(self, campaign: str, position: int) -> int | None:
        """Return what the event at `position` follows: the checksum of the one before it, 0 at the
        beginning."""
        ...

    def salvage(self, campaign: str) -> list[Row]:
        """Return the events before the first damage, in no order, for a file whose index is
        damaged."""
        ...

    def capacity(self) -> int:
        """Return how many events the store can hold at most, whatever a damaged length says."""
        ...

    def damages(self) -> list[str]:
        """Return the findings of the database's own check."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Writer:
    """The right to append to one campaign, until another process claims it. `length`: of the log
    then."""

    store: Store
    campaign: str
    epoch: int
    length: int

    def append(self, events: Sequence[Event], position: int | None = None) -> None:
        """Write these events in one transaction; they are durable on return. Raises FencedError,
        StoreError.

        `position`: see `Store.append`.
        """
        if events:
            self.store.append(self.campaign, self.epoch, events, position)

    def beat(self) -> Stop:
        """Return a heartbeat; returns the request to this session. Raises FencedError,
        StoreError."""
        return self.store.beat(self.campaign, self.epoch)

    def release(self) -> None:
        """Release the claim, so that the next session need not check whether this one lives. Raises
        StoreError."""
        self.store.release(self.campaign, self.epoch)
