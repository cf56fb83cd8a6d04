"""Carries intermediate values from workers to the coordinator, and its answers back, over Ray's
key-value store.

A worker has at most one entry there that is not answered: at most `BUFFERED` values that it
reported since the entry before. The coordinator takes the entry, decides, writes a wish to stop,
and removes the entry; that is the answer. Where the campaign may stop the trial, the worker waits
for the answer for a bounded time, because a step too much costs more. So a coordinator that is slow
or away loses intermediate values, never a result, and an evaluation that reports nothing costs
nothing.
"""

import math
import pickle
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable

import ray
from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_exists,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)

from workers.messages import IntermediateValue, Reported
from workers.on_ray.ledger import NAMESPACE

BUFFERED = 200
LOOK_SECONDS = 0.5  # at most, between two looks of either side
SEND_SECONDS = 0.02  # at least, between two entries of an attempt
WAIT_SECONDS = 0.3  # at most, that a worker waits for one answer
WAIT_SHARE = 0.1  # of an attempt's time, at most, that its worker waits for answers
LOOK_SHARE = 0.2  # of the coordinator's time, at most, that it spends on reports
_FIRST_LOOK_SECONDS = 0.002  # of a worker, after it has sent an entry
_SHORTEST_LOOK_SECONDS = 0.005  # of a coordinator whose workers wait
_PROMPTNESS = 20.0  # a coordinator looks again after this part of the time since the last entry


