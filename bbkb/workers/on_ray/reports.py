"""Carries intermediate values from workers to the coordinator, and its responses back, through
Ray's key-value store.

A worker has at most one unanswered entry there, with the values since the previous entry (at most
`BUFFERED`). The coordinator reads the entry, decides whether the trial stops, writes a stop request
if so, and removes the entry. The removal is the response. If the campaign may stop the trial, the
worker waits for the response for a limited time, because an unnecessary step costs more. A slow or
unavailable coordinator therefore loses intermediate values but no results, and evaluations without
reports have no overhead.

The response is advisory: it may arrive a few steps late. A limit that is known in advance is sent
with the attempt (`Attempt.step_limit`), and the worker enforces it exactly.
"""

import math
import pickle
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import ray

from bbkb.workers.executor import TakeReports
from bbkb.workers.messages import Report
from bbkb.workers.on_ray import internals

BUFFERED = 200
POLL_SECONDS = 0.5  # the longest time between two polls of either side
SEND_SECONDS = 0.02  # the shortest time between two entries of an attempt
WAIT_SECONDS = 0.3  # the longest wait of a worker for one response
WAIT_SHARE = 0.1  # the largest share of an attempt's time that its worker waits for responses
POLL_SHARE = 0.2  # the largest share of the coordinator's time that it spends on reports
_FIRST_POLL_SECONDS = 0.002  # after a worker has sent an entry
_SHORTEST_POLL_SECONDS = 0.005  # the shortest interval while workers wait
_PROMPTNESS = 20.0  # a coordinator polls again after the time since the last entry divided by this


