"""Waiting for a condition that another process or thread fulfills."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bbkb.workers.executor import Executor
from bbkb.workers.messages import Outcome

T = TypeVar("T")


def wait_until(holds: Callable[[], T], what: str = "it did not happen", seconds: float = 240.0) -> T:
    """Wait until `holds` returns a true value, and return it; fails with `what` after `seconds`."""
    give_up = time.monotonic() + seconds
    while not (answer := holds()):
        assert time.monotonic() < give_up, what
        time.sleep(0.02)
    return answer


def is_alive(pid: int) -> bool:
    """Return whether the process runs. A process that has ended but was not reaped does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def drain(executor: Executor) -> dict[int, Outcome]:
    """Take all outcomes, by trial, until nothing runs."""
    outcomes: dict[int, Outcome] = {}
    while batch := executor.next_outcomes(None):
        outcomes.update({outcome.trial: outcome for outcome in batch})
    return outcomes
