"""Restores the state of a process between two evaluations.

The working directory, umask, environment, signal handlers and mask, soft limits, standard streams,
recursion limit and garbage collector are restored. Other changes (a leaked thread, a modified
module) can make later evaluations fail. `Streak` detects this, and the process is replaced.
"""

import contextlib
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from workers.messages import Failure, FailureKind, Outcome

DAMAGED_AFTER = 5  # the number of failures in a row, on as many different arms
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


class Streak:
    """The failures in a row of one worker process."""

    def __init__(self) -> None:
        self._arms: set[int] = set()

    def is_damaged_after(self, arm: int, outcome: Outcome) -> bool:
        """Return whether the process should be replaced, after this outcome of `arm`.

        Only errors count: an invalid value or a time-out is due to the evaluation.
        """
        if isinstance(outcome, Failure) and outcome.kind is FailureKind.ERROR:
            self._arms.add(arm)
        else:
            self._arms.clear()
        return len(self._arms) >= DAMAGED_AFTER


@contextlib.contextmanager
def restore_surroundings() -> Iterator[None]:
    """Restore the state on exit, as far as the system allows it."""
    with ExitStack() as undo:
        for keep in (_folder, _umask, _environment, _limits, _streams, _interpreter, _signals):
            undo.callback(_quietly, keep())
        yield


def _quietly(restore: Callable[[], None]) -> None:
    with contextlib.suppress(OSError, ValueError):
        restore()


def _folder() -> Callable[[], None]:
    try:
        before = os.getcwd()
    except FileNotFoundError:  # it was removed by another process
        before = "/"

    def restore() -> None:
        with contextlib.suppress(FileNotFoundError):
            if os.getcwd() == before:
                return
        os.makedirs(before, exist_ok=True)  # it may have been removed
        os.chdir(before)

    return restore


def _umask() -> Callable[[], None]:
    before = os.umask(0o077)  # the umask can only be read by setting it
    os.umask(before)
    return lambda: _forget(os.umask(before))


def _forget(_: object) -> None:
    return None


def _environment() -> Callable[[], None]:
    before = dict(os.environ)

    def restore() -> None:
        for name in [name for name in os.environ if name not in before]:
            del os.environ[name]
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value

    return restore


def _limits() -> Callable[[], None]:
    before = {limit: resource.getrlimit(limit)[0] for limit in _LIMITS}

    def restore() -> None:
        for limit, soft in before.items():
            now, hard = resource.getrlimit(limit)
            if now != soft:
                with contextlib.suppress(OSError, ValueError):  # the hard limit was also lowered
                    resource.setrlimit(limit, (soft, hard))

    return restore


def _streams() -> Callable[[], None]:
    before = sys.stdin, sys.stdout, sys.stderr

    def restore() -> None:
        sys.stdin, sys.stdout, sys.stderr = before

    return restore


def _interpreter() -> Callable[[], None]:
    depth, collects = sys.getrecursionlimit(), gc.isenabled()

    def restore() -> None:
        sys.setrecursionlimit(depth)
        (gc.enable if collects else gc.disable)()

    return restore


def _signals() -> Callable[[], None]:
    """Restore signal handlers that Python has set, in the main thread, to which they belong."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    before = {number: handler for number in signal.valid_signals() if (handler := signal.getsignal(number)) is not None}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def restore() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, handler)

    return restore
