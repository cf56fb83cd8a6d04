"""`orchestrator.bandit.papers.compressed_ucb`: Compressed GP-UCB, "CUB" (Bedi, Peddireddy,
Aggarwal, Sadler, Koppel, Algorithm 1 with eq. 2.5; see `compressed`).
"""

import math

import numpy as np
import pytest

from orchestrator.bandit.exact.exact import exact_posterior
from orchestrator.bandit.kernels import RBF
from orchestrator.bandit.papers.compressed_ucb import CompressedUCB
from orchestrator.bandit.pulls import Pulls
from orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.decisions import choice

ARMS = np.random.default_rng(0).random((30, 2))


@pytest.mark.parametrize("epsilon", [-math.inf, -0.5])
def test_pick_is_the_largest_upper_bound_of_the_stored_pairs(epsilon: float) -> None:
    strategy = CompressedUCB(RBF(0.3), 0.01, epsilon, delta=0.2)
    state, rng, was_dropped = strategy.init(ARMS, np.random.default_rng(1)), np.random.default_rng(2), False
    pairs: list[tuple[int, float]] = []
    for t in range(1, 40):
        (pick,) = choice(strategy.ask(state, (), 1)).picks
        if t > 4:
            stored = Pulls.none(30).add(*zip(*pairs, strict=True))
            mean, variance = exact_posterior(RBF(0.3), ARMS, stored, 0.01)
            beta = 2 * math.log(30 * t**2 * math.pi**2 / (6 * 0.2))
            bound = mean + np.sqrt(beta * 0.01 * variance)
            assert bound[pick.arm] == pytest.approx(bound.max(), abs=1e-9)
            assert pick.mean + pick.width * math.sqrt(pick.variance) == pytest.approx(bound.max(), abs=1e-9)
            np.testing.assert_allclose(strategy.posterior(state).ucb, bound, atol=1e-9)
        reward = float(np.sin(5 * ARMS[pick.arm, 0]) + 0.1 * rng.standard_normal())
        state = strategy.tell(state, [Observation(pick.arm, reward)], rng)
        pairs += [(pick.arm, reward)] * (0 in state.stored)
        was_dropped |= state.stored == ()
    assert was_dropped == (epsilon > -math.inf)


def test_ties_go_to_the_lowest_arm_that_may_be_chosen() -> None:
    strategy, rng = CompressedUCB(), np.random.default_rng(0)
    state = strategy.init(np.zeros((6, 1)), rng)
    rows = [Observation(arm, 0.5) for arm in state.initial] + [Observation(0, None)]
    state = strategy.tell(state, rows, rng)
    assert choice(strategy.ask(state, (), 1)).picks[0].arm == 1
