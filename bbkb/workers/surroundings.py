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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, TextIO

from bbkb.workers.messages import FailureKind, Outcome, TrialFailed

DAMAGED_AFTER = 5  # the number of failures in a row, on as many different arms
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_SIGNALS = sorted(int(number) for number in signal.Signals if number < signal.SIGRTMIN)  # reading each takes 1 µs


class Streak:
    """The failures in a row of one worker process."""

    def __init__(self) -> None:
        self._arms: set[int] = set()

    def is_damaged_after(self, arm: int, outcome: Outcome) -> bool:
        """Return whether the process should be replaced, after this outcome of `arm`.

        Only errors count: an invalid value or a time-out is due to the evaluation.
        """
        if isinstance(outcome, TrialFailed) and outcome.failure is FailureKind.ERROR:
            self._arms.add(arm)
        else:
            self._arms.clear()
        return len(self._arms) >= DAMAGED_AFTER


@contextlib.contextmanager
def restore_surroundings() -> Iterator[None]:
    """Restore the state on exit, as far as the system allows it."""
    limits = {limit: resource.getrlimit(limit)[0] for limit in _LIMITS}
    with ExitStack() as undo:
        undo.callback(_quietly, _enter, _folder())
        undo.callback(_quietly, os.umask, _umask())
        undo.callback(_quietly, _set_environment, dict(os.environ))
        undo.callback(_quietly, _set_limits, limits)
        undo.callback(_quietly, _set_streams, sys.stdin, sys.stdout, sys.stderr)
        undo.callback(_quietly, sys.setrecursionlimit, sys.getrecursionlimit())
        undo.callback(_quietly, gc.enable if gc.isenabled() else gc.disable)
        if threading.current_thread() is threading.main_thread():  # handlers belong to it
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            undo.callback(_quietly, _set_signals, mask, _handlers())
        yield


def _quietly(restore: Callable[..., object], *values: object) -> None:
    with contextlib.suppress(OSError, ValueError):
        restore(*values)


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed by another process
        return "/"


def _enter(folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if os.getcwd() == folder:
            return
    os.makedirs(folder, exist_ok=True)  # it may have been removed
    os.chdir(folder)


def _umask() -> int:
    umask = os.umask(0o077)  # the umask can only be read by setting it
    os.umask(umask)
    return umask


def _set_environment(variables: Mapping[str, str]) -> None:
    now = dict(os.environ)
    if now != variables:
        for name in now.keys() - variables.keys():
            del os.environ[name]
        os.environ.update(variables)


def _set_limits(limits: Mapping[int, int]) -> None:
    for limit, soft in limits.items():
        now, hard = resource.getrlimit(limit)
        if now != soft:  # setting it fails if the hard limit was also lowered
            _quietly(resource.setrlimit, limit, (soft, hard))


def _set_streams(*streams: TextIO) -> None:
    sys.stdin, sys.stdout, sys.stderr = streams


def _handlers() -> dict[int, Any]:
    """Return the signal handlers that Python has set."""
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    return {number: handler for number, handler in handlers.items() if handler is not None}


def _set_signals(mask: Iterable[int], handlers: Mapping[int, Any]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            _quietly(signal.signal, number, handler)
