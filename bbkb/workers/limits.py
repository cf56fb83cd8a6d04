"""The limits of one evaluation: its time, its memory, its processes, the effect of interrupts, and the
state of the process that it leaves behind.

A worker process runs several evaluations. On exit from each, `confine` restores the process's
surroundings, and kills every process that the evaluation has started, because one left over would
continue beside the next evaluation. A worker process inherits the orphans below it (Linux's "child
subreaper"), so everything that an evaluation started can be found among the worker's children. When
the worker itself dies, Ray does not find a detached child. A watcher process, which notices the end
of a pipe, finds it by a mark in its environment. A process forked without starting a program has no
mark and is not found.
"""

import contextlib
import ctypes
import faulthandler
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import TypeVar

from bbkb.objectives.objective import END_SECONDS, RANK_VARIABLES
from bbkb.workers.messages import FailureKind, Limits, Outcome, TrialFailed

MARK = "BBKB_WORKER"  # the environment variable of all processes that a worker process starts
# The watcher runs in the background of a shell that ends immediately. A background process has no
# input unless it is passed.
_WATCHER = """
exec 3<&0
(read -r _ <&3
for file in $(grep -als "$1" /proc/[0-9]*/environ); do
    pid=${file#/proc/}
    kill -KILL "${pid%/environ}"
done) >/dev/null 2>&1 &
"""
_SET_CHILD_SUBREAPER = 36  # of prctl(2)
_GENERATIONS = 100  # generations of processes that start others while they are being ended
_PARENT = 1  # index of the parent's process id in /proc/<pid>/stat, after the command's name
# Python's resource tracker, shared by all evaluations of a process, which ends by itself.
_HARMLESS = b"resource_tracker"
DAMAGED_AFTER = 5  # the number of failures in a row, on as many different arms
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_SIGNALS = sorted(int(number) for number in signal.Signals if number < signal.SIGRTMIN)  # reading each takes 1 µs
_QUIETLY = contextlib.suppress(OSError, ValueError)
# handlers of SIGTERM that forked processes do not inherit
PARENTS_ONLY: weakref.WeakSet[Callable[[int, FrameType | None], None]] = weakref.WeakSet()


@contextlib.contextmanager
def end_children() -> Iterator[None]:
    """On exit, kill every process that was started inside. For worker processes."""
    _prepare()
    before = children().keys()
    try:
        yield
    finally:
        for _ in range(_GENERATIONS):  # children of a killed process become ours
            started = children().keys() - before
            for pid in tuple(started):
                with contextlib.suppress(OSError):  # it has ended in the meantime
                    if _HARMLESS in Path(f"/proc/{pid}/cmdline").read_bytes():
                        started -= {pid}
                        continue
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):  # a waiting thread has read its exit code
                    os.waitpid(pid, 0)
            if not started:
                break


@lru_cache(maxsize=1)
def _prepare() -> None:
    """Prepare this process once: start the watcher, which kills the marked processes when this
    process has ended. Without a subreaper, only attached children are found."""
    mark = uuid.uuid4().hex
    reading, writing = os.pipe()  # only the end of this process closes the pipe's writing end
    script = ["/bin/sh", "-c", _WATCHER, "bbkb", f"{MARK}={mark}"]
    subprocess.run(script, stdin=reading, start_new_session=True, check=True)
    os.close(reading)
    os.set_inheritable(writing, False)
    os.environ[MARK] = mark
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:  # after its start, so that the watcher is not among the children
        prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def reset_in_child() -> None:  # Ray's handler raises an exception
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    os.register_at_fork(after_in_child=reset_in_child)
    deliver_to_forks()


@lru_cache(maxsize=1)
def deliver_to_forks() -> None:
    """Deliver a SIGTERM to a forked process even if it arrives before the fork is completed, when Python drops
    it, or while the process waits for a lock, when Python may never call a handler. Otherwise, `Pool.terminate`
    would wait for ever."""
    masks = threading.local()

    def block() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def restore() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore_in_child() -> None:
        if signal.getsignal(signal.SIGTERM) in PARENTS_ONLY:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        restore()

    os.register_at_fork(before=block, after_in_parent=restore, after_in_child=restore_in_child)


