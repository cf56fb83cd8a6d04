"""Records the driver's events. They are applied in memory immediately and written in one
transaction by `commit`. The state in memory contains all events, written or not. The effects of an
event wait for `commit`.
"""

import logging
import time
from collections.abc import Callable, Sequence
from enum import StrEnum

from bbkb.orchestrator.campaign.events import AttemptEnded, Event
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.engine.engine import Engine
from bbkb.orchestrator.errors import StoreError
from bbkb.orchestrator.session.event_lines import log_event
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.store import Writer

_LOGGER = logging.getLogger("bbkb.session")

STORE_PATIENCE_SECONDS = 300.0  # the longest wait for an unreachable store, e.g. a server that restarts
_STORE_RETRY_SECONDS = 1.0


class Span(StrEnum):
    """The operations of a session whose durations are measured."""

    REFIT = "refit"
    STORE_COMMIT = "store_commit"


class Recorder:
    """Records the events of one session. Only the thread that runs the session may use it.

    `engine` is that after all events, and `campaign` its state. `heard` is called with every event
    before it is written, `written` after a commit that ended attempts, `measured` with the duration of
    every commit and refit (s), and `waiting` with the reason whenever a commit has to wait for the
    store.
    """

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        is_urgent: Callable[[], bool],
        waiting: Callable[[str], None],
    ) -> None:
        self.engine = engine
        self.heard: Callable[[Event], None] = lambda _event: None
        self.written: Callable[[], None] = lambda: None
        self.measured: Callable[[Span, float], None] = lambda _span, _seconds: None
        self._writer = writer
        self._is_urgent = is_urgent
        self._waiting = waiting
        self._snapshot = writer.length  # events in the log at the last snapshot of the state
        # position of the first event, and the events
        self._unwritten: tuple[int, list[Event]] = (writer.length, [])

    @property
    def campaign(self) -> CampaignState:
        """The state after all events."""
        return self.engine.state

    def record(self, event: Event) -> None:
        """Apply the event, and keep it for the next commit."""
        self.engine.take(event, self._unwritten[1])
        log_event(event)
        self.heard(event)

    def commit(self) -> list[tuple[int, int]]:
        """Write all unwritten events. Return the attempts (trial, attempt) that they end.

        Raises FencedError if another process has taken over the campaign, and StoreError if the
        store remains unreachable.
        """
        # one assignment changes position and events, so an interrupt causes no second write
        position, events = self._unwritten
        if not events:
            return []
        began = time.perf_counter()
        self._write(events, position)
        self.measured(Span.STORE_COMMIT, time.perf_counter() - began)
        self._unwritten = (position + len(events), [])
        if self._unwritten[0] - self._snapshot >= snapshots.SNAPSHOT_EVENTS:
            self.save_snapshot()
        ended = [(event.trial, event.attempt) for event in events if isinstance(event, AttemptEnded)]
        if ended:
            self.written()
        return ended

    def save_snapshot(self) -> None:
        """Store a copy of the state beside the log. An error is logged and does not end the session."""
        self._snapshot = self._unwritten[0]
        try:
            snapshots.save(self._writer, self._snapshot, self.campaign)
        except StoreError as error:
            _LOGGER.warning("the snapshot was not written, so reading the log will take longer: %s", error)

    def _write(self, events: Sequence[Event], position: int) -> None:
        """Append to the log. Retries while the store is unreachable; events stay in memory."""
        deadline = time.monotonic() + STORE_PATIENCE_SECONDS
        while True:
            try:
                return self._writer.append(events, position)
            except StoreError as error:
                if not error.is_transient or time.monotonic() > deadline or self._is_urgent():
                    raise
                self._waiting(f"waiting for the store: {error}")
                _LOGGER.warning("store unreachable, retrying: %s", error)
                time.sleep(_STORE_RETRY_SECONDS)
