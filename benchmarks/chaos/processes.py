"""Processes with a mark in their environment, which children inherit: only these can be killed."""

import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

_VARIABLE = "BBKB_CHAOS_MARK"
_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)  # the parent has not read the exit code yet
_LOOK_SECONDS = 0.02

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Mark:
    """A value in the environment that identifies the processes of one benchmark."""

    value: str = field(default_factory=lambda: uuid.uuid4().hex)

    def environment(self, **variables: str) -> dict[str, str]:
        """This process's environment with the mark and `variables`, for a new process."""
        return {**os.environ, _VARIABLE: self.value, **variables}

    def is_on(self, pid: int) -> bool:
        """Whether this process has the mark and runs."""
        return self.value == environment_of(pid).get(_VARIABLE)

    def pids(self, **variables: str) -> list[int]:
        """The ids of other running processes with the mark and `variables` in their environment."""
        required = {_VARIABLE: self.value, **variables}.items()
        others = [pid for pid in psutil.pids() if pid != os.getpid()]
        return sorted(pid for pid in others if required <= environment_of(pid).items())

    def kill(self, pid: int) -> bool:
        """Send SIGKILL to a process with the mark; False if it has ended or has no mark."""
        if not self.is_on(pid):
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def end_all(self, seconds: float = 10.0) -> None:
        """Kill all processes with the mark. Raises TimeoutError if some have not ended by then."""
        deadline = time.monotonic() + seconds
        while pids := self.pids():
            for pid in pids:
                self.kill(pid)
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes must end when they are killed; these still run: {pids}")
            time.sleep(_LOOK_SECONDS)


def environment_of(pid: int) -> Mapping[str, str]:
    """The environment that this process started with; empty if it has ended."""
    return _ask(pid, psutil.Process.environ, {})


def age_of(pid: int) -> float:
    """Seconds since this process started; 0 if it has ended."""
    return _ask(pid, lambda process: time.time() - process.create_time(), 0.0)


def parent_of(pid: int) -> int | None:
    """The parent of this process, None if the process has ended."""
    parent: int | None = _ask(pid, psutil.Process.ppid, None)
    return parent


def program_of(pid: int) -> str:
    """The file name of the program that this process runs; empty if it has ended."""
    return _ask(pid, lambda process: Path(process.exe()).name, "")


def title_of(pid: int) -> str:
    """The command line of this process, or the task of a worker of Ray; empty if it has ended."""
    return _ask(pid, lambda process: " ".join(process.cmdline()).strip(), "")


def _ask(pid: int, question: Callable[[Any], Found], otherwise: Found) -> Found:
    """Return the answer of a running process; `otherwise` if it has ended or is not readable."""
    try:
        process = psutil.Process(pid)
        return otherwise if process.status() in _ENDED else question(process)
    except (psutil.Error, OSError):
        return otherwise


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
