"""`orchestrator.bandit.strategies.expected_improvement`: Expected improvement over the best belief,
exact (Salgia, Vakili, Zhao 2021, Appendix D.1; see `improvement`).
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from orchestrator.bandit.kernels import RBF
from orchestrator.bandit.strategies.expected_improvement import ExpectedImprovement
from orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.decisions import choice


@given(seed=st.integers(0, 10**6), margin=st.sampled_from([0.0, 0.01, 0.3]))
def test_every_pick_has_the_largest_expected_improvement_of_a_dense_gaussian_process(seed: int, margin: float) -> None:
    rng = np.random.default_rng(seed)
    arms = rng.random((25, 2))
    strategy = ExpectedImprovement(RBF(0.3), 0.04, margin)
    state = strategy.init(arms, rng)
    pulled: list[int] = []
    rewards: list[float] = []
    for t in range(20):
        (pick,) = choice(strategy.ask(state, (), 3)).picks
        if t:
            cross: np.ndarray = RBF(0.3).cross(arms, arms[pulled])  # one row a pull, repeated arms included
            weights: np.ndarray = np.linalg.solve(cross[pulled] + 0.04 * np.eye(t), cross.T)
            mean, deviation = weights.T @ rewards, np.sqrt(1 - np.einsum("ap,pa->a", cross, weights))
            gain = mean - mean.max() - margin
            improvement = gain * norm.cdf(gain / deviation) + deviation * norm.pdf(gain / deviation)
            assert improvement[pick.arm] >= improvement.max() * (1 - 1e-7)
        pulled.append(pick.arm)
        rewards.append(float(np.sin(5 * arms[pick.arm, 0]) + 0.2 * rng.standard_normal()))
        state = strategy.tell(state, [Observation(pick.arm, rewards[-1])], rng)


def test_improvements_too_small_for_a_float_are_still_ranked() -> None:
    scores = ExpectedImprovement().improvement(np.array([0.0, 0.1, 0.05]), np.full(3, 1e-3), 1.0)
    assert np.argsort(scores).tolist() == [0, 2, 1]
    assert np.exp(scores).max() == pytest.approx(0.0, abs=0)
