"""Processes with a mark in their environment, which children inherit. No other process can be found
or killed."""

import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

_PROC = Path("/proc")
_VARIABLE = "BBKB_CHAOS_MARK"
_DEAD_STATES = "ZX"  # ended, and its parent has not read its exit code yet
_LOOK_SECONDS = 0.02

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Mark:
    """A value in the environment that identifies the processes of one benchmark."""

    value: str = field(default_factory=lambda: uuid.uuid4().hex)

    def environment(self, **variables: str) -> dict[str, str]:
        """This process's environment with the mark and the variables `variables`, for a process to be
        started."""
        return {**os.environ, _VARIABLE: self.value, **variables}

    def is_on(self, pid: int) -> bool:
        """Whether this process has the mark and runs."""
        return self.value == environment_of(pid).get(_VARIABLE)

    def pids(self, **variables: str) -> list[int]:
        """The ids, ascending, of other running processes with the mark and `variables` in their
        environment."""
        required = {_VARIABLE: self.value, **variables}.items()
        numbers = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
        return sorted(pid for pid in numbers if pid != os.getpid() and required <= environment_of(pid).items())

    def kill(self, pid: int) -> bool:
        """Send SIGKILL to a process with the mark; False when it has ended or does not have the
        mark."""
        if not self.is_on(pid):
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def end_all(self, seconds: float = 10.0) -> None:
        """Kill all processes with the mark. Raises TimeoutError when some have not ended after
        `seconds`."""
        deadline = time.monotonic() + seconds
        while pids := self.pids():
            for pid in pids:
                self.kill(pid)
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes must end when they are killed; these still run: {pids}")
            time.sleep(_LOOK_SECONDS)


def environment_of(pid: int) -> Mapping[str, str]:
    """The environment that this process started with; empty when it has ended or may not be
    read."""
    try:
        if (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] in _DEAD_STATES:
            return {}
        text = (_PROC / str(pid) / "environ").read_text(errors="replace")
    except OSError:
        return {}
    return dict(entry.partition("=")[::2] for entry in text.split("\0") if "=" in entry)


def age_of(pid: int) -> float:
    """Seconds since this process started, to a hundredth; 0 when it has ended."""
    try:
        began = int((_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])
    except OSError:
        return 0.0
    return float((_PROC / "uptime").read_text().split()[0]) - began / os.sysconf("SC_CLK_TCK")


def parent_of(pid: int) -> int | None:
    """The parent of this process, None when the process has ended."""
    try:
        return int(psutil.Process(pid).ppid())
    except psutil.NoSuchProcess:
        return None


def program_of(pid: int) -> str:
    """The file name of the program that this process runs; empty when it has ended."""
    try:
        return Path(os.readlink(_PROC / str(pid) / "exe")).name
    except OSError:
        return ""


def title_of(pid: int) -> str:
    """The command line of this process, which Ray's workers replace by their task; empty when it
    has ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def wait_for(find: Callable[[], Found | None], seconds: float, what: str) -> Found:
    """Call `find` until its result is true, and return it. Raises TimeoutError, naming `what`,
    after `seconds`.

    Pauses are four times as long as the calls at least, so that waiting does not slow
    down the awaited work.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if answer := find():
            return answer
        ended = time.monotonic()
        if ended > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(max(_LOOK_SECONDS, 4 * (ended - began)))