class ReportSender:
    """The worker's side, for one attempt. Used as `publish`; a separate thread sends.

    With `waits`, a call waits for the response: at most `WAIT_SECONDS`, and only if the last
    response took less time than that. The thread starts with the first report, and ends after a
    last delivery when the sender is closed.
    """

    def __init__(self, campaign: str, trial: int, attempt: int, waits: bool) -> None:
        self._prefix = f"{campaign}\nreports\n{trial}\n{attempt}\n"
        self._stop_key = _stop_key(campaign, trial, attempt)
        self._waits = waits
        self._began = time.monotonic()
        self._waited = 0.0  # the seconds that calls have waited
        # seconds that the last response took; infinite if it did not arrive during a wait
        self._latency = 0.0
        self._unsent: deque[Report] = deque(maxlen=BUFFERED)
        self._reported = 0  # number of reports
        self._answered = 0  # the number of reports with a response from the coordinator
        self._next_entry = 0.0  # monotonic clock
        self._is_stopped = False
        self._is_closed = False
        self._changed = threading.Condition()  # guards the attributes that both threads write
        self._thread: threading.Thread | None = None

    def __call__(self, report: Report | None) -> bool:
        """Queue a report, or nothing if `report` is None. Return whether the campaign stops the
        trial."""
        if report is None:
            return self._is_stopped
        with self._changed:
            self._unsent.append(report)
            self._reported += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._send, name="bbkb reports", daemon=True)
                self._thread.start()
            elif len(self._unsent) == 1:
                self._changed.notify_all()
            if self._waits and (now := time.monotonic()) >= self._next_entry:
                patience = min(WAIT_SECONDS, WAIT_SHARE * (now - self._began) - self._waited)
                if 0.0 < patience >= self._latency:  # otherwise, the response would probably come later
                    number = self._reported
                    if not self._changed.wait_for(lambda: self._answered >= number, patience):
                        self._latency = math.inf
                    self._waited += time.monotonic() - now
            return self._is_stopped

    def close(self) -> None:
        """Send the remaining reports. No report is sent afterwards."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(POLL_SECONDS)

    def _send(self) -> None:
        is_last = False
        while not is_last:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._unsent)
                pause = self._next_entry - time.monotonic()
                self._changed.wait_for(lambda: self._is_closed, pause)
                reports = tuple(self._unsent)
                number = self._reported
                is_last = self._is_closed
                self._unsent.clear()
                self._next_entry = time.monotonic() + SEND_SECONDS
            try:
                if reports:
                    self._deliver(reports, number)
            except (ray.exceptions.RayError, OSError, RuntimeError) as error:
                message = f"bbkb: intermediate values could not be sent: {error}"
                print(message, file=sys.stderr, flush=True)
                self._next_entry = time.monotonic() + POLL_SECONDS

    def _deliver(self, reports: tuple[Report, ...], number: int) -> None:
        """Write an entry, and wait until the coordinator has responded or the attempt has ended."""
        sent = time.monotonic()
        pause = _FIRST_POLL_SECONDS
        key = f"{self._prefix}{number}"
        internals.put(key, pickle.dumps(reports))
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closed, pause):
                    return
            if internals.get(key) is None:
                break
            pause = min(1.5 * pause, POLL_SECONDS)
        is_stopped = internals.get(self._stop_key) is not None
        with self._changed:
            self._answered = number
            self._is_stopped = is_stopped
            self._latency = time.monotonic() - sent
            self._changed.notify_all()


class ReportReceiver:
    """The coordinator's side, for all attempts of a campaign."""

    def __init__(self, campaign: str) -> None:
        # receives the values and returns the trials to stop
        self.listener: TakeReports | None = None
        # whether workers wait for responses. The receiver then polls more often shortly after an
        # entry has arrived, so that a response takes a small part of a step.
        self.is_awaited = False
        self._campaign = campaign
        self._taken: list[bytes] = []  # keys of the entries without a response yet
        self._began = 0.0  # the last poll, monotonic clock
        self._next_poll = 0.0
        self._last_entry = -math.inf

    @property
    def patience_seconds(self) -> float:
        """The seconds until the next poll."""
        return max(0.0, self._next_poll - time.monotonic())

    def relay(self, attempts: Callable[[], Mapping[int, int]]) -> None:
        """Pass the values that have arrived to the listener, and respond to them. `attempts`
        returns the attempts in flight by trial."""
        if self.listener is None or not (values := self.take()):
            return
        stopped = self.listener(values)
        in_flight = attempts()
        self.answer((trial, in_flight[trial]) for trial in stopped if trial in in_flight)

    def take(self) -> list[Report]:
        """Return the values that have arrived since the last poll. Must be followed by `answer`.

        Returns nothing if it is too early for the next poll.
        """
        if time.monotonic() < self._next_poll:
            return []
        self._began = time.monotonic()
        prefix = f"{self._campaign}\nreports\n"
        self._taken = internals.keys(prefix)
        values: list[Report] = []
        for key in sorted(self._taken, key=lambda key: [*map(int, key.decode().split("\n")[-3:])]):
            stored = internals.get(key)
            reports: tuple[Report, ...] = () if stored is None else pickle.loads(stored)
            values += reports
        if values:
            self._last_entry = self._began
        else:
            self._plan()
        return values

    def answer(self, stopped: Iterable[tuple[int, int]]) -> None:
        """Respond to the entries that were read: these (trial, attempt) stop, others continue."""
        for identity in stopped:
            stop_key = _stop_key(self._campaign, *identity)
            internals.put(stop_key, b"1")
        for key in self._taken:
            internals.delete(key)
        self._plan()

    def forget_stop(self, trial: int, attempt: int) -> None:
        """Remove the stop request of this attempt, which has stopped."""
        internals.delete(_stop_key(self._campaign, trial, attempt))

    def _plan(self) -> None:
        now = time.monotonic()
        soon = max(_SHORTEST_POLL_SECONDS, (now - self._last_entry) / _PROMPTNESS)
        pause = min(POLL_SECONDS, soon) if self.is_awaited else POLL_SECONDS
        self._next_poll = now + max(pause, (now - self._began) * (1.0 / POLL_SHARE - 1.0))


def _stop_key(campaign: str, trial: int, attempt: int) -> str:
    return f"{campaign}\nstop\n{trial}\n{attempt}"
