"""`bbkb.orchestrator.bandit.exact.posterior`: The dense exact Gaussian process, O(p³): the oracle of the
sparse posterior, and quantities defined by it.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as oracle

from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.pulls import Pulls
from tests.orchestrator.bandit.effective_dimension import effective_dimension


@given(seed=st.integers(0, 10**6))
def test_counts_and_sums_give_the_posterior_of_the_list_of_pulls(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arms, pulled = rng.normal(size=(15, 2)), rng.integers(15, size=25)
    rewards = rng.normal(size=25)
    mean, variance = exact_posterior(RBF(0.8), arms, Pulls.none(15).add(pulled, rewards), 0.1)
    reference = GaussianProcessRegressor(oracle.RBF(0.8), alpha=0.1, optimizer=None).fit(arms[pulled], rewards)
    expected, deviation = reference.predict(arms, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=1e-9)
    np.testing.assert_allclose(variance, deviation**2 / 0.1, atol=1e-9)


def test_posterior_without_pulls_is_the_prior() -> None:
    mean, variance = exact_posterior(RBF(1.0, 2.0), np.zeros((3, 1)), Pulls.none(3), 0.5)
    assert mean.tolist() == [0.0] * 3
    assert variance.tolist() == [4.0] * 3


def test_effective_dimension_is_the_sum_of_the_pulled_arms_variances() -> None:
    rng = np.random.default_rng(0)
    arms, pulled = rng.normal(size=(15, 2)), rng.integers(15, size=40)
    pulls = Pulls.none(15).add(pulled, np.zeros(40))
    _, variance = exact_posterior(RBF(0.8), arms, pulls, 0.1)
    assert effective_dimension(RBF(0.8), arms, pulls, 0.1) == pytest.approx(variance[pulled].sum(), rel=1e-9)