def children() -> dict[int, str]:
    """Return the kernel's names of this process's children by pid, of ended ones, too. Takes a
    microsecond if there are none, as usual in a worker."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return {}
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended in the meantime
            before, _, after = (entry / "stat").read_text(errors="replace").rpartition(")")
            if after.split()[_PARENT] == str(os.getpid()):
                found[int(entry.name)] = before.partition("(")[2]
    return found


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
    """Restore the state of the process on exit, as far as the system allows it."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:  # it was removed by another process
        folder = "/"
    umask = os.umask(0o077)  # the umask can only be read by setting it
    os.umask(umask)
    variables = dict(os.environ)
    limits = {limit: resource.getrlimit(limit)[0] for limit in _LIMITS}
    streams = sys.stdin, sys.stdout, sys.stderr
    recursion, collects = sys.getrecursionlimit(), gc.isenabled()
    is_main = threading.current_thread() is threading.main_thread()  # handlers belong to it
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    handlers = {number: signal.getsignal(number) for number in _SIGNALS if is_main}
    try:
        yield
    finally:
        if is_main:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for number, handler in handlers.items():
                if handler is not None and signal.getsignal(number) is not handler:  # None: not set by Python
                    with _QUIETLY:
                        signal.signal(number, handler)
        (gc.enable if collects else gc.disable)()
        with _QUIETLY:
            sys.setrecursionlimit(recursion)
        sys.stdin, sys.stdout, sys.stderr = streams
        for limit, soft in limits.items():
            now, hard = resource.getrlimit(limit)
            if now != soft:
                with _QUIETLY:  # it fails if the hard limit was also lowered
                    resource.setrlimit(limit, (soft, hard))
        if dict(os.environ) != variables:
            for name in os.environ.keys() - variables.keys():
                del os.environ[name]
            os.environ.update(variables)
        os.umask(umask)
        with _QUIETLY:
            try:
                os.chdir(folder)
            except FileNotFoundError:  # it was removed
                os.makedirs(folder, exist_ok=True)
                os.chdir(folder)


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
    host_delay, host_interval = signal.getitimer(signal.ITIMER_REAL)
    began = time.monotonic()
    try:
        signal.signal(signal.SIGALRM, alarm)
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6), again_seconds)
        return call()
    finally:
        is_over = True  # atomic, so that no alarm is raised afterwards
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, host_handler)
        if host_delay > 0.0:
            remaining = max(host_delay - (time.monotonic() - began), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, remaining, host_interval)


@contextlib.contextmanager
def confine(limits: Limits, is_gang: bool = False) -> Iterator[None]:
    """Apply the limits of an expendable process; `is_gang`: whether the attempt has several
    machines.

    Inside, the environment lacks variables with a rank. They belong to the program that started
    Ray, such as srun, and a distributed training in the evaluation would read them as its own.
    """
    with contextlib.ExitStack() as stack:
        if limits.timeout_seconds is not None:  # this deadline holds even while C code holds the interpreter
            seconds = limits.timeout_seconds + grace_seconds(limits.timeout_seconds, is_gang)
            faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)
            stack.callback(faulthandler.cancel_dump_traceback_later)
        stack.enter_context(end_children())
        stack.enter_context(restore_surroundings())
        if limits.memory_bytes is not None:
            stack.enter_context(_memory_bound(limits.memory_bytes))
        if is_gang:
            stack.enter_context(_end_by_signal())
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
def _memory_bound(memory_bytes: int) -> Iterator[None]:
    """Limit the private writable memory of this process to `memory_bytes` more than now.

    RLIMIT_DATA, not RLIMIT_AS: an object store maps gigabytes, shared and mostly untouched.
    """
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            mapped = int(statm.read().split()[5]) * resource.getpagesize()
    except OSError:  # the system does not tell
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [bound for bound in (mapped + memory_bytes, soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
