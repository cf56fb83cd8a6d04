"""`strategies.async_ts`: asynchronous Thompson sampling (Kandasamy et al. 2018, Algorithm 2)."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.start.warm_start import RandomStart
from bbkb.orchestrator.bandit.strategies.async_ts import AsyncTS
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategy import Observation, Wait
from tests.orchestrator.bandit.sequential_runs import arms_of, value

ARMS = np.random.default_rng(0).random((12, 2))
WILD = AsyncTS(kernel=RBF(0.4), regularization=0.05, noise_variance=0.01, norm_bound=1.0, scale=1.0)


def observed(arms: ArrayLike) -> list[Observation]:
    pulled = np.asarray(arms, np.intp)
    return [Observation(int(arm), float(reward)) for arm, reward in zip(pulled, value(ARMS[pulled]), strict=True)]


def sparse_state(strategy: AsyncTS = WILD, seed: int = 0) -> Any:
    """A state whose dictionary lacks pulled arms, so that the embedding is incomplete."""
    rng = np.random.default_rng(seed)
    state = strategy.tell(strategy.init(ARMS, rng), observed(rng.integers(12, size=9)), rng)
    fewer = state.pulls.arms[:3].copy()
    fewer.flags.writeable = False
    return replace(state, dictionary=fewer)


def dense_draws(state: Any, width: float, count: int) -> np.ndarray:
    """Draws (count, A) from a normal with covariance β² (Z V⁻¹ Zᵀ + diag(k − ‖z‖²)/λ), from dense
    matrices alone."""
    gram = WILD.kernel.cross(ARMS, ARMS)
    Z = np.linalg.solve(np.linalg.cholesky(gram[np.ix_(state.dictionary, state.dictionary)]), gram[state.dictionary]).T
    V = (Z.T * state.pulls.counts) @ Z + 0.05 * np.eye(Z.shape[1])
    mean = Z @ np.linalg.solve(V, Z.T @ state.pulls.reward_sums)
    residual = np.maximum(1.0 - (Z * Z).sum(axis=1), 0.0) / 0.05
    covariance = width**2 * (Z @ np.linalg.solve(V, Z.T) + np.diag(residual))
    return np.random.default_rng(1).multivariate_normal(mean, covariance, size=count, method="eigh")


def test_arms_are_chosen_as_often_as_they_are_the_argmax_of_a_dense_posterior_draw() -> None:
    strategy = replace(WILD, batch_size=4000)
    state = sparse_state()
    frequencies = np.bincount(arms_of(strategy.ask(state, (), 4000)), minlength=12) / 4000
    draws = dense_draws(state, strategy.width_at(state), 40_000)
    expected = np.bincount(draws.argmax(axis=1), minlength=12) / 40_000
    # five standard deviations of a difference of frequencies are below 0.042
    np.testing.assert_allclose(frequencies, expected, atol=0.042)
    assert (expected > 0.05).sum() >= 3, "else nothing is shown"


def test_draws_have_the_variance_of_the_posterior_and_the_covariance_of_the_embedding() -> None:
    state = sparse_state()
    draws = np.array([WILD._deviation(state, pull) for pull in range(8000)])
    variance = WILD.posterior(state).variance
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.1)
    np.testing.assert_allclose(draws.mean(axis=0), 0.0, atol=0.06 * math.sqrt(variance.max()))
    y = state.posterior.moments(np.arange(12))[2]
    embedded = (y @ y.T)[~np.eye(12, dtype=bool)]
    noise = 0.06 * np.sqrt(np.multiply.outer(variance, variance))[~np.eye(12, dtype=bool)]
    assert (abs(np.cov(draws.T)[~np.eye(12, dtype=bool)] - embedded) < noise).all()


def test_residual_is_the_part_outside_the_embedding() -> None:
    state = sparse_state()
    gram = WILD.kernel.cross(ARMS, ARMS)
    projected = gram[:, state.dictionary] @ np.linalg.solve(
        gram[np.ix_(state.dictionary, state.dictionary)], gram[state.dictionary]
    )
    expected = (1.0 - projected.diagonal()) / 0.05
    np.testing.assert_allclose(state.residual_deviation**2, expected, atol=1e-8)
    np.testing.assert_allclose(state.residual_deviation[state.dictionary], 0.0, atol=1e-4)


def test_width_dictionary_and_gain_equal_those_of_bbkb_up_to_the_scale() -> None:
    options: dict[str, Any] = {"kernel": RBF(0.4), "regularization": 0.05, "noise_variance": 0.01, "norm_bound": 1.0}
    sparse = BBKB(**options, ratio_threshold=1.0, warm_start=RandomStart())
    strategy = AsyncTS(**options)
    state, other = strategy.init(ARMS, np.random.default_rng(0)), sparse.init(ARMS, np.random.default_rng(0))
    for number in range(5):
        rows = observed(np.random.default_rng(number).integers(12, size=6))
        state = strategy.tell(state, rows, np.random.default_rng([1, number]))
        other = sparse.tell(other, rows, np.random.default_rng([1, number]))
    assert state.dictionary.tolist() == other.dictionary.tolist()
    assert strategy.width_at(state) == pytest.approx(0.1 * sparse.width_at(other))


def test_pending_pulls_are_at_most_a_batch() -> None:
    strategy = replace(WILD, batch_size=5)
    state = sparse_state(strategy)
    batch = strategy.ask(state, (), 100)
    arms = arms_of(batch)
    assert (len(arms), batch.reason) == (5, "batch size")
    assert arms_of(strategy.ask(state, tuple(arms[:3]), 100)) == arms[3:]
    assert isinstance(strategy.ask(state, tuple(arms), 100), Wait)
    assert strategy.ask(state, (), 2).reason == "limit"
    assert AsyncTS().batch_size == 30


def test_requests_get_the_same_draws_without_a_bound_on_pending_pulls() -> None:
    boundless, state = replace(WILD, mode="async", batch_size=None), sparse_state()
    expected = arms_of(replace(WILD, batch_size=60).ask(state, (), 60))
    assert arms_of(boundless.ask(state, (), 60)) == expected
    assert arms_of(boundless.ask(state, tuple(expected[:45]), 15)) == expected[45:]
    assert boundless.never_waits
    assert not WILD.never_waits


def test_pull_has_its_own_draw_however_requests_are_split() -> None:
    state = sparse_state()
    once = arms_of(WILD.ask(state, (), 30))
    assert [arms_of(WILD.ask(state, tuple(once[:i]), 1))[0] for i in range(30)] == once
    assert arms_of(WILD.ask(replace(state, seed=state.seed + 1), (), 30)) != once


def test_prior_draws_choose_all_available_arms_before_any_reward() -> None:
    strategy = replace(WILD, batch_size=2000)
    rng = np.random.default_rng(0)
    state = strategy.tell(strategy.init(ARMS, rng), [Observation(4, None)], rng)
    counts = np.bincount(arms_of(strategy.ask(state, (), 2000)), minlength=12)
    assert counts[4] == 0
    assert abs(np.delete(counts, 4) - 2000 / 11).max() < 65  # five standard deviations
