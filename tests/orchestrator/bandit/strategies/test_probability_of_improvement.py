"""`orchestrator.bandit.strategies.probability_of_improvement`: Probability of improvement on the
best belief, exact (Salgia, Vakili, Zhao 2021, Appendix D.1; see `improvement`).
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from orchestrator.bandit.kernels import RBF
from orchestrator.bandit.strategies.probability_of_improvement import ProbabilityOfImprovement
from orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.decisions import choice


@given(seed=st.integers(0, 10**6), margin=st.sampled_from([0.01, 0.3]))
def test_every_pick_has_the_largest_probability_of_improvement_of_a_dense_gaussian_process(
    seed: int, margin: float
) -> None:
    rng = np.random.default_rng(seed)
    arms = rng.random((25, 2))
    strategy = ProbabilityOfImprovement(RBF(0.3), 0.04, margin)
    state = strategy.init(arms, rng)
    pulled: list[int] = []
    rewards: list[float] = []
    for t in range(20):
        (pick,) = choice(strategy.ask(state, (), 3)).picks
        if t:
            cross: np.ndarray = RBF(0.3).cross(arms, arms[pulled])  # one row a pull, repeated arms included
            weights: np.ndarray = np.linalg.solve(cross[pulled] + 0.04 * np.eye(t), cross.T)
            mean, deviation = weights.T @ rewards, np.sqrt(1 - np.einsum("ap,pa->a", cross, weights))
            probability = norm.cdf((mean - mean.max() - margin) / deviation)
            assert probability[pick.arm] >= probability.max() * (1 - 1e-7)
        pulled.append(pick.arm)
        rewards.append(float(np.sin(5 * arms[pick.arm, 0]) + 0.2 * rng.standard_normal()))
        state = strategy.tell(state, [Observation(pick.arm, rewards[-1])], rng)


def test_probabilities_that_round_to_nothing_are_still_ranked_and_a_certain_arm_below_the_target_comes_last() -> None:
    scores = ProbabilityOfImprovement().improvement(np.array([0.0, 0.9, 0.5]), np.array([1e-3, 0.0, 1e-3]), 1.0)
    assert np.argsort(scores).tolist() == [1, 0, 2]
    assert norm.cdf(scores).tolist() == [0, 0, 0]


def test_without_a_margin_a_certain_best_arm_is_as_likely_as_not() -> None:
    assert norm.cdf(ProbabilityOfImprovement(margin=0.0).improvement(np.ones(1), np.zeros(1), 1.0)) == 0.5
