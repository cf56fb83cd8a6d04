"""Carries intermediate values from workers to the coordinator, and the wish to stop back, over
Ray's key-value store.

An attempt has at most one entry: what it reported and the coordinator has not taken yet, at most
`BUFFERED` values. So a coordinator that is slow or away loses intermediate values, never a result,
and an evaluation that reports nothing costs nothing. Both sides look every `LOOK_SECONDS`.
"""

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
LOOK_SECONDS = 0.5


class ReportSender:
    """The worker's side, for one attempt. Used as `publish`: it never waits, and sends from a
    thread of its own.

    The thread starts with the first report; leaving the context ends it after a last delivery.
    """

    def __init__(self, campaign: str, trial: int, attempt: int) -> None:
        self._key = f"{campaign}\nreport\n{trial}\n{attempt}"
        self._stop_key = f"{campaign}\nstop\n{trial}\n{attempt}"
        self._points: deque[Reported] = deque(maxlen=BUFFERED)
        self._is_stopped = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, reported: Reported | None) -> bool:
        """Take this report, if it is to be recorded, on its way. True: the campaign stops the
        trial."""
        if reported is not None:
            self._points.append(reported)
        if self._thread is None:
            self._thread = threading.Thread(target=self._send, name="bbkb reports", daemon=True)
            self._thread.start()
        return self._is_stopped

    def close(self) -> None:
        """Send what is left, and no more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(LOOK_SECONDS)

    def _send(self) -> None:
        sent: tuple[Reported, ...] = ()
        is_over = False
        while not is_over:
            is_over = self._over.wait(LOOK_SECONDS)
            points = tuple(self._points.popleft() for _ in range(len(self._points)))
            try:
                if points:
                    waiting = sent if _internal_kv_exists(self._key, namespace=NAMESPACE) else ()
                    sent = (*waiting, *points)[-BUFFERED:]
                    _internal_kv_put(self._key, pickle.dumps(sent), overwrite=True, namespace=NAMESPACE)
                self._is_stopped = bool(_internal_kv_exists(self._stop_key, namespace=NAMESPACE))
            except (ray.exceptions.RayError, OSError, RuntimeError) as error:
                print(f"bbkb: intermediate values could not be sent: {error}", file=sys.stderr, flush=True)


class ReportReceiver:
    """The coordinator's side, for all attempts of a campaign."""

    def __init__(self, campaign: str) -> None:
        self._campaign = campaign
        self._next_look = 0.0  # monotonic clock

    def take(self) -> list[IntermediateValue]:
        """Return what has arrived since the last look; nothing when that was less than
        `LOOK_SECONDS` ago."""
        if time.monotonic() < self._next_look:
            return []
        self._next_look = time.monotonic() + LOOK_SECONDS
        values: list[IntermediateValue] = []
        for key in sorted(_internal_kv_list(f"{self._campaign}\nreport\n", namespace=NAMESPACE)):
            written = _internal_kv_get(key, namespace=NAMESPACE)
            _internal_kv_del(key, namespace=NAMESPACE)
            if written is not None:
                _, _, trial, attempt = key.decode().split("\n")
                points: tuple[Reported, ...] = pickle.loads(written)
                values += [IntermediateValue(int(trial), int(attempt), reported) for reported in points]
        return values

    def stop(self, attempts: Iterable[tuple[int, int]]) -> None:
        """Ask these (trial, attempt) to stop at their next report."""
        for trial, attempt in attempts:
            _internal_kv_put(f"{self._campaign}\nstop\n{trial}\n{attempt}", b"1", overwrite=True, namespace=NAMESPACE)

    def forget(self, attempts: Iterable[tuple[int, int]]) -> None:
        """Remove what asked these attempts, which have ended, to stop."""
        for trial, attempt in attempts:
            _internal_kv_del(f"{self._campaign}\nstop\n{trial}\n{attempt}", namespace=NAMESPACE)
