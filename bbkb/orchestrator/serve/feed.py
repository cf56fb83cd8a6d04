"""The history of one campaign, which is updated as its log grows and shared by all viewers.

`catch_up` reads and folds new events. Only one thread at a time calls it. A cursor is a position in
the log, so it remains valid after a restart of the server.

The list entry of an ended campaign is read from the end of its log and its newest snapshot. Its history is
folded when a user opens it or its log grows. Unchanged files are not read again.
"""

import threading
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

from bbkb.orchestrator.campaign.events import CampaignCreated, Event
from bbkb.orchestrator.errors import RunError, reason_of
from bbkb.orchestrator.history.fold import History, advance, begin
from bbkb.orchestrator.history.overview import Overview, overview_of, read_overview
from bbkb.orchestrator.serve.sources import Source
from bbkb.orchestrator.store.connect import Place
from bbkb.orchestrator.store.lease import Watch
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.store.store import EventStore, Holding, Stop
from bbkb.workers.checkpoints import Checkpoints, checkpoints_in

T = TypeVar("T")

EVENTS_A_TURN = 5_000  # the number of events to fold before it is another campaign's turn
SETTLED_SECONDS = 2.0  # the age from which on a file's modification time reveals every later change
RETRY_SECONDS = 3.0  # from an error to the next reading
COUNT_SECONDS = 10.0  # the shortest time between two counts of checkpoints
COUNT_FACTOR = 50.0  # the shortest time until the next count, in multiples of the last one


_Stamp = tuple[tuple[int, int, int], ...]


def _stamp(place: Place) -> _Stamp:
    """Return a value that changes with the files of a SQLite store.

    Empty if another change might not alter it: for other databases, and shortly after a change.
    """
    if not isinstance(place, Path):
        return ()
    stamps = []
    for path in (place, place.with_name(f"{place.name}-wal")):
        try:
            status = path.stat()
        except FileNotFoundError:
            stamps.append((0, 0, 0))
            continue
        if time.time() - status.st_mtime < SETTLED_SECONDS:
            return ()
        stamps.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


class _CheckpointCount:
    """The newest count of checkpoints."""

    def __init__(self) -> None:
        self.counted = Checkpoints(0, 0)
        self._next_count = 0.0

    def update(self, trials: Path) -> None:
        """Count again if the last count is old relative to its duration."""
        began = time.monotonic()
        if began >= self._next_count:
            self.counted = checkpoints_in(trials)
            took = time.monotonic() - began
            self._next_count = began + max(COUNT_SECONDS, COUNT_FACTOR * took)


@dataclass(slots=True)
class _Reading:
    """The state that decides how a campaign is read next."""

    is_wanted: bool = False  # whether a user has opened the campaign
    listed: Overview | None = None  # from the end of the log, until the log is folded
    next_try: float = 0.0  # after an error, on the monotonic clock
    stamp: _Stamp = ()  # of the files at the last reading; empty if they may change unnoticed
    watch: Watch = field(default_factory=Watch)


