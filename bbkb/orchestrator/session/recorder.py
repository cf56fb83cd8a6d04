"""Records the driver's events, and writes their lines to the operator's log. Events are applied in memory
immediately and written in one transaction by `commit`. The state in memory contains all events, written or
not. The effects of an event wait for `commit`.
"""

import logging
import time
from collections.abc import Callable
from enum import StrEnum

from bbkb.orchestrator.campaign import events
from bbkb.orchestrator.campaign.events import AttemptEnded, Event
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import warnings
from bbkb.orchestrator.campaign.stops import stop_words
from bbkb.orchestrator.engine.engine import Engine
from bbkb.orchestrator.errors import StoreError
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.store import Writer
from bbkb.orchestrator.wording import duration, noun_and_numbers, plural

_LOGGER = logging.getLogger("bbkb.session")
_ENDS = {  # the reason for the end of a batch, in words for an operator
    "limit": "as many as were requested",
    "batch size": "a full batch",
    "drift budget": "further ones wait for results",
    "warm start": "first points",
    "one pull at a time": "one at a time",
}
_CHECK_SECONDS = 30.0  # between two checks for warnings, on the executor's clock
_CONTINUED = {"finish": "to complete the best ones", "promising": "the strategy chose them"}


def log_event(event: events.Event) -> None:
    """Write the line of an event, if the event concerns an operator."""
    match event:
        case events.TrialsDispatched():
            for trial, attempt in event.attempts:
                _log(logging.DEBUG, "dispatched", trial, attempt)
        case events.TrialSucceeded() | events.TrialStopped() | events.TrialFailed():
            took = (
                f"after {duration(max(0.0, event.finished - event.started))} on {event.worker or 'an unknown worker'}"
            )
            attempt_ended = event.trial, event.attempt
            if isinstance(event, events.TrialSucceeded):
                _log(logging.INFO, f"succeeded {took}: {event.value:.6g}", *attempt_ended)
                if event.remark:
                    _log(logging.WARNING, event.remark, *attempt_ended)
            elif isinstance(event, events.TrialStopped):
                word, why = stop_words(event.cause)
                _log(logging.INFO, f"{word} {took}, at step {event.step}{why}", *attempt_ended)
            else:
                then = "the trial has ended" if event.is_final else "it will be retried"
                _log(logging.WARNING, f"failed ({event.failure}) {took}, {then}: {event.message}", *attempt_ended)
        case events.SessionOpened():
            adopted = f", {len(event.adopted)} running evaluations adopted" * bool(event.adopted)
            _log(
                logging.INFO,
                f"session {event.epoch} opened: {event.executor}, {plural(event.slots, 'worker')}{adopted}",
            )
        case events.SessionClosed():
            level = logging.ERROR if event.outcome == "failed" else logging.INFO
            _log(level, f"session closed, {event.outcome}: {event.reason}")
        case events.ExistingTaken():
            _log(logging.INFO, f"known results: {event}")
        case events.BatchChosen():
            chosen = f"chose {plural(len(event.picks), 'trial')} in {duration(event.seconds)}"
            origins = [(pick.trial, *pick.starts_from) for pick in event.picks if pick.starts_from is not None]
            copies = "".join(f"; trial {trial} starts from trial {of} at step {step}" for trial, of, step in origins)
            why = _ENDS.get(event.reason, event.reason)
            _log(logging.INFO, f"{chosen} after {plural(event.round, 'refit')}, {why}{copies}")
        case events.ModelRefreshed():
            points = f", {plural(event.dictionary_size, 'inducing point')}" if event.dictionary_size else ""
            learned = f"{plural(len(event.trials), 'result')}{points}"
            _log(logging.INFO, f"refit {event.round} in {duration(event.seconds)}: {learned}")
        case events.CandidatesGrown():
            text = f"appended {event.size} candidates, retired {len(event.retired)}, in {duration(event.seconds)}"
            _log(logging.INFO, text)
        case events.TrialsContinued():
            trials = noun_and_numbers("trial", list(event.trials))
            _log(logging.INFO, f"continued {trials}: {_CONTINUED[event.reason]}")
        case events.CheckpointsRemoved():
            _log(logging.INFO, f"removed the checkpoints of stopped {noun_and_numbers('trial', event.trials)}")
        case events.StopRequested():
            _log(logging.INFO, f"stop requested: {event.reason}; running evaluations are drained")


def _log(level: int, text: str, trial: int | None = None, attempt: int | None = None) -> None:
    of_attempt = {} if trial is None else {"trial": trial, "attempt": attempt}
    _LOGGER.log(level, "%s", text, extra=of_attempt)


class HealthLog:
    """Writes each warning about the workers and the trainings once while it applies."""

    def __init__(self) -> None:
        self._next_check = 0.0
        self._kinds: set[str] = set()  # the warnings that were written and still apply

    def update(self, campaign: CampaignState, now: float) -> None:
        """Write the warnings that apply at the time `now` and are new, if a check is due."""
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_SECONDS
        texts = warnings(campaign, campaign.clock.since(now))
        for kind, text in texts.items():
            if kind not in self._kinds:
                _LOGGER.warning("%s", text)
        self._kinds = set(texts)


STORE_PATIENCE_SECONDS = 300.0  # the longest wait for an unreachable store, e.g. a server that restarts
_STORE_RETRY_SECONDS = 1.0


class Span(StrEnum):
    """The operations of a session whose durations are measured."""

    REFIT = "refit"
    STORE_COMMIT = "store_commit"


class Recorder:
    """Records the events of one session. Only the thread that runs the session may use it.

    `engine` is that after all events. `heard` is called with every event
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
        deadline = time.monotonic() + STORE_PATIENCE_SECONDS
        while True:  # events stay in memory while the store is unreachable
            try:
                self._writer.append(events, position)
                break
            except StoreError as error:
                if not error.is_transient or time.monotonic() > deadline or self._is_urgent():
                    raise
                self._waiting(f"waiting for the store: {error}")
                _LOGGER.warning("store unreachable, retrying: %s", error)
                time.sleep(_STORE_RETRY_SECONDS)
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
            snapshots.save(self._writer, self._snapshot, self.engine.state)
        except StoreError as error:
            _LOGGER.warning("the snapshot was not written, so reading the log will take longer: %s", error)
