"""Runs of the strategies that choose by improvement, beside a dense Gaussian process."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.kernels import RBF
from orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.decisions import choice

NOISE = 0.04


def picks_beside_dense(
    strategy: Callable[[RBF, float], Any], seed: int, pulls: int = 20
) -> Iterator[tuple[int, Floats, Floats]]:
    """Yield, for each pull after the first, the arm that the strategy picks, and the mean and
    deviation of all arms by a dense Gaussian process."""
    rng = np.random.default_rng(seed)
    arms = rng.random((25, 2))
    kernel = RBF(0.3)
    chooser = strategy(kernel, NOISE)
    state = chooser.init(arms, rng)
    pulled: list[int] = []
    rewards: list[float] = []
    for t in range(pulls):
        (pick,) = choice(chooser.ask(state, (), 3)).picks
        if t:
            cross: np.ndarray = kernel.cross(arms, arms[pulled])  # one row per pull, repeated arms included
            weights: np.ndarray = np.linalg.solve(cross[pulled] + NOISE * np.eye(t), cross.T)
            yield pick.arm, weights.T @ rewards, np.sqrt(1 - np.einsum("ap,pa->a", cross, weights))
        pulled.append(pick.arm)
        rewards.append(float(np.sin(5 * arms[pick.arm, 0]) + 0.2 * rng.standard_normal()))
        state = chooser.tell(state, [Observation(pick.arm, rewards[-1])], rng)
