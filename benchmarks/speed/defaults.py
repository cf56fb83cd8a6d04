"""The CPU time of a suggestion at the defaults: an optimizer with workers that are never idle, in
simulated time."""

import time

import numpy as np

from benchmarks.simulated import SIGMA, play
from benchmarks.speed.problems import NOISE, load
from benchmarks.speed.rows import Answer
from orchestrator.ask_tell.candidates import CandidateOptimizer


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
    picked_arms: list[int] = []

    def begin(number: int) -> float:
        if number == len(picked_arms):  # all workers are free at the start
            picked_arms.extend(map(int, optimizer.ask(min(workers, horizon) if number == 0 else 1)))
        return float(rng.lognormal(0.0, SIGMA))

    def finish(number: int) -> None:
        arm = picked_arms[number]
        optimizer.tell([arm], [problem.values[arm] + NOISE * rng.standard_normal()])

    began = time.process_time()
    play(workers, horizon, begin, finish, "the default optimizer")
    seconds = time.process_time() - began
    return {
        "suggestion": seconds / horizon,
        "seconds": seconds,
        "arms": picked_arms,
        "dictionary": len(optimizer.dictionary),
    }
