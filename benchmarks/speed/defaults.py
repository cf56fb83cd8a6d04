"""The CPU time of a suggestion at the defaults: an optimizer with workers that are never idle, in
simulated time."""

import heapq
import time

import numpy as np

from benchmarks.speed.problems import NOISE, load
from benchmarks.speed.rows import Answer
from orchestrator.ask_tell.candidates import CandidateOptimizer

SIGMA = 0.5  # of the log-normal durations


def defaults(arms: int, workers: int, horizon: int, dimension: int = 6, seed: int = 0) -> Answer:
    """CPU seconds of a suggestion with `ask`, `tell` and all refits.

    Args:
        arms: number of candidates, uniform in the unit cube.
        workers: evaluations at the same time.
        horizon: number of evaluations.
        dimension: of the features.
        seed: of the search.

    """
    problem, rng = load("synthetic", arms, dimension), np.random.default_rng([seed, 9])
    optimizer = CandidateOptimizer(problem.features, seed=seed)
    running: list[tuple[float, int]] = []
    chosen: list[int] = []
    now, results, began = 0.0, 0, time.process_time()
    while results < horizon:
        free = min(workers - len(running), horizon - len(chosen))
        for arm in optimizer.ask(free).tolist() if free else ():
            chosen.append(arm)
            heapq.heappush(running, (now + float(rng.lognormal(0.0, SIGMA)), arm))
        now, arm = heapq.heappop(running)
        optimizer.tell([arm], [problem.values[arm] + NOISE * rng.standard_normal()])
        results += 1
    seconds = time.process_time() - began
    return {
        "suggestion": seconds / horizon,
        "seconds": seconds,
        "arms": chosen,
        "dictionary": len(optimizer.dictionary),
    }
