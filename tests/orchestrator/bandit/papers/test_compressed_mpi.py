"""`orchestrator.bandit.papers.compressed_mpi`: Compressed "most probable improvement" (Bedi,
Peddireddy, Aggarwal, Sadler, Koppel, Section 4; see `compressed`).
"""

import math

import numpy as np
import pytest
from scipy.stats import norm

from orchestrator.bandit.exact.exact import exact_posterior
from orchestrator.bandit.kernels import RBF
from orchestrator.bandit.papers.compressed_mpi import CompressedMPI
from orchestrator.bandit.pulls import Pulls
from orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.decisions import choice

ARMS = np.random.default_rng(0).random((30, 2))


@pytest.mark.parametrize("epsilon", [-math.inf, -0.5])
def test_pick_has_the_largest_expected_improvement_over_the_best_available_mean(epsilon: float) -> None:
    strategy = CompressedMPI(RBF(0.3), 0.01, epsilon)
    state, rng, was_dropped = strategy.init(ARMS, np.random.default_rng(1)), np.random.default_rng(2), 0
    pairs: list[tuple[int, float]] = []
    for t in range(50):
        (pick,) = choice(strategy.ask(state, (), 1)).picks
        assert pick.arm not in state.set_aside
        if t >= 4:
            arms, rewards = zip(*pairs, strict=True)
            mean, variance = exact_posterior(RBF(0.3), ARMS, Pulls.none(30).add(arms, rewards), 0.01)
            allowed = np.setdiff1d(np.arange(30), state.set_aside)
            deviation = np.sqrt(0.01 * variance)
            z = (mean - mean[allowed].max()) / deviation
            acquisition = deviation * norm.pdf(z) + (mean - mean[allowed].max()) * norm.cdf(z)
            assert acquisition[pick.arm] == pytest.approx(acquisition[allowed].max(), rel=1e-6)
        reward = float(np.sin(5 * ARMS[pick.arm, 0]) + 0.1 * rng.standard_normal())
        # the arm with the best score fails in the middle of the run
        failed = [Observation(int(np.argmax(state.belief.mean)), None)] if t == 25 else []
        state = strategy.tell(state, [Observation(pick.arm, reward), *failed], rng)
        pairs += [(pick.arm, reward)] * (0 in state.stored)
        was_dropped += state.stored == ()
    assert len(state.set_aside) == 1
    assert (was_dropped > 0) == (epsilon > -math.inf)
