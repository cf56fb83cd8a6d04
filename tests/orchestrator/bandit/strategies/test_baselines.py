"""The strategies beside BBKB: GP-BUCB, GP-UCB, BKB, asynchronous Thompson sampling, uniform draws."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy.stats import norm

from bbkb.orchestrator.bandit.arms import as_arms
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF, Matern32, Matern52
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import initial_state
from bbkb.orchestrator.bandit.sparse.strategy import Resampling
from bbkb.orchestrator.bandit.start.warm_start import RandomStart, UncertaintyStart
from bbkb.orchestrator.bandit.strategies.async_ts import AsyncTS
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.bkb import BKB
from bbkb.orchestrator.bandit.strategies.gp_bucb import GPBUCB
from bbkb.orchestrator.bandit.strategies.gp_ucb import GPUCB
from bbkb.orchestrator.bandit.strategies.uniform import MOST_PENDING, Uniform
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Wait
from tests.examples import examples
from tests.orchestrator.bandit.sequential_runs import (
    arms_of,
    choice,
    effective_dimension,
    play,
    run_sequentially,
    value,
)
from tests.orchestrator.bandit.strategies import bbkb_games

ARMS = np.random.default_rng(0).random((40, 2))
NOISY = GPBUCB(
    kernel=RBF(0.4),
    regularization=0.05,
    noise_variance=0.01,
    norm_bound=0.5,
    ratio_threshold=2.0,
    warm_start=RandomStart(10),
)


@given(seed=st.integers(0, 10**6))
def test_gp_bucb_picks_like_bbkb_with_a_full_dictionary_and_the_product_rule(seed: int) -> None:
    # the options with which BBKB's practical width ξ √(C G + log 1/δ) + √λ F is C times GP-UCB's
    sparse = BBKB(
        kernel=NOISY.kernel,
        regularization=NOISY.regularization,
        noise_variance=2 * NOISY.noise_variance,
        norm_bound=2 * NOISY.norm_bound,
        delta=NOISY.delta**4,
        ratio_threshold=2.0,
        termination="product",
    )
    model = SparseModel(NOISY.kernel, ARMS, NOISY.regularization)
    for state, decision in list(play(ARMS, NOISY, 12, seed))[1:]:
        full = replace(
            initial_state(model, ()),
            pulls=state.pulls,
            dictionary=np.arange(len(ARMS)),
            information_gain=state.belief.information_gain,
        )
        other = choice(sparse.ask(full, (), 10_000))
        assert [pick.arm for pick in other.picks] == [pick.arm for pick in decision.picks]
        assert other.picks[0].width == pytest.approx(decision.picks[0].width)


def test_pick_is_the_argmax_with_the_refitted_variance_and_the_frozen_mean() -> None:
    strategy = replace(NOISY, kernel=Matern52(0.5))
    lengths = []
    for state, decision in list(play(ARMS, strategy, 15))[1:]:
        mean, _ = exact_posterior(strategy.kernel, ARMS, state.pulls, 0.05)
        pulled = np.repeat(np.arange(40), state.pulls.counts)
        gain = np.linalg.slogdet(np.eye(len(pulled)) + strategy.kernel.cross(ARMS[pulled], ARMS[pulled]) / 0.05)[1]
        width = 2 * (0.1 * math.sqrt(gain + 2 * math.log(100)) + math.sqrt(0.05) * 0.5)
        counts, product = state.pulls.counts.copy(), []
        for pick in decision.picks:
            _, variance = exact_posterior(strategy.kernel, ARMS, Pulls.of(counts, np.zeros(40)), 0.05)
            ucb = mean + width * np.sqrt(variance)
            assert ucb[pick.arm] >= ucb.max() - 1e-9
            assert (pick.mean, pick.variance, pick.width) == pytest.approx((mean[pick.arm], variance[pick.arm], width))
            product.append(1 + variance[pick.arm])
            counts[pick.arm] += 1
        assert np.prod(product) > 2, "the arm that crosses the threshold belongs to the batch"
        assert np.prod(product[:-1]) <= 2
        assert decision.reason == "drift budget"
        lengths.append(len(product))
    assert max(lengths) > 2


def test_ratio_threshold_of_one_is_gp_ucb() -> None:
    options: dict[str, Any] = {
        "kernel": RBF(0.4),
        "regularization": 0.05,
        "noise_variance": 0.01,
        "warm_start": RandomStart(),
    }
    batched = play(ARMS, GPBUCB(**options, ratio_threshold=1), 40)
    single = play(ARMS, GPUCB(**options), 40)
    assert [arms_of(decision) for _, decision in batched] == [arms_of(decision) for _, decision in single]


def test_pending_pulls_are_in_the_variance_and_in_the_product() -> None:
    *_, (state, decision) = play(ARMS, NOISY, 12)
    arms = tuple(pick.arm for pick in decision.picks)
    assert len(arms) > 2
    remaining = choice(NOISY.ask(state, arms[:2], 10_000))
    assert remaining.picks == decision.picks[2:]
    assert isinstance(NOISY.ask(state, arms, 10_000), Wait)


def test_limit_cuts_a_batch_and_is_its_recorded_reason() -> None:
    *_, (state, full) = play(ARMS, NOISY, 12)
    cut = choice(NOISY.ask(state, (), 2))
    assert (cut.reason, cut.picks) == ("limit", full.picks[:2])


def test_warm_start_comes_first_and_is_replaced_by_the_same_number_of_arms_if_it_failed() -> None:
    strategy = replace(NOISY, warm_start=UncertaintyStart(max_pulls=4))
    state = strategy.init(as_arms(ARMS), np.random.default_rng(0))
    first = choice(strategy.ask(state, (), 10))
    assert tuple(pick.arm for pick in first.picks) == state.initial
    failed = [Observation(pick.arm, None) for pick in first.picks]
    after = strategy.tell(state, failed, np.random.default_rng(0))
    decision = choice(strategy.ask(after, (), 10))
    assert len(decision.picks) == 4, "by the prior one pick would spend the drift budget: 1 + 20 is above the threshold"
    assert {pick.arm for pick in decision.picks}.isdisjoint(state.initial)
    assert strategy.restore(state, failed, strategy.recorded(after)) == after


def test_warm_start_that_failed_in_part_is_not_extended() -> None:
    strategy = replace(NOISY, warm_start=UncertaintyStart(max_pulls=4))
    state = strategy.init(as_arms(ARMS), np.random.default_rng(0))
    first, *others = state.initial
    observations = [Observation(first, 0.5), *(Observation(arm, None) for arm in others)]
    assert strategy.tell(state, observations, np.random.default_rng(0)).initial == state.initial


FIFTY = np.random.default_rng(0).random((50, 2))
SINGLE = GPUCB(kernel=RBF(0.4), regularization=0.01, noise_variance=0.01, norm_bound=1.0)
play_singly = partial(run_sequentially, FIFTY)


@given(seed=st.integers(0, 10**6))
def test_pick_is_the_argmax_of_the_refitted_upper_bound(seed: int) -> None:
    strategy = replace(SINGLE, kernel=Matern32(0.5))
    for state, pick in list(play_singly(strategy, 12, seed))[1:]:
        mean, variance = exact_posterior(strategy.kernel, FIFTY, state.pulls, 0.01)
        pulled = np.repeat(np.arange(50), state.pulls.counts)
        gram = strategy.kernel.cross(FIFTY[pulled], FIFTY[pulled])
        gain = np.linalg.slogdet(np.eye(len(pulled)) + gram / 0.01)[1]
        width = 0.1 * math.sqrt(gain + 2 * math.log(100)) + 0.1
        ucb = mean + width * np.sqrt(variance)
        assert ucb[pick.arm] >= ucb.max() - 1e-9
        assert pick.width == pytest.approx(width)
        assert (pick.mean, pick.variance) == pytest.approx((mean[pick.arm], variance[pick.arm]))
        np.testing.assert_allclose(strategy.posterior(state).ucb, ucb, atol=1e-8)


def test_gp_ucb_picks_like_bbkb_with_a_full_dictionary_and_batches_of_one() -> None:
    options: dict[str, Any] = {"kernel": RBF(0.4), "regularization": 0.01, "noise_variance": 0.01, "norm_bound": 1.0}
    # BBKB's practical width has log 1/δ, GP-UCB's has 2 log 1/δ
    sparse = BBKB(**options, delta=SINGLE.delta**2, ratio_threshold=1.0)
    model = SparseModel(RBF(0.4), FIFTY, 0.01)
    for state, pick in list(play_singly(SINGLE, 60))[1:]:
        full = replace(
            initial_state(model, ()),
            pulls=state.pulls,
            dictionary=state.pulls.arms,
            information_gain=state.belief.information_gain,
        )
        decision = choice(sparse.ask(full, (), 7))
        assert [other.arm for other in decision.picks] == [pick.arm]


def test_warm_start_comes_first() -> None:
    strategy = replace(SINGLE, warm_start=UncertaintyStart(max_pulls=4))
    played = list(play_singly(strategy, 6))
    assert [pick.arm for _, pick in played[:4]] == list(played[0][0].initial)
    assert math.isnan(played[3][1].mean)
    assert not math.isnan(played[4][1].mean)


def test_large_width_explores_and_zero_width_exploits() -> None:
    state, _ = list(play_singly(SINGLE, 10))[-1]
    belief = state.belief
    bold = replace(SINGLE, norm_bound=1e6).ask(state, (), 1)
    assert choice(bold).picks[0].arm == int(np.argmax(belief.variance))
    greedy = replace(SINGLE, norm_bound=0.0, noise_variance=0.0).ask(state, (), 1)
    assert choice(greedy).picks[0].arm == int(np.argmax(belief.mean))


BUDGETED = BKB(kernel=RBF(0.4), regularization=0.01, noise_variance=0.001, norm_bound=0.3)


def play_budgeted(strategy: Any, rounds: int, seed: int = 0) -> list[tuple[Any, Any]]:
    """Every state of a run and the picks at it."""
    return [(state, decision.picks) for state, decision in bbkb_games.play(strategy, FIFTY, rounds, seed)]


@pytest.mark.parametrize("resampling", ["pulls", "arms"])
@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10**6))
def test_bkb_is_bbkb_with_batches_of_one_if_the_widths_agree(seed: int, resampling: Resampling) -> None:
    # without noise both widths are (1 + √2) √λ F
    options: dict[str, Any] = {
        "kernel": Matern52(0.5),
        "regularization": 0.05,
        "noise_variance": 0.0,
        "norm_bound": 1.0,
        "warm_start": RandomStart(),
        "resampling": resampling,
    }
    one = play_budgeted(BKB(**options), 25, seed)
    batched = play_budgeted(BBKB(**options, ratio_threshold=1.0, width="theory"), 25, seed)
    assert [[pick.arm for pick in picks] for _, picks in one] == [[pick.arm for pick in picks] for _, picks in batched]
    assert one[-1][0].dictionary.tolist() == batched[-1][0].dictionary.tolist()


def test_pick_is_the_argmax_of_its_upper_bound() -> None:
    for state, (pick,) in play_budgeted(BUDGETED, 40)[1:]:
        posterior = state.model.fit(state.pulls, state.dictionary)
        dimension = (state.pulls.counts * posterior.variance).sum()
        noise = math.sqrt(3 * math.log(state.pulls.total) * dimension + math.log(100))
        width = 2 * math.sqrt(0.001) * noise + (1 + math.sqrt(2)) * 0.1 * 0.3
        ucb = posterior.mean + width * np.sqrt(posterior.variance)
        assert pick.width == pytest.approx(width)
        assert pick.arm == int(np.argmax(ucb))
        assert pick.mean + pick.width * math.sqrt(pick.variance) == pytest.approx(ucb.max())


def test_width_estimates_the_effective_dimension_within_a_factor_of_three() -> None:
    strategy = replace(BUDGETED, oversampling=500.0)  # near the value of the theory
    state, _ = play_budgeted(strategy, 60)[-1]
    exact = effective_dimension(strategy.kernel, FIFTY, state.pulls, 0.01)
    bias = (1 + math.sqrt(2)) * 0.1 * 0.3
    squared = ((strategy.width_at(state) - bias) / (2 * math.sqrt(0.001))) ** 2
    estimate = (squared - math.log(100)) / (3 * math.log(state.pulls.total))
    assert exact / 3 <= estimate <= 3 * exact


def test_kernel_of_small_variance_does_not_make_the_width_complex() -> None:
    strategy = replace(BUDGETED, kernel=RBF(0.4, variance=0.01))
    state = strategy.tell(
        strategy.init(as_arms(FIFTY), np.random.default_rng(0)), [Observation(3, 1.0)], np.random.default_rng()
    )
    assert strategy.width_at(state) == pytest.approx(2 * math.sqrt(0.001 * math.log(100)) + (1 + math.sqrt(2)) * 0.03)


def test_new_dictionary_is_drawn_after_every_pull_and_stays_small() -> None:
    states = [state for state, _ in play_budgeted(BUDGETED, 80)]
    assert states[0].dictionary.tolist() == []
    for state in states[1:]:
        assert len(state.dictionary) >= 1
        assert set(state.dictionary.tolist()) <= set(state.pulls.arms.tolist())
    sizes = {tuple(state.dictionary.tolist()) for state in states}
    assert len(sizes) > 20
    assert len(states[-1].dictionary) < len(states[-1].pulls.arms)


@pytest.mark.parametrize("acquisition", ["ei", "mpi"])
def test_improvement_is_over_the_best_mean_reward_or_over_the_best_mean(acquisition: Any) -> None:
    """Section 4 of Bedi, Sadler et al., with the posterior that BKB draws."""
    for state, (pick,) in play_budgeted(replace(BUDGETED, acquisition=acquisition), 40)[1:]:
        posterior = state.model.fit(state.pulls, state.dictionary)
        deviation = np.sqrt(BUDGETED.regularization * posterior.variance)
        pulled = state.pulls.arms
        rewards = state.pulls.reward_sums[pulled] / state.pulls.counts[pulled]
        z = (posterior.mean - (rewards.max() if acquisition == "ei" else posterior.mean.max())) / deviation
        expected = deviation * (norm.pdf(z) + z * norm.cdf(z))
        assert expected[pick.arm] == pytest.approx(expected.max(), rel=1e-6, abs=1e-15)


TWELVE = np.random.default_rng(0).random((12, 2))
WILD = AsyncTS(kernel=RBF(0.4), regularization=0.05, noise_variance=0.01, norm_bound=1.0, scale=1.0)


def observed(arms: ArrayLike) -> list[Observation]:
    pulled = np.asarray(arms, np.intp)
    return [Observation(int(arm), float(reward)) for arm, reward in zip(pulled, value(TWELVE[pulled]), strict=True)]


def sparse_state(strategy: AsyncTS = WILD, seed: int = 0) -> Any:
    """A state whose dictionary lacks pulled arms, so that the embedding is incomplete."""
    rng = np.random.default_rng(seed)
    state = strategy.tell(strategy.init(TWELVE, rng), observed(rng.integers(12, size=9)), rng)
    fewer = state.pulls.arms[:3].copy()
    fewer.flags.writeable = False
    return replace(state, dictionary=fewer)


def dense_draws(state: Any, width: float, count: int) -> np.ndarray:
    """Draws (count, A) from a normal with covariance β² (Z V⁻¹ Zᵀ + diag(k − ‖z‖²)/λ), from dense
    matrices alone."""
    gram = WILD.kernel.cross(TWELVE, TWELVE)
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
    gram = WILD.kernel.cross(TWELVE, TWELVE)
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
    state, other = strategy.init(TWELVE, np.random.default_rng(0)), sparse.init(TWELVE, np.random.default_rng(0))
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
    state = strategy.tell(strategy.init(TWELVE, rng), [Observation(4, None)], rng)
    counts = np.bincount(arms_of(strategy.ask(state, (), 2000)), minlength=12)
    assert counts[4] == 0
    assert abs(np.delete(counts, 4) - 2000 / 11).max() < 65  # five standard deviations


EQUAL = np.zeros((10, 1))


def test_arms_are_uniform_over_those_not_set_aside() -> None:
    uniform = Uniform()
    state = uniform.init(EQUAL, np.random.default_rng(0))
    state = uniform.tell(state, [Observation(3, None), Observation(7, None)], np.random.default_rng(0))
    counts = np.bincount(arms_of(uniform.ask(state, (), 4000)), minlength=10)
    assert counts[[3, 7]].tolist() == [0, 0]
    # five standard deviations of a count with mean 500 are below 110
    assert abs(counts[np.setdiff1d(np.arange(10), [3, 7])] - 500).max() < 110


def test_finished_and_pending_pulls_advance_the_sequence_alike() -> None:
    uniform = Uniform()
    state = uniform.init(EQUAL, np.random.default_rng(0))
    after = uniform.tell(state, [Observation(1, 0.5), Observation(1, 0.5)], np.random.default_rng(0))
    assert uniform.ask(after, (), 5) == uniform.ask(state, (1, 1), 5)
    assert uniform.ask(after, (), 5) != uniform.ask(state, (), 5)


def test_batch_ends_at_the_number_of_results_that_a_campaign_may_keep() -> None:
    uniform = Uniform()
    state = uniform.init(EQUAL, np.random.default_rng(0))
    assert isinstance(uniform.ask(state, [1] * (MOST_PENDING - 1), 5), Choose)
    assert uniform.ask(state, [1] * MOST_PENDING, 5) == Wait("batch of 20000 pulls")


def test_uniform_posterior_contains_only_mean_rewards() -> None:
    uniform = Uniform()
    state = uniform.init(EQUAL, np.random.default_rng(0))
    believed = uniform.posterior(
        uniform.tell(state, [Observation(4, 1.0), Observation(4, 2.0)], np.random.default_rng())
    )
    assert believed.mean[4] == 1.5
    assert np.isnan(believed.mean).sum() == 9
    assert np.isnan(believed.variance).all()
    assert np.isnan(believed.ucb).all()


def test_seeds_give_different_sequences() -> None:
    uniform = Uniform()
    one, other = (uniform.init(EQUAL, np.random.default_rng(seed)) for seed in (0, 1))
    assert uniform.ask(one, (), 20) != uniform.ask(other, (), 20)