class ReportSender:
    """The worker's side, for one attempt. Used as `publish`; it sends from a thread of its own.

    A call waits for the answer where `waits`, at most `WAIT_SECONDS`, and not when the answer before
    took longer than that. The thread starts with the first report; leaving the context ends it after
    a last delivery.
    """

    def __init__(self, campaign: str, trial: int, attempt: int, waits: bool) -> None:
        self._prefix = f"{campaign}\nreports\n{trial}\n{attempt}\n"
        self._stop_key = f"{campaign}\nstop\n{trial}\n{attempt}"
        self._waits = waits
        self._points: deque[Reported] = deque(maxlen=BUFFERED)  # not sent yet
        self._reported = 0  # number of reports
        self._answered = 0  # how many of them the coordinator has answered
        self._began = time.monotonic()
        self._waited = 0.0  # seconds, for answers
        self._latency = 0.0  # seconds that the last answer took; infinite while it is missing after a wait
        self._next_entry = 0.0  # monotonic clock
        self._is_stopped = False
        self._is_over = False
        self._changed = threading.Condition()  # guards what both threads write
        self._thread: threading.Thread | None = None

    def __call__(self, reported: Reported | None) -> bool:
        """Take this report, if it is to be recorded, on its way. True: the campaign stops the
        trial."""
        if reported is None:
            return self._is_stopped
        with self._changed:
            self._points.append(reported)
            self._reported += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._send, name="bbkb reports", daemon=True)
                self._thread.start()
            elif len(self._points) == 1:
                self._changed.notify_all()
            if self._waits:
                self._wait()
            return self._is_stopped

    def close(self) -> None:
        """Send the reports that are left; none is sent afterwards."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(LOOK_SECONDS)

    def _wait(self) -> None:
        """Wait for the answer to the report just made, as long as it is likely to come in time."""
        began = time.monotonic()
        patience = min(WAIT_SECONDS, WAIT_SHARE * (began - self._began) - self._waited)
        if self._latency > patience or began < self._next_entry:
            return
        number = self._reported
        if not self._changed.wait_for(lambda: self._answered >= number, patience):
            self._latency = math.inf
        self._waited += time.monotonic() - began

    def _send(self) -> None:
        is_over = False
        while not is_over:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or self._points)
                self._changed.wait_for(lambda: self._is_over, self._next_entry - time.monotonic())
                points, number, is_over = tuple(self._points), self._reported, self._is_over
                self._points.clear()
                self._next_entry = time.monotonic() + SEND_SECONDS
            try:
                if points:
                    self._deliver(points, number)
            except (ray.exceptions.RayError, OSError, RuntimeError) as error:
                print(f"bbkb: intermediate values could not be sent: {error}", file=sys.stderr, flush=True)
                self._next_entry = time.monotonic() + LOOK_SECONDS

    def _deliver(self, points: tuple[Reported, ...], number: int) -> None:
        """Write an entry, and wait until it is answered or the attempt is over."""
        key, sent, pause = f"{self._prefix}{number}", time.monotonic(), _FIRST_LOOK_SECONDS
        _internal_kv_put(key, pickle.dumps(points), overwrite=True, namespace=NAMESPACE)
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._is_over, pause):
                    return
            if not _internal_kv_exists(key, namespace=NAMESPACE):
                break
            pause = min(1.5 * pause, LOOK_SECONDS)
        is_stopped = bool(_internal_kv_exists(self._stop_key, namespace=NAMESPACE))
        with self._changed:
            self._answered, self._is_stopped, self._latency = number, is_stopped, time.monotonic() - sent
            self._changed.notify_all()


class ReportReceiver:
    """The coordinator's side, for all attempts of a campaign.

    `is_awaited`: whether workers wait for answers. It then looks the sooner again, the shorter ago
    the last entry came, so that an answer takes a small part of a step.
    """

    def __init__(self, campaign: str) -> None:
        self.is_awaited = False
        self._campaign = campaign
        self._taken: list[bytes] = []  # keys of the entries that are not answered yet
        self._began = 0.0  # the last look, monotonic clock
        self._next_look = 0.0
        self._last_entry = -math.inf

    @property
    def patience_seconds(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self._next_look - time.monotonic())

    def take(self) -> list[IntermediateValue]:
        """Return what has arrived since the last look; nothing when it is too early for the next one.
        `answer` follows."""
        if time.monotonic() < self._next_look:
            return []
        self._began = time.monotonic()
        prefix = f"{self._campaign}\nreports\n"  # older versions wrote others below "report"
        self._taken = _internal_kv_list(prefix, namespace=NAMESPACE)
        values: list[IntermediateValue] = []
        for key in sorted(self._taken, key=_numbers):
            stored, (trial, attempt, _) = _internal_kv_get(key, namespace=NAMESPACE), _numbers(key)
            points: tuple[Reported, ...] = () if stored is None else pickle.loads(stored)
            values += [IntermediateValue(trial, attempt, reported) for reported in points]
        if values:
            self._last_entry = self._began
        else:
            self._plan()
        return values

    def answer(self, stopped: Iterable[tuple[int, int]]) -> None:
        """Ask these (trial, attempt) to stop, and let all that were taken go on otherwise."""
        for trial, attempt in stopped:
            _internal_kv_put(f"{self._campaign}\nstop\n{trial}\n{attempt}", b"1", overwrite=True, namespace=NAMESPACE)
        for key in self._taken:
            _internal_kv_del(key, namespace=NAMESPACE)
        self._plan()

    def forget(self, attempts: Iterable[tuple[int, int]]) -> None:
        """Remove what asked these attempts, which have ended, to stop."""
        for trial, attempt in attempts:
            _internal_kv_del(f"{self._campaign}\nstop\n{trial}\n{attempt}", namespace=NAMESPACE)

    def _plan(self) -> None:
        """Set the time of the next look."""
        now = time.monotonic()
        soon = max(_SHORTEST_LOOK_SECONDS, (now - self._last_entry) / _PROMPTNESS)
        pause = min(LOOK_SECONDS, soon) if self.is_awaited else LOOK_SECONDS
        self._next_look = now + max(pause, (now - self._began) * (1.0 / LOOK_SHARE - 1.0))


def _numbers(key: bytes) -> tuple[int, int, int]:
    """Return trial, attempt and number of an entry."""
    trial, attempt, number = key.decode().split("\n")[-3:]
    return int(trial), int(attempt), int(number)
