"""The objective: it sleeps, and records its start and end in its own file, so that executions can
be counted independently of the log.

    <seed> start|finish <when it began> <now> <pid> <node> actor|task <port> <rank>

The ranks of an evaluation on several machines have the same seed and port. Each rank starts a child
process, which must end with it. The workers of a trainer are the ranks above 0.
"""

import os
import random
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import ray

from bbkb.objectives.objective import Machine, free_port
from benchmarks.chaos.cluster import node_of_this_process

NOTES = "BBKB_CHAOS_NOTES"  # the folder of the records
SECONDS = "BBKB_CHAOS_SECONDS"  # seconds of the shortest and the longest evaluation
CHILD = "sleep"  # the program that each rank of an evaluation on several machines starts


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of the objective, from its record; times are wall-clock seconds."""

    seed: int
    pid: int
    node: str
    place: str  # actor or task
    began: float
    ended: float | None = None  # None if killed
    others: tuple[tuple[int, str], ...] = ()  # process and node of each rank after the first

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of all ranks."""
        return (self.pid, *(pid for pid, _ in self.others))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of all ranks."""
        return (self.node, *(node for _, node in self.others))

    @property
    def identity(self) -> tuple[float, float]:
        """Process and start, which a result in the log has as metrics."""
        return (float(self.pid), self.began)

    def covers(self, moment: float) -> bool:
        """Whether it was running at this moment."""
        return self.began <= moment and (self.ended is None or moment < self.ended)


def evaluate(x: float, seed: int, machine: Machine) -> Mapping[str, float]:
    """A parabola, after a sleep of `duration`. The metrics identify the execution of rank 0."""
    began = time.time()
    note(seed, "start", began, machine.port, machine.rank)
    if machine.count > 1:
        subprocess.Popen([CHILD, "100000"])
    sleep_for(seed)
    note(seed, "finish", began, machine.port, machine.rank)
    return result(x, began)


def evaluate_with_trainer(x: float, seed: int) -> Mapping[str, float]:
    """Like `evaluate`, but a trainer of Ray Train sleeps on two workers, the ranks 1 and 2."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.xgboost import XGBoostTrainer

    began, port = time.time(), free_port()
    note(seed, "start", began, port, rank=0)
    scaling = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1})
    settings = {"seed": seed, "port": port}
    XGBoostTrainer(
        _sleep_on_each,
        train_loop_config=settings,
        scaling_config=scaling,
        run_config=RunConfig(storage_path=os.environ["RAY_TMPDIR"]),
    ).fit()
    note(seed, "finish", began, port, rank=0)
    return result(x, began)


def _sleep_on_each(config: dict[str, int]) -> None:
    """Sleep on each worker of the trainer, until all have slept."""
    from ray.train import get_context
    from xgboost import collective

    rank = 1 + get_context().get_world_rank()
    note(config["seed"], "start", time.time(), config["port"], rank)
    sleep_for(config["seed"])
    collective.allreduce(np.ones(1), collective.Op.SUM)


def note(seed: int, what: str, began: float, port: int, rank: int) -> None:
    """Append a record."""
    place = "task" if ray.get_runtime_context().get_actor_id() is None else "actor"
    node = node_of_this_process() or "-"
    line = f"{seed} {what} {began!r} {time.time()!r} {os.getpid()} {node} {place} {port} {rank}\n"
    file = os.open(os.environ[NOTES], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, line.encode())  # in one call, so that lines of several processes do not mix
    finally:
        os.close(file)


def sleep_for(seed: int) -> None:
    """Sleep for the `duration` of this evaluation."""
    shortest, longest = map(float, os.environ[SECONDS].split())
    time.sleep(duration(seed, shortest, longest))


def result(x: float, began: float) -> Mapping[str, float]:
    """The value at x, and the metrics that identify the execution."""
    return {"value": 1.0 - (x - 0.3) ** 2, "pid": float(os.getpid()), "began": began}


def duration(seed: int, shortest: float, longest: float) -> float:
    """Seconds, log-uniform between the two; the same for all attempts of a trial."""
    return float(shortest * (longest / shortest) ** random.Random(seed).random())


def executions(notes: Path) -> list[Execution]:
    """All recorded executions, in the order of their starts."""
    by_process: dict[tuple[int, float], Execution] = {}
    gangs: dict[tuple[int, float], tuple[str, str]] = {}  # seed and port of each execution
    others: defaultdict[tuple[str, str], set[tuple[int, str]]] = defaultdict(set)
    for line in notes.read_text().splitlines() if notes.exists() else ():
        seed, what, began, now, pid, node, place, port, rank = line.split()
        if rank != "0":
            others[seed, port].add((int(pid), node))
            continue
        gangs[int(pid), float(began)] = seed, port
        ended = float(now) if what == "finish" else None
        by_process[int(pid), float(began)] = Execution(int(seed), int(pid), node, place, float(began), ended)
    whole = [replace(execution, others=tuple(sorted(others[gangs[key]]))) for key, execution in by_process.items()]
    return sorted(whole, key=lambda execution: execution.began)
