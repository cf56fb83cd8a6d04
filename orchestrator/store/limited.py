"""Reading with a limit of time, for runs that somebody else made.

A database that never answers, or a view without an end, would block the reader for ever. The call runs in a thread of
its own, which is left behind when it takes too long; it ends with the process.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from orchestrator.errors import BbkbError, RunError

T = TypeVar("T")


class Call(Generic[T]):
    """A call in a thread of its own."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._result: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="limited", daemon=True)
        self._thread.start()

    def is_over(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, waiting up to `seconds`."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> T:
        """What it returned, once it is over; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # None where T allows it

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # raised again by `result`
            self._error = error


def call(function: Callable[[], T], seconds: float) -> T:
    """What `function` returns. Raises RunError when that takes longer than `seconds`, else what it raises."""
    running = Call(function)
    if not running.is_over(seconds):
        raise RunError(f"reading it took longer than {seconds:g} s: its files or its database do not answer")
    return running.result()


def reason_of(error: Exception) -> str:
    """Why a run cannot be read, for its line in a list: also for errors that only a crafted file causes."""
    text = str(error) or "no message"
    return text if isinstance(error, BbkbError) else f"it is damaged, {type(error).__name__}: {text}"


def looks_like_run(folder: Path) -> bool:
    """Whether `folder` has a campaign file, or cannot be looked into."""
    try:
        os.lstat(folder / "campaign.yaml")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
