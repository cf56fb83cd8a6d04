"""One search in simulated time, with `workers` evaluations at the same time.

The n-th evaluation has the same duration and the same noise with every method."""

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.goals.methods import Method
from benchmarks.goals.problems import Table
from benchmarks.peers.search import SIGMA

MARKS = (50, 100, 200)  # results after which the loss is computed
_NOISE, _DURATION = 11, 12  # streams of random numbers


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished search.

    Attributes:
        problem: the name of the problem.
        method: the name of the optimiser.
        workers: how many evaluate at the same time.
        seed: of the search.
        losses: the loss after each of MARKS results.
        feasible: the number of results until the first feasible one; 0 when there is none, or no
            constraint.
        best: the number of results until the best feasible one of this search; 0 likewise.
        milliseconds: CPU time of `ask` and `tell` for each suggestion.
    """

    problem: str
    method: str
    workers: int
    seed: int
    losses: Sequence[float]
    feasible: int
    best: int
    milliseconds: float


def search(problem: Table, method: Method, name: str, workers: int, seed: int) -> Record:
    """Run one search of MARKS[-1] evaluations.

    Args:
        problem: the table that is searched.
        method: the optimiser.
        name: its name in the record.
        workers: evaluations at the same time.
        seed: gives the noise and the durations, which are the same for all methods.

    """
    evaluations = MARKS[-1]
    running: list[tuple[float, int]] = []
    rows: list[int] = []
    evaluated: list[int] = []
    now, spent = 0.0, 0.0
    while len(evaluated) < evaluations:
        while len(running) < workers and len(rows) < evaluations:
            began = time.process_time()
            rows.append(method.ask(len(rows)))
            spent += time.process_time() - began
            drawn = np.random.default_rng([seed, _DURATION, len(rows) - 1]).standard_normal()
            lasts = float(np.exp(SIGMA * drawn - SIGMA**2 / 2))
            if problem.table.durations is not None:
                lasts = float(problem.table.durations[rows[-1]])
            heapq.heappush(running, (now + lasts, len(rows) - 1))
        now, number = heapq.heappop(running)
        accuracy, cost = problem.evaluate(rows[number], np.random.default_rng([seed, _NOISE, number]))
        began = time.process_time()
        method.tell(number, accuracy, cost)
        spent += time.process_time() - began
        evaluated.append(rows[number])
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
        milliseconds=1e3 * spent / evaluations,
    )


def _count_on_front(problem: Table, order: np.ndarray) -> tuple[int, int]:
    if problem.limit is None:
        return 0, 0
    within = problem.costs[order] <= problem.limit
    worth = np.where(within, problem.accuracies[order], -np.inf)
    return (int(within.argmax()) + 1, int(worth.argmax()) + 1) if within.any() else (0, 0)
