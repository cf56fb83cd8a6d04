"""The append-only event log of a campaign, and the right to write it: what `event_store.EventStore`
guarantees, and the values that it gives.

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
"""

from dataclasses import dataclass
from typing import Literal

PAGE = 1000  # events that are read at a time

Stop = Literal["", "drain", "now"]  # what the holder was asked to do: nothing, end cleanly, end at once


@dataclass(frozen=True, slots=True)
class Holding:
    """The right to write a campaign's log, and who has it."""

    epoch: int  # the number of the session that may write
    holder: str = ""  # the process for display; empty when there is none
    identity: str = ""  # the process as `Identity.to_text` gives it
    since: float = 0.0  # when it took the campaign, in seconds on its own clock
    last_beat: float = 0.0  # its last heartbeat, in seconds on its own clock
    beats: int = 0  # the number of its heartbeats
    stop: Stop = ""  # a request to stop, if any


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a log reaches."""

    length: int  # the number of events by the campaign's row
    events: int  # the number of events that there are
    last: int  # the position of the last one; −1 without any
    head: int | None = None  # the checksum that the last one must have; None where an older version wrote it
