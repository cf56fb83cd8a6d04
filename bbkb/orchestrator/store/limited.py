"""Reading with a time limit, for the runs of other users.

A database that never responds, or a view that never ends, would block the reader. So a call runs in
a separate thread, which is abandoned after the limit. Its SQLite query is then interrupted, so that
it does not use a processor. A thread that waits for something else ends with the process.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Generic, TypeVar

from bbkb.orchestrator.errors import BbkbError, RunError
from bbkb.orchestrator.futures import is_settled, settle

T = TypeVar("T")

_THREAD = threading.local()  # the attribute `call` is the `Call` of this thread


class Call(Generic[T]):
    """A call in a separate thread."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.is_left = False  # whether the call was abandoned
        self._function = function
        self._outcome: Future[T] = Future()
        threading.Thread(target=self._run, name="limited", daemon=True).start()

    def is_over(self, seconds: float = 0.0) -> bool:
        """Return whether the call has ended, after at most `seconds`."""
        return is_settled(self._outcome, seconds)

    def result(self) -> T:
        """Return the result of an ended call, or raise its error."""
        return self._outcome.result()

    def leave(self) -> None:
        """Abandon the call: its SQLite queries raise an error."""
        self.is_left = True

    def _run(self) -> None:
        _THREAD.call = self
        settle(self._outcome, self._function)


def call(function: Callable[[], T], seconds: float) -> T:
    """Return the result of `function()` or raise its error. Raises RunError after `seconds`."""
    return wait(Call(function), seconds)


def wait(running: Call[T], seconds: float) -> T:
    """Return the result of the call or raise its error. Raises RunError after `seconds`."""
    if not running.is_over(seconds):
        running.leave()
        raise RunError(f"reading it took longer than {seconds:g} s: its files or its database do not respond")
    return running.result()


def is_left_behind() -> bool:
    """Return whether this thread is running an abandoned call."""
    running: Call[object] | None = getattr(_THREAD, "call", None)
    return running is not None and running.is_left


def reason_of(error: Exception) -> str:
    """Return the reason that a run cannot be read, as one line of a list."""
    text = str(error) or "no message"
    return text if isinstance(error, BbkbError) else f"it is damaged, {type(error).__name__}: {text}"


def looks_like_run(folder: Path) -> bool:
    """Return whether `folder` has a campaign file or a log, or is unreadable."""
    for name in ("campaign.yaml", "campaign.sqlite"):
        try:
            os.lstat(folder / name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return True
        return True
    return False
