"""Records the driver's events, writes their lines to the operator's log, and tells the user's command `on_event`.

Events are applied in memory immediately and written in one transaction by `commit`. The state in memory
contains all events, written or not. The effects of an event wait for `commit`. The command runs in a separate
thread, at the first failed evaluation of a session and at its end. The campaign waits only at its end, and a
command that fails is logged and has no other effect.
"""

import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum

from bbkb.orchestrator.campaign import events
from bbkb.orchestrator.campaign.events import AttemptEnded, Event, SessionClosed, TrialFailed, stop_words
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import Status, warnings
from bbkb.orchestrator.engine.engine import Engine
from bbkb.orchestrator.errors import StoreError
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import Run
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
            with_workers = f"{event.settings.workers.executor}, {plural(event.slots, 'worker')}{adopted}"
            _log(logging.INFO, f"session {event.epoch} opened: {with_workers}")
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


_COMMAND_SECONDS = 10.0  # the time-out of the command
_LONGEST_TEXT = 500  # characters of a failure's message, and of the command's error output


@contextmanager
def user_command(command: str | None, run: Run, status: Callable[[], Status]) -> Iterator[Callable[[Event], None]]:
    """Run the command while the body runs. Yields the function that receives every event."""
    if command is None:
        yield lambda _: None
        return
    told = set[str]()

    def tell(name: str, text: str) -> None:
        if name not in told:
            told.add(name)
            thread.submit(_run_command, command, run, name, text)

    def take(event: Event) -> None:
        if isinstance(event, TrialFailed):
            tell("failure", f"trial {event.trial} failed ({event.failure}): {event.message[:_LONGEST_TEXT]}")
        elif isinstance(event, SessionClosed):
            now = status()
            best = "no value yet" if now.best.value is None else f"best {now.best.named} ({now.best.origin})"
            tell("ended", f"{event.outcome}: {event.reason}; {now.trials_text} done, {best}")

    with ThreadPoolExecutor(1, "on_event") as thread:
        try:
            yield take
        finally:
            tell("ended", "ended without an outcome, see run.log")


def _run_command(command: str, run: Run, name: str, text: str) -> None:
    """Run the command in the run's folder, with the event as JSON on its standard input and in the
    environment."""
    notice = {"event": name, "text": f"bbkb campaign {run.name}: {text}", "campaign": run.name, "run": str(run.folder)}
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **{f"BBKB_{key.upper()}": value for key, value in notice.items()}},
            cwd=run.folder if run.folder.is_dir() else "/",
            start_new_session=True,
        )
        with process:
            try:
                _, errors = process.communicate(json.dumps(notice).encode(), timeout=_COMMAND_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        _LOGGER.error("the command on_event failed for %r: %s", name, type(error).__name__)
        return
    if process.returncode:
        message = errors.decode(errors="replace").strip()[-_LONGEST_TEXT:]
        _LOGGER.error("the command on_event ended with exit code %d for %r: %s", process.returncode, name, message)
