"""`orchestrator.bandit.papers.compressed_ei`: Compressed EI, "CEI" (Bedi, Peddireddy, Aggarwal,
Sadler, Koppel, Algorithm 1 with eq. 2.6; see `compressed`).
"""

import math

import numpy as np
import pytest
from scipy.stats import norm

from orchestrator.bandit.exact.exact import exact_posterior
from orchestrator.bandit.kernels import RBF
from orchestrator.bandit.papers.compressed_ei import CompressedEI
from orchestrator.bandit.pulls import Pulls
from orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.decisions import choice

ARMS = np.random.default_rng(0).random((30, 2))


@pytest.mark.parametrize("epsilon", [-math.inf, -0.5])
def test_pick_has_the_largest_expected_improvement_over_the_best_stored_reward(epsilon: float) -> None:
    strategy = CompressedEI(RBF(0.3), 0.01, epsilon)
    state, rng = strategy.init(ARMS, np.random.default_rng(1)), np.random.default_rng(2)
    was_dropped = was_positive = 0
    pairs: list[tuple[int, float]] = []
    for t in range(40):
        (pick,) = choice(strategy.ask(state, (), 1)).picks
        if t >= 4:
            arms, rewards = zip(*pairs, strict=True)
            mean, variance = exact_posterior(RBF(0.3), ARMS, Pulls.none(30).add(arms, rewards), 0.01)
            deviation = np.sqrt(0.01 * variance)
            z = (mean - max(rewards)) / deviation
            improvement = deviation * norm.pdf(z) + (mean - max(rewards)) * norm.cdf(z)
            assert improvement[pick.arm] == pytest.approx(improvement.max(), rel=1e-5)
            was_positive += improvement.max() > 1e-6
        reward = float(np.sin(5 * ARMS[pick.arm, 0]) + 0.1 * rng.standard_normal())
        state = strategy.tell(state, [Observation(pick.arm, reward)], rng)
        pairs += [(pick.arm, reward)] * (0 in state.stored)
        was_dropped += state.stored == ()
    assert was_positive > 20
    assert (was_dropped > 0) == (epsilon > -math.inf)


def test_improvement_too_small_for_a_float_still_picks_the_likeliest_arm() -> None:
    arms = np.linspace(0, 1, 20)[:, None]
    strategy, rng = CompressedEI(RBF(0.5), 1e-6, -math.inf), np.random.default_rng(0)
    state = strategy.init(arms, rng)
    rows = [Observation(arm, float(arms[arm, 0])) for arm in range(20)] * 4 + [Observation(19, 1.5)]
    state = strategy.tell(state, rows, rng)
    mean, deviation = state.belief.mean, np.sqrt(1e-6 * state.belief.variance)
    z = (mean - 1.5) / deviation
    assert (deviation * norm.pdf(z) + (mean - 1.5) * norm.cdf(z)).max() < 1e-300
    assert choice(strategy.ask(state, (), 1)).picks[0].arm == int(np.argmax(z)) != 0


def test_compressed_ei_has_no_upper_bound() -> None:
    strategy = CompressedEI()
    state = strategy.init(ARMS, np.random.default_rng(0))
    assert np.isnan(strategy.posterior(state).ucb).all()
