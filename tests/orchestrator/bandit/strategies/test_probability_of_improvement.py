"""`orchestrator.bandit.strategies.probability_of_improvement`: Probability of improvement on the
best belief, exact (Salgia, Vakili, Zhao 2021, Appendix D.1; see `improvement`).
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from orchestrator.bandit.strategies.probability_of_improvement import ProbabilityOfImprovement
from tests.orchestrator.bandit.improvement_runs import picks_beside_dense


@given(seed=st.integers(0, 10**6), margin=st.sampled_from([0.01, 0.3]))
def test_pick_has_the_largest_probability_of_improvement_of_a_dense_gaussian_process(seed: int, margin: float) -> None:
    for arm, mean, deviation in picks_beside_dense(
        lambda kernel, noise: ProbabilityOfImprovement(kernel, noise, margin=margin), seed
    ):
        probability = norm.cdf((mean - mean.max() - margin) / deviation)
        assert probability[arm] >= probability.max() * (1 - 1e-7)


def test_probabilities_that_round_to_nothing_are_still_ranked_and_a_certain_arm_below_the_target_comes_last() -> None:
    scores = ProbabilityOfImprovement().improvement(np.array([0.0, 0.9, 0.5]), np.array([1e-3, 0.0, 1e-3]), 1.0)
    assert np.argsort(scores).tolist() == [1, 0, 2]
    assert norm.cdf(scores).tolist() == [0, 0, 0]


def test_certain_best_arm_improves_with_probability_half_without_a_margin() -> None:
    assert norm.cdf(ProbabilityOfImprovement(margin=0.0).improvement(np.ones(1), np.zeros(1), 1.0)) == 0.5