class Feed:
    """The history of a campaign. `problem` is the error of the last reading, or empty."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.history: History | None = None
        self.holding = Holding(0)
        self.is_held: bool | None = None  # whether a process runs it; None if unknown
        self.length = 0  # the length of the log at the last reading
        self.problem = ""
        self._reading = _Reading()
        self._checkpoints = _CheckpointCount()
        self._arrivals = array("q")  # the position in the log after each result
        self._store: EventStore | None = None
        self.lock = threading.Lock()  # held while an event is folded

    @property
    def position(self) -> int:
        """The number of folded events."""
        return 0 if self.history is None else self.history.position

    @property
    def is_complete(self) -> bool:
        """Whether all events of the last reading are folded."""
        return self.history is not None and self.position >= self.length

    def want(self) -> None:
        """Keep the campaign's history up to date from now on."""
        self._reading.is_wanted = True

    @property
    def is_listed(self) -> bool:
        """Whether the end of the log has been read, but not the history."""
        return self._reading.listed is not None

    @property
    def overview(self) -> Overview | None:
        """The campaign's line in the list; None if it is not known yet."""
        history = self.history
        if self.is_listed or history is None:
            return self._reading.listed
        return overview_of(history.created, history.campaign, history.settings.plain)

    def results_after(self, position: int) -> int:
        """Return the number of results in the first `position` events."""
        return bisect_right(self._arrivals, position)

    def catch_up(self) -> bool:
        """Fold at most `EVENTS_A_TURN` new events. Return whether there may be more.

        Every error is stored in `problem`, even one that only a crafted log causes, so that the
        other campaigns are still displayed.
        """
        if not self.source.place:
            self.problem = self.source.problem
            return False
        if self.problem and time.monotonic() < self._reading.next_try:
            return False
        try:
            is_behind = self._read()
            if self.history is not None and self.source.trials is not None:
                self._checkpoints.update(self.source.trials)
            self.problem = ""
        except Exception as error:
            self._reading.next_try = time.monotonic() + RETRY_SECONDS
            self.problem = reason_of(error)
            return False
        return is_behind

    def _read(self) -> bool:
        """Read new events or the end of the log. Return whether there may be more."""
        stamp = _stamp(self.source.place)
        is_folded = self._reading.is_wanted or self.history is not None
        is_known = self.is_complete if is_folded else self.is_listed
        if stamp and stamp == self._reading.stamp and is_known and not self.problem:
            # a dead process leaves no trace
            self.is_held = self._reading.watch.is_held(self.holding)
            return False
        self._reading.stamp = stamp
        if not is_folded and self._glance():
            return False
        is_behind = self._fold(self._open())
        if self.is_complete:
            self._reading.listed = None
        return is_behind

    def _glance(self) -> bool:
        """Read the end of the log. Return False if all of it must be read."""
        store = self._open()
        holding = store.holding(self.source.campaign)
        if holding.holder:
            return False
        folder = Path(self.source.campaign) if self.source.trials is None else self.source.trials.parent
        self._reading.listed = read_overview(Run(folder, self.source.place, self.source.campaign), store)
        self.holding = holding
        self.is_held = False
        self.length = store.length(self.source.campaign)
        return True

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints in the folders of trials, counted from time to time."""
        return self._checkpoints.counted

    def read(self, make: Callable[[History], T]) -> T | None:
        """Return `make(history)` under the lock; None before the first event."""
        with self.lock:
            return None if self.history is None else make(self.history)

    def ask_to_stop(self, stop: Stop) -> str:
        """Ask the process that runs the campaign to drain or to stop, and return a message.

        Raises RunError if no process runs it, and StoreError if the store cannot be used.
        """
        store = self._open()
        holding = store.holding(self.source.campaign)
        if not holding.holder or not store.ask_to_stop(self.source.campaign, holding.epoch, stop):
            raise RunError(f"{self.source.campaign} cannot be stopped: no process runs it")
        return f"asked {holding.holder} to stop {'at once' if stop == 'now' else 'after its running evaluations'}"

    def close(self) -> None:
        """Close the connection."""
        if self._store is not None:
            self._store.close()

    def _open(self) -> EventStore:
        if self._store is None:
            self._store = EventStore(self.source.place)
        return self._store

    def _fold(self, store: EventStore) -> bool:
        """Read first and fold afterwards, so that a slow database does not block the lock."""
        holding = store.holding(self.source.campaign)
        length = store.length(self.source.campaign)
        events = list(islice(store.read(self.source.campaign, after=self.position), EVENTS_A_TURN))
        with self.lock:
            self.holding = holding
            self.is_held = self._reading.watch.is_held(holding)
            self.length = max(self.length, length)
            for folded, event in enumerate(events, 1):
                if self.history is not None:
                    self._advance(self.history, event)
                elif isinstance(event, CampaignCreated):
                    self.history = begin(event)
                else:
                    raise RunError(f"{self.source.campaign} has no log of a campaign in its store")
                if folded % 500 == 0:
                    time.sleep(0)  # let the thread that answers requests run
        return self.position < self.length

    def _advance(self, history: History, event: Event) -> None:
        results = len(history.succeeded)
        advance(history, event)
        if len(history.succeeded) > results:
            self._arrivals.append(history.position)
