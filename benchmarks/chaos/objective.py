"""The objective: it sleeps, and records its start and end in its own file, so that executions can
be counted independently of the log.

    <seed> start|finish <when it began> <now> <pid> <node> actor|task
"""

import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ray

from benchmarks.chaos.cluster import node_of_this_process

NOTES = "BBKB_CHAOS_NOTES"  # the folder of the records
SECONDS = "BBKB_CHAOS_SECONDS"  # seconds of the shortest and the longest evaluation


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of the objective, from its record; times are wall-clock seconds. `ended`: None
    when killed."""

    seed: int
    pid: int
    node: str
    place: str  # actor or task
    began: float
    ended: float | None = None

    def covers(self, moment: float) -> bool:
        """Whether it was running at this moment."""
        return self.began <= moment and (self.ended is None or moment < self.ended)


def evaluate(x: float, seed: int) -> Mapping[str, float]:
    """A parabola, after a sleep of `duration`. The metrics identify the execution."""
    began = time.time()
    place = "task" if ray.get_runtime_context().get_actor_id() is None else "actor"

    def note(what: str) -> None:
        line = f"{seed} {what} {began!r} {time.time()!r} {os.getpid()} {node_of_this_process() or '-'} {place}\n"
        file = os.open(os.environ[NOTES], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, line.encode())  # in one call, so that lines of several processes do not mix
        finally:
            os.close(file)

    note("start")
    shortest, longest = map(float, os.environ[SECONDS].split())
    time.sleep(duration(seed, shortest, longest))
    note("finish")
    return {"value": 1.0 - (x - 0.3) ** 2, "pid": float(os.getpid()), "began": began}


def duration(seed: int, shortest: float, longest: float) -> float:
    """Seconds, log-uniform between the two; the same for all attempts of a trial, which share their
    seed."""
    return float(shortest * (longest / shortest) ** random.Random(seed).random())


def executions(notes: Path) -> list[Execution]:
    """All recorded executions, in the order of their starts."""
    found: dict[tuple[int, float], Execution] = {}
    for line in notes.read_text().splitlines() if notes.exists() else ():
        seed, what, began, now, pid, node, place = line.split()
        ended = float(now) if what == "finish" else None
        found[int(pid), float(began)] = Execution(int(seed), int(pid), node, place, float(began), ended)
    return sorted(found.values(), key=lambda execution: execution.began)
