"""The limits of one evaluation: its time, its memory, and the effect of interrupts."""

import contextlib
import faulthandler
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from bbkb.objectives.machines import END_SECONDS, RANK_VARIABLES
from bbkb.workers.children import end_children
from bbkb.workers.messages import Limits
from bbkb.workers.surroundings import restore_surroundings

T = TypeVar("T")

# between SIGTERM and the kill, for the evaluation to end its command
HARD_END_SECONDS = END_SECONDS + 2.0
_STDERR = 2


class HostInterruptError(KeyboardInterrupt):
    """The user interrupts the host process, which evaluates in its own main thread.

    A KeyboardInterrupt of any other class comes from the objective, and is an error of its trial.
    """


class EndedWithOthersError(BaseException):
    """Another machine of the evaluation ended it. Not an `Exception`, like `DeadlineReached`."""


class DeadlineReached(BaseException):
    """The time-out passed. Not an `Exception`, so that `except Exception` does not hide it."""


def grace_seconds(timeout_seconds: float, is_gang: bool = False) -> float:
    """Return the time from the time-out to the hard deadline: a tenth of it, within [2, 30] s, and
    with `is_gang` the time that processes on several machines need to end."""
    return min(30.0, max(2.0, 0.1 * timeout_seconds)) + (HARD_END_SECONDS if is_gang else 0.0)


def missed_deadline(timeout_seconds: float | None) -> str:
    """Return the beginning of the message of every time-out."""
    return f"no result within timeout_seconds = {timeout_seconds:g}"


@contextlib.contextmanager
def handling(number: signal.Signals, handler: "signal._HANDLER") -> Iterator[None]:
    """Handle a signal with `handler` inside. Must be called in the main thread."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        # None: the handler was not set by Python
        signal.signal(number, signal.SIG_DFL if before is None else before)


@contextlib.contextmanager
def share_process() -> Iterator[None]:
    """Restore the surroundings of a process that is not expendable after its evaluation.

    Ctrl-C raises `HostInterruptError`: an objective may raise KeyboardInterrupt itself.
    """

    def interrupt(_signum: int, _frame: object) -> None:
        raise HostInterruptError

    is_main = threading.current_thread() is threading.main_thread()
    is_default = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with restore_surroundings(), handling(signal.SIGINT, interrupt) if is_default else contextlib.nullcontext():
        yield


def before_deadline(call: Callable[[], T], seconds: float | None, again_seconds: float) -> T:
    """Return the result of `call()`, in which DeadlineReached is raised after `seconds`.

    The exception is raised again every `again_seconds` while the call continues, because Python
    prints and drops exceptions raised inside a destructor or a callback of C code.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        return call()
    is_over = False

    def alarm(_signum: int, _frame: object) -> None:
        if not is_over:
            raise DeadlineReached

    host_handler = signal.getsignal(signal.SIGALRM)
    host_timer = signal.getitimer(signal.ITIMER_REAL)
    began = time.monotonic()
    try:
        signal.signal(signal.SIGALRM, alarm)
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6), again_seconds)
        return call()
    finally:
        is_over = True  # atomic, so that no alarm is raised afterwards
        _restore_alarm(host_handler, host_timer, time.monotonic() - began)


def _restore_alarm(handler: "signal._HANDLER", timer: tuple[float, float], elapsed: float) -> None:
    """Restore the host's alarm with its remaining time."""
    delay, interval = timer
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, handler)
    if delay > 0.0:
        signal.setitimer(signal.ITIMER_REAL, max(delay - elapsed, 1e-3), interval)


@contextlib.contextmanager
def confine(limits: Limits, is_gang: bool = False) -> Iterator[None]:
    """Apply the limits of an expendable process; `is_gang`: whether the attempt has several
    machines.

    Inside, the environment lacks variables with a rank. They belong to the program that started
    Ray, such as srun, and a distributed training in the evaluation would read them as its own.
    """
    nothing = contextlib.nullcontext()
    timeout = limits.timeout_seconds
    with (
        nothing if timeout is None else _hard_deadline(timeout, is_gang),
        end_children(),
        restore_surroundings(),
        nothing if limits.memory_bytes is None else _memory_bound(limits.memory_bytes),
        _end_by_signal() if is_gang else nothing,
    ):
        for name in RANK_VARIABLES:
            os.environ.pop(name, None)
        yield


@contextlib.contextmanager
def _end_by_signal() -> Iterator[None]:
    """Make SIGTERM raise `EndedWithOthersError` once, unless the objective handles it."""
    is_over = False

    def end(_signum: int, _frame: object) -> None:
        nonlocal is_over
        if not is_over:
            is_over = True
            raise EndedWithOthersError

    with handling(signal.SIGTERM, end):
        try:
            yield
        finally:
            is_over = True


@contextlib.contextmanager
def _hard_deadline(timeout_seconds: float, is_gang: bool) -> Iterator[None]:
    """End this process after time-out and grace period, even while C code holds the interpreter."""
    seconds = timeout_seconds + grace_seconds(timeout_seconds, is_gang)
    faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def _memory_bound(memory_bytes: int) -> Iterator[None]:
    """Limit the private writable memory of this process to `memory_bytes` more than now.

    RLIMIT_DATA, not RLIMIT_AS: an object store maps gigabytes, shared and mostly untouched.
    """
    mapped = _mapped_bytes()
    if mapped is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [bound for bound in (mapped + memory_bytes, soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def raise_memory(limits: Limits, memory_factor: float) -> Limits:
    """Return the limits of an attempt with this factor on its memory."""
    if limits.memory_bytes is None or memory_factor == 1.0:
        return limits
    return replace(limits, memory_bytes=int(limits.memory_bytes * memory_factor))


def _mapped_bytes() -> int | None:
    """Return the private writable memory in bytes, as counted by RLIMIT_DATA; None if unknown."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[5]) * resource.getpagesize()
    except OSError:
        return None
