"""Processes that carry a mark in their environment, which children inherit: nothing else can be found, or hit."""

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
_DEAD_STATES = "ZX"  # ended, and its parent has not asked yet how
_LOOK_SECONDS = 0.02

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Mark:
    """What tells our processes from all others. A new one for each harness."""

    value: str = field(default_factory=lambda: uuid.uuid4().hex)

    def environment(self, **more: str) -> dict[str, str]:
        """This process's environment with the mark and `more`, for a process to be started."""
        return {**os.environ, _VARIABLE: self.value, **more}

    def is_on(self, pid: int) -> bool:
        """Whether this process is ours and alive."""
        return self.value == environment_of(pid).get(_VARIABLE)

    def pids(self, **more: str) -> list[int]:
        """All of ours that are alive and have `more` in their environment, by number; never this process itself."""
        wanted = {_VARIABLE: self.value, **more}.items()
        numbers = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
        return sorted(pid for pid in numbers if pid != os.getpid() and wanted <= environment_of(pid).items())

    def kill(self, pid: int) -> bool:
        """SIGKILL to one of ours; False when it is gone, or is not ours."""
        if not self.is_on(pid):
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def end_all(self, seconds: float = 10.0) -> None:
        """Kill all of ours until none is left. Raises TimeoutError when some do not die."""
        deadline = time.monotonic() + seconds
        while pids := self.pids():
            for pid in pids:
                self.kill(pid)
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes must end when they are killed, these are left: {pids}")
            time.sleep(_LOOK_SECONDS)


def environment_of(pid: int) -> Mapping[str, str]:
    """The environment that this process began with; empty when it has ended or is not ours to read."""
    try:
        if (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] in _DEAD_STATES:
            return {}
        text = (_PROC / str(pid) / "environ").read_text(errors="replace")
    except OSError:
        return {}
    return dict(entry.partition("=")[::2] for entry in text.split("\0") if "=" in entry)


def age_of(pid: int) -> float:
    """Seconds since this process began, to a hundredth; 0 when it has ended."""
    try:
        began = int((_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])
    except OSError:
        return 0.0
    return float((_PROC / "uptime").read_text().split()[0]) - began / os.sysconf("SC_CLK_TCK")


def parent_of(pid: int) -> int | None:
    """The process that began this one, None when it has ended."""
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
    """The command line of this process, which Ray's workers replace by what they do; empty when it has ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def wait_for(found: Callable[[], Found | None], seconds: float, what: str) -> Found:
    """The first answer of `found` that is not empty. Raises TimeoutError, naming `what`, when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(_LOOK_SECONDS)
    return answer
