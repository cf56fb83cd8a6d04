"""One search in simulated time, with `workers` evaluations at the same time."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.goals.methods import Method
from benchmarks.goals.problems import Table
from benchmarks.simulated import duration_of, noise_of, play

MARKS = (50, 100, 200)  # results after which the loss is computed


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished search."""

    problem: str  # the name of the problem
    method: str  # the name of the optimiser
    workers: int  # how many evaluate at the same time
    seed: int  # of the search
    losses: Sequence[float]  # the loss after each of MARKS results
    # the number of results until the first feasible one; 0 when there is none, or no constraint
    feasible: int
    best: int  # the number of results until the best feasible one of this search; 0 likewise
    milliseconds: float  # CPU time of `ask` and `tell` for each suggestion


def search(problem: Table, method: Method, name: str, workers: int, seed: int) -> Record:
    """Run one search of MARKS[-1] evaluations.

    Args:
        problem: the table that is searched.
        method: the optimiser.
        name: its name in the record.
        workers: evaluations at the same time.
        seed: gives the noise and the durations, which are the same for all methods.

    """
    rows: list[int] = []
    evaluated: list[int] = []
    spent = 0.0

    def begin(number: int) -> float:
        nonlocal spent
        began = time.process_time()
        rows.append(method.ask(number))
        spent += time.process_time() - began
        recorded = problem.table.durations
        return duration_of(seed, number) if recorded is None else float(recorded[rows[-1]])

    def finish(number: int) -> None:
        nonlocal spent
        accuracy, cost = problem.evaluate(rows[number], noise_of(seed, number))
        began = time.process_time()
        method.tell(number, accuracy, cost)
        spent += time.process_time() - began
        evaluated.append(rows[number])

    play(workers, MARKS[-1], begin, finish, f"{name} on {problem.name}")
    order = np.array(evaluated)
    feasible, best = _count_on_front(problem, order)
    return Record(
        problem=problem.name,
        method=name,
        workers=workers,
        seed=seed,
        losses=[problem.loss(order[:mark]) for mark in MARKS],
        feasible=feasible,
        best=best,
        milliseconds=1e3 * spent / MARKS[-1],
    )


def _count_on_front(problem: Table, order: np.ndarray) -> tuple[int, int]:
    if problem.limit is None:
        return 0, 0
    within = problem.costs[order] <= problem.limit
    worth = np.where(within, problem.accuracies[order], -np.inf)
    return (int(within.argmax()) + 1, int(worth.argmax()) + 1) if within.any() else (0, 0)
