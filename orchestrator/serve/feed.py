"""One campaign's log, folded as it grows and shared by all its viewers.

`catch_up` reads and folds new events; it is called from one thread at a time. A cursor is a
position of the log, so it holds across a restart of the server.
"""

import threading
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable
from itertools import islice
from typing import TypeVar

from orchestrator.campaign.events import CampaignCreated, Event
from orchestrator.campaign.failures import FailureGroups
from orchestrator.errors import RunError
from orchestrator.history.fold import History, advance, begin
from orchestrator.serve.sources import Source
from orchestrator.store.event_store import EventStore
from orchestrator.store.lease import Watch
from orchestrator.store.limited import reason_of
from orchestrator.store.store import Holding, Stop
from workers.checkpoints import Checkpoints, checkpoints_in

T = TypeVar("T")

EVENTS_A_TURN = 5_000  # folded before the other campaigns' logs are read
COUNT_SECONDS = 10.0  # between two counts of checkpoints, at least
COUNT_FACTOR = 50.0  # times the duration of a count, until the next one


class Feed:
    """A campaign's history so far. `problem` says why it cannot be read, empty when it can."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.history: History | None = None
        self.holding = Holding(0)
        self.is_held: bool | None = None  # None: not known yet
        self.length = 0  # of the log, when it was last read
        self.problem = ""
        self.failures = FailureGroups()
        self.checkpoints = Checkpoints(0, 0)  # what trials keep in their folders, counted now and then
        self._next_count = 0.0
        self._arrivals = array("q")  # the log's position after each result
        self._store: EventStore | None = None
        self._watch = Watch()
        self._lock = threading.Lock()

    @property
    def position(self) -> int:
        """Events folded."""
        return 0 if self.history is None else self.history.position

    @property
    def is_complete(self) -> bool:
        """Whether the fold has reached the end of the log that was seen last."""
        return self.history is not None and self.position >= self.length

    def results_after(self, position: int) -> int:
        """Return how many results are in the first `position` events."""
        return bisect_right(self._arrivals, position)

    def catch_up(self) -> bool:
        """Fold new events, at most `EVENTS_A_TURN`; returns whether there may be more. Errors
        become `problem`, also those that only a crafted log causes: the other campaigns are
        shown."""
        if not self.source.url:
            self.problem = self.source.problem
            return False
        try:
            is_behind = self._fold(self._open())
            self._count_checkpoints()
            self.problem = ""
        except Exception as error:
            self.problem, is_behind = reason_of(error), False
        return is_behind

    def _count_checkpoints(self) -> None:
        """Count them again when the last count is old, compared with the time that it took."""
        began = time.monotonic()
        if self.source.trials is not None and began >= self._next_count:
            self.checkpoints = checkpoints_in(self.source.trials)
            took = time.monotonic() - began
            self._next_count = began + max(COUNT_SECONDS, COUNT_FACTOR * took)

    def read(self, make: Callable[[History], T]) -> T | None:
        """Return `make(history)` while nothing is folded; None before there is one."""
        with self._lock:
            return None if self.history is None else make(self.history)

    def while_locked(self, make: Callable[[], T]) -> T:
        """Return `make()` while nothing is folded."""
        with self._lock:
            return make()

    def ask_to_stop(self, stop: Stop) -> str:
        """Ask the process that runs the campaign to drain or to stop; returns a description of the
        request. Raises RunError, StoreError."""
        store = self._open()
        holding = store.holding(self.source.name)
        if not holding.holder or not store.ask_to_stop(self.source.name, holding.epoch, stop):
            raise RunError(f"only a campaign that runs can be stopped, and no process runs {self.source.name}")
        return f"asked {holding.holder} to stop {'at once' if stop == 'now' else 'after its running evaluations'}"

    def close(self) -> None:
        """Close the connection."""
        if self._store is not None:
            self._store.close()

    def _open(self) -> EventStore:
        if self._store is None:
            self._store = EventStore(self.source.url)
        return self._store

    def _fold(self, store: EventStore) -> bool:
        """Read first, and fold then: a database that does not answer must not hold the lock."""
        holding = store.holding(self.source.name)
        length = store.length(self.source.name)
        events = list(islice(store.read(self.source.name, after=self.position), EVENTS_A_TURN))
        with self._lock:
            self.holding = holding
            self.is_held = self._watch.is_held(holding)
            self.length = max(self.length, length)
            for folded, event in enumerate(events, 1):
                if self.history is not None:
                    self._advance(self.history, event)
                elif isinstance(event, CampaignCreated):
                    self.history = begin(event)
                else:
                    raise RunError(f"{self.source.name} has no log of a campaign in its store")
                if folded % 500 == 0:
                    time.sleep(0)  # so that the thread that answers requests can run
        return self.position < self.length

    def _advance(self, history: History, event: Event) -> None:
        attempts, results = len(history.attempts), len(history.succeeded)
        advance(history, event)
        if len(history.succeeded) > results:
            self._arrivals.append(history.position)
        if len(history.attempts) > attempts and history.attempts[-1].failure:
            self.failures.add(history.attempts[-1])
