"""The runner of the strategy's computations, one at a time, in the caller's thread or in a
background thread. With a background thread, the loop can collect results, dispatch trials and stop
during a refit that takes minutes. The caller's thread is used with executors whose clock stands
still during a computation (virtual time), and with those that evaluate in this thread.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_FIRST_POLL_SECONDS = 0.0005
_LONGEST_POLL_SECONDS = 0.02


@dataclass
class _Computation(Generic[T]):
    """A running call. `finish` receives its result in the loop's thread."""

    call: Callable[[], T]
    finish: Callable[[T], None]
    has_ended: threading.Event = field(default_factory=threading.Event)
    results: list[T] = field(default_factory=list)  # the result, after the call has returned
    error: BaseException | None = None
    poll_seconds: float = _FIRST_POLL_SECONDS

    def run(self) -> None:
        """Call the function in this thread and store its result or its exception."""
        try:
            self.results.append(self.call())
        except BaseException as error:  # raised again in the loop's thread
            self.error = error
        finally:
            self.has_ended.set()

    def deliver(self) -> None:
        """Pass the result to `finish`. Raises the call's exception, if there was one."""
        if self.error is not None:
            raise self.error
        self.finish(self.results[0])


class Computing:
    """Runs the computations of the strategy, at most one at a time."""

    def __init__(self, in_background: bool) -> None:
        self.is_in_background = in_background
        self._current: _Computation[Any] | None = None

    def start(self, call: Callable[[], T], finish: Callable[[T], None]) -> None:
        """Start `call()`. After it has returned, `poll` passes its result to `finish`. No other
        call may be running."""
        self._current = _Computation(call, finish)
        if self.is_in_background:
            # a daemon thread, so that a cancelled session does not wait for it
            threading.Thread(target=self._current.run, name="bbkb strategy", daemon=True).start()
        else:
            self._current.run()

    def poll(self) -> None:
        """Deliver a finished computation. Raises the exception of the computation, if it raised one."""
        current = self._current
        if current is None or not current.has_ended.is_set():
            return
        self._current = None
        current.deliver()

    def wait_briefly(self) -> bool:
        """Wait briefly for the running computation, longer each time. Return False without one."""
        current = self._current
        if current is None:
            return False
        current.has_ended.wait(current.poll_seconds)
        current.poll_seconds = min(2.0 * current.poll_seconds, _LONGEST_POLL_SECONDS)
        return True
