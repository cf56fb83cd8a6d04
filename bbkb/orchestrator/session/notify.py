"""Notifications by a command or a webhook: at the end of a session, at its first failure, and if it
stalls.

They are sent from a separate thread. The campaign waits only at its end, for a few seconds. A
failed delivery is logged as an error and has no other effect. Each kind of notification is sent
once per session, but a stall is reported again after another evaluation has ended.
"""

import json
import logging
import os
import queue
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

from bbkb.orchestrator.campaign.events import AttemptEnded, Event, SessionClosed, TrialFailed
from bbkb.orchestrator.campaign.settings import Notify as NotifySettings
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.credentials import UnsetVariableError, in_environment
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.wording import duration
from bbkb.workers.messages import FailureKind

_LOGGER = logging.getLogger("bbkb.notify")

SEND_SECONDS = 10.0  # the time-out of a command or a webhook
END_SECONDS = 2 * SEND_SECONDS + 1.0  # the longest wait for a notification at the end of a session
_MOST_STALLS = 10  # the largest number of stall notifications in a session
_LONGEST = 500  # characters of a failure's message, and of a command's error output


class Notifier:
    """Sends a session's notifications. `take` never raises, and any thread may call it."""

    def __init__(self, settings: NotifySettings, run: Run, status: Callable[[], Status]) -> None:
        self._settings = settings
        self._run = run
        self._status = status
        self._stall_seconds = settings.stalled_minutes * 60.0
        self._sent: set[str] = set()
        self._stalls = 0
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()

    def take(self, event: Event | None) -> None:
        """Receive an event of the campaign, and send a notification if the event requires one. None
        ends `live`."""
        if event is None or isinstance(event, AttemptEnded | SessionClosed):
            self._events.put(event)

    def live(self) -> None:
        """Send notifications and detect stalls until the session has ended."""
        while True:
            try:  # every event in the queue is progress
                event = self._events.get(timeout=self._stall_seconds)
            except queue.Empty:
                self._report_stall()
                continue
            if event is None:
                summary = _summary(self._status())
                return self._send("ended", f"ended without an outcome, see run.log; {summary}")
            self._note(event)

    def _note(self, event: Event) -> None:
        self._sent.discard("stalled")
        if isinstance(event, SessionClosed):
            self._send("ended", f"{event.outcome}: {event.reason}; {_summary(self._status())}")
        elif isinstance(event, TrialFailed) and event.failure != FailureKind.CANCELLED:
            failure = f"trial {event.trial} failed ({event.failure}): {event.message[:_LONGEST]}"
            self._send("failure", f"first failed evaluation: {failure}")

    def _report_stall(self) -> None:
        self._stalls += 1
        if self._stalls <= _MOST_STALLS:
            waited = duration(self._stall_seconds)
            summary = _summary(self._status())
            self._send("stalled", f"no evaluation has ended for {waited}; {summary}")

    def _send(self, reason: str, text: str) -> None:
        if reason in self._sent:
            return
        self._sent.add(reason)
        name = self._run.name
        notice = {
            "text": f"bbkb campaign {name}: {text}",
            "event": reason,
            "campaign": name,
            "run": str(self._run.folder),
        }
        for send, target in ((run_command, self._settings.command), (post, self._settings.webhook)):
            if target is not None:
                try:
                    send(target, notice)
                except (OSError, ValueError, HTTPException, UnsetVariableError, subprocess.SubprocessError) as error:
                    _LOGGER.error("the notification %r was not delivered: %s", reason, _reason(error))
                else:
                    _LOGGER.info("notification sent: %s", notice["text"])


def run_command(command: str, notice: Mapping[str, str]) -> None:
    """Run a shell command in the run's folder, with the notification as JSON on its standard input
    and in BBKB_EVENT, BBKB_TEXT, BBKB_CAMPAIGN and BBKB_RUN.

    Raises subprocess.SubprocessError if the command fails or takes longer than `SEND_SECONDS`; in
    the second case its process group is killed.
    """
    variables = {f"BBKB_{name.upper()}": value for name, value in notice.items()}
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **variables},
        cwd=notice["run"] if Path(notice["run"]).is_dir() else "/",
        start_new_session=True,
    )
    with process:
        try:
            _, complaint = process.communicate(json.dumps(notice).encode(), timeout=SEND_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        message = complaint.decode(errors="replace").strip()[-_LONGEST:]
        raise subprocess.SubprocessError(f"the command ended with exit code {process.returncode}: {message}")


def post(url: str, notice: Mapping[str, str]) -> None:
    """Send the notification as JSON to a URL, in which `${VAR}` is an environment variable. Chat
    servers show `text`.

    Raises OSError or HTTPException if the server does not accept it, ValueError if the URL is not
    an http address, UnsetVariableError if the variable is not set.
    """
    address = in_environment(url, os.environ)
    if not address.startswith(("https://", "http://")):
        raise ValueError("notify.webhook must be an http or https address")
    request = urllib.request.Request(
        address, json.dumps(notice).encode(), {"Content-Type": "application/json", "User-Agent": "bbkb"}
    )
    with urllib.request.build_opener(_NoRedirects).open(request, timeout=SEND_SECONDS):
        pass


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects. Python would follow a redirect with a GET request. The notification would
    be lost without an error, and the server could choose any address reachable from this
    machine."""

    def redirect_request(self, *_: object) -> None:
        """Raises OSError."""
        raise OSError("the server of notify.webhook redirects: give the address that it leads to")


@contextmanager
def notifications(
    settings: NotifySettings | None, run: Run, status: Callable[[], Status]
) -> Iterator[Callable[[Event], None]]:
    """Send notifications while the body runs. Yields the function that receives every event."""
    if settings is None:
        yield lambda _event: None
        return
    notifier = Notifier(settings, run, status)
    thread = threading.Thread(target=notifier.live, name="notify", daemon=True)
    thread.start()
    try:
        yield notifier.take
    finally:
        notifier.take(None)
        thread.join(END_SECONDS)
        if thread.is_alive():
            waited = duration(END_SECONDS)
            _LOGGER.error("the last notification was not delivered within %s", waited)


def _reason(error: Exception) -> str:
    """Return the message of `error` without the address or the command, which may contain a secret."""
    if isinstance(error, UnsetVariableError):
        return f"notify.webhook names the environment variable {error}, which is not set where the campaign runs"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the command took longer than {duration(SEND_SECONDS)} and was killed"
    if isinstance(error, HTTPException | ValueError):  # such a message contains the address
        rule = "notify.webhook is not an address that can be requested, or its server does not speak HTTP"
        return f"{rule} ({type(error).__name__})"
    return f"{type(error).__name__}: {error}"


def _summary(status: Status) -> str:
    best = status.best
    value = "no value yet" if best.value is None else f"best {best.named} ({best.origin})"
    trials = status.trials
    return f"{status.trials_text} done, {value}, {trials.in_flight} running, {trials.failed} failed"
