"""Evaluations on workers in simulated time: the loop of the comparisons.

The n-th evaluation has the same duration and the same noise with every method: both are drawn from
(seed, n). Suggestions take no simulated time.
"""

import heapq
from collections.abc import Callable

import numpy as np

from orchestrator.errors import CampaignError

SIGMA = 0.5  # of the log-normal durations
_NOISE = 11  # stream of random numbers
_DURATION = 12


def noise_of(seed: int, number: int) -> np.random.Generator:
    """The random numbers of the noise of evaluation `number`."""
    return np.random.default_rng([seed, _NOISE, number])


def duration_of(seed: int, number: int) -> float:
    """The duration of evaluation `number`; their mean is 1."""
    deviate = np.random.default_rng([seed, _DURATION, number]).standard_normal()
    return float(np.exp(SIGMA * deviate - SIGMA**2 / 2))


def play(
    workers: int, evaluations: int, begin: Callable[[int], float | None], finish: Callable[[int], None], name: str
) -> None:
    """Begin evaluations 0, 1, … whenever a worker is free, and finish them in the order of their
    ends.

    Args:
        workers: evaluations at the same time.
        evaluations: their number.
        begin: begins evaluation n; its duration, None: it waits for results.
        finish: finishes evaluation n.
        name: of the search, for the error.

    Raises:
        CampaignError: when `begin` waits while nothing runs.
    """
    running: list[tuple[float, int]] = []
    begun, now = 0, 0.0
    for _ in range(evaluations):
        while len(running) < workers and begun < evaluations and (duration := begin(begun)) is not None:
            heapq.heappush(running, (now + duration, begun))
            begun += 1
        if not running:
            raise CampaignError(f"{name} waits for results while nothing is running")
        now, number = heapq.heappop(running)
        finish(number)
