"""`orchestrator.bandit.strategies.expected_improvement`: Expected improvement over the best belief,
exact (Salgia, Vakili, Zhao 2021, Appendix D.1; see `improvement`).
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from orchestrator.bandit.strategies.expected_improvement import ExpectedImprovement
from tests.orchestrator.bandit.improvement_runs import picks_beside_dense


@given(seed=st.integers(0, 10**6), margin=st.sampled_from([0.0, 0.01, 0.3]))
def test_pick_has_the_largest_expected_improvement_of_a_dense_gaussian_process(seed: int, margin: float) -> None:
    for arm, mean, deviation in picks_beside_dense(
        lambda kernel, noise: ExpectedImprovement(kernel, noise, margin=margin), seed
    ):
        gain = mean - mean.max() - margin
        improvement = gain * norm.cdf(gain / deviation) + deviation * norm.pdf(gain / deviation)
        assert improvement[arm] >= improvement.max() * (1 - 1e-7)


def test_improvements_too_small_for_a_float_are_still_ranked() -> None:
    scores = ExpectedImprovement().improvement(np.array([0.0, 0.1, 0.05]), np.full(3, 1e-3), 1.0)
    assert np.argsort(scores).tolist() == [0, 2, 1]
    assert np.exp(scores).max() == pytest.approx(0.0, abs=0)
