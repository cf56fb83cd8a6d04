"""Ends all processes that an evaluation has started, including detached ones, when the evaluation
ends.

Ray ends a worker's children when the worker dies. But a worker runs several evaluations, and a
process left over from one would continue beside the next. A worker process therefore inherits the
orphans below it (Linux's "child subreaper"), so everything that an evaluation started can
afterwards be found among the worker's children. When the worker itself dies, Ray does not find a
detached child. A watcher process, which notices the end of a pipe, finds it by a mark in its
environment. A process forked without starting a program has no mark and is not found.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

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


@contextlib.contextmanager
def end_children() -> Iterator[None]:
    """On exit, kill every process that was started inside. For worker processes."""
    _prepare()
    before = _children()
    try:
        yield
    finally:
        for _ in range(_GENERATIONS):  # children of a killed process become ours
            started = [pid for pid in _children() - before if not _is_harmless(pid)]
            for pid in started:
                _end(pid)
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
    os.register_at_fork(before=_hold_back, after_in_parent=_release, after_in_child=_release_with_default)


def _hold_back() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _release_with_default() -> None:
    """Let SIGTERM end a forked process. Ray's handler, which it inherits, raises an exception, and
    Python drops one that is raised while the fork is completed: `Pool.terminate` would wait for ever."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _release()


def _children() -> set[int]:
    """Return pids of this process's children. Takes a microsecond if there are none, as usual."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()
    own_pid = str(os.getpid())
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _parent(entry) == own_pid}


def _parent(entry: Path) -> str:
    try:
        stat = (entry / "stat").read_text(errors="replace")
    except OSError:  # it has ended in the meantime
        return ""
    return stat.rpartition(")")[2].split()[_PARENT]


def _is_harmless(pid: int) -> bool:
    try:
        return _HARMLESS in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _end(pid: int) -> None:
    """Kill a process and read its exit code, unless a waiting thread has done so."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
