"""The runner of the strategy's computations, one at a time, in the caller's thread or in a
background thread. With a background thread, the loop can collect results, dispatch trials and stop
during a refit that takes minutes. The caller's thread is used with executors whose clock stands
still during a computation (virtual time), and with those that evaluate in this thread.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from bbkb.orchestrator.futures import is_settled, settle

T = TypeVar("T")

_FIRST_POLL_SECONDS = 0.0005
_LONGEST_POLL_SECONDS = 0.02


class Computing:
    """Runs the computations of the strategy, at most one at a time."""

    def __init__(self, in_background: bool) -> None:
        self.is_in_background = in_background
        # the outcome of the running call, and the function that receives its result
        self._current: tuple[Future[Any], Callable[[Any], None]] | None = None
        self._poll_seconds = _FIRST_POLL_SECONDS

    def start(self, call: Callable[[], T], finish: Callable[[T], None]) -> None:
        """Start `call()`. After it has returned, `poll` passes its result to `finish`. No other
        call may be running."""
        outcome: Future[T] = Future()
        self._current = (outcome, finish)
        self._poll_seconds = _FIRST_POLL_SECONDS
        if self.is_in_background:
            # a daemon thread, so that a cancelled session does not wait for it
            threading.Thread(target=settle, args=(outcome, call), name="bbkb strategy", daemon=True).start()
        else:
            settle(outcome, call)

    def poll(self) -> None:
        """Deliver a finished computation. Raises the exception of the computation, if it raised one."""
        if self._current is None or not self._current[0].done():
            return
        outcome, finish = self._current
        self._current = None
        finish(outcome.result())

    def wait_briefly(self) -> bool:
        """Wait briefly for the running computation, longer each time. Return False if no call is
        running."""
        if self._current is None:
            return False
        is_settled(self._current[0], self._poll_seconds)
        self._poll_seconds = min(2.0 * self._poll_seconds, _LONGEST_POLL_SECONDS)
        return True
