"""The contract of `event_store.EventStore`, and the values that it returns.

A store holds the append-only event log of a campaign and controls who may write it. It fulfills
this contract (`tests/orchestrator/store/test_event_store.py` checks it on every available
database):

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

from dataclasses import dataclass
from typing import Literal

PAGE = 1000  # events in one query

Stop = Literal["", "drain", "now"]  # the request to the holder: none, drain, or stop at once


@dataclass(frozen=True, slots=True)
class Holding:
    """The right to write a campaign's log, and its holder."""

    epoch: int  # a description of the process; empty if there is none
    holder: str = ""  # the process, for display; empty if there is none
    identity: str = ""  # the process as text of `Identity.to_text`
    since: float = 0.0  # the time of the claim in seconds, on the holder's clock
    last_beat: float = 0.0  # the last heartbeat in seconds, on the holder's clock
    beats: int = 0  # the number of heartbeats
    stop: Stop = ""  # a request to stop, if any


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a log."""

    length: int  # the number of events in the campaign's row
    events: int  # the number of existing events
    last: int  # the position of the last event; −1 if there is none
    head: int | None = None  # its checksum; None in logs of older versions
