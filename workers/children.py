"""Ends all processes that an evaluation has started when it ends, also those that detached
themselves.

Ray ends a worker's children when the worker dies, but a worker runs the next evaluation, and a
process that the previous one left would continue beside it without end. A worker process therefore
inherits the orphans below it (Linux's "child subreaper"), so everything an evaluation started can
be found among its own children afterwards. When the worker itself dies, Ray does not find a child
that has detached itself. A watcher process, which notices the end of a pipe, finds it by a mark in
its environment. A process that was forked and did not start a program has no mark and is not found.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

MARK = "BBKB_WORKER"  # in the environment of all processes that a worker process starts
# It runs in the background of a shell that ends immediately. A background process has no input
# unless it is passed.
_WATCHER = """
exec 3<&0
(read -r _ <&3
for file in $(grep -als "$1" /proc/[0-9]*/environ); do
    pid=${file#/proc/}
    kill -KILL "${pid%/environ}"
done) >/dev/null 2>&1 &
"""
_SET_CHILD_SUBREAPER = 36  # of prctl(2)
_GENERATIONS = 100  # of processes that start others while they are being ended
_PARENT = 1  # index of the parent's process id in /proc/<pid>/stat, after the command's name
# Python's own, shared by all evaluations of a process: it ends by itself, and must not be ended.
_HARMLESS = b"resource_tracker"


@contextlib.contextmanager
def end_children() -> Iterator[None]:
    """Kill, on exit, every process that was started inside: for worker processes."""
    _prepare()
    before = _children()
    try:
        yield
    finally:
        for _ in range(_GENERATIONS):  # children of an ended process become children of this one
            started = [pid for pid in _children() - before if not _is_harmless(pid)]
            for pid in started:
                _end(pid)
            if not started:
                break


@lru_cache(maxsize=1)
def _prepare() -> None:
    """Prepare once per process. Without a subreaper only attached children are found."""
    _watch()  # first, so that the watcher is not one of the children
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _watch() -> None:
    """Start the watcher, which ends the marked processes when this one is gone."""
    mark = uuid.uuid4().hex
    reading, writing = os.pipe()  # only the end of this process closes the writing end
    script = ["/bin/sh", "-c", _WATCHER, "bbkb", f"{MARK}={mark}"]
    subprocess.run(script, stdin=reading, start_new_session=True, check=True)
    os.close(reading)
    os.set_inheritable(writing, False)
    os.environ[MARK] = mark


def _children() -> set[int]:
    """Return pids of this process's children. Costs a microsecond when there is none, as usual."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()
    own_pid = str(os.getpid())
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _parent(entry) == own_pid}


def _parent(entry: Path) -> str:
    try:
        stat = (entry / "stat").read_text(errors="replace")
    except OSError:  # it has ended meanwhile
        return ""
    return stat.rpartition(")")[2].split()[_PARENT]


def _is_harmless(pid: int) -> bool:
    try:
        return _HARMLESS in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _end(pid: int) -> None:
    """Kill it and read its exit code; another thread that waits for it may do either first."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
