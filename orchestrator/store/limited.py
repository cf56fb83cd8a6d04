"""Reading with a limit of time, for runs that somebody else made.

A database that never answers, or a view without an end, would block the reader. The call runs in a
thread of its own, which is left behind when it takes too long. A query of a SQLite
database is interrupted then, so that it does not occupy a processor; a thread that waits for
something else ends with the process.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from orchestrator.errors import BbkbError, RunError

T = TypeVar("T")

_THREAD = threading.local()  # its `call`: the `Call` that runs in this thread


class Call(Generic[T]):
    """A call in a thread of its own."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._result: T | None = None
        self._error: BaseException | None = None
        self._is_left = False
        self._thread = threading.Thread(target=self._run, name="limited", daemon=True)
        self._thread.start()

    def is_over(self, seconds: float = 0.0) -> bool:
        """Return whether it has ended, waiting up to `seconds`."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> T:
        """Return what it returned, once it is over; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # None where T allows it

    def leave(self) -> None:
        """Let SQLite queries, now or later, raise an error: the result is not needed."""
        self._is_left = True

    @property
    def is_left(self) -> bool:
        """Whether the result is not needed any more."""
        return self._is_left

    def _run(self) -> None:
        _THREAD.call = self
        try:
            self._result = self._function()
        except BaseException as error:  # raised again by `result`
            self._error = error


def call(function: Callable[[], T], seconds: float) -> T:
    """Return what `function` returns or raises. Raises RunError after `seconds`."""
    running = Call(function)
    if not running.is_over(seconds):
        running.leave()
        raise RunError(f"reading it took longer than {seconds:g} s: its files or its database do not answer")
    return running.result()


def is_left_behind() -> bool:
    """Return whether this thread runs a call whose result is not needed any more."""
    running: Call[object] | None = getattr(_THREAD, "call", None)
    return running is not None and running.is_left


def reason_of(error: Exception) -> str:
    """Return why a run cannot be read, for a line in a list, also of crafted files."""
    text = str(error) or "no message"
    return text if isinstance(error, BbkbError) else f"it is damaged, {type(error).__name__}: {text}"


def looks_like_run(folder: Path) -> bool:
    """Return whether `folder` has a campaign file, or cannot be looked into."""
    try:
        os.lstat(folder / "campaign.yaml")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
