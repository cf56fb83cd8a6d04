"""`strategies.gp_bucb`: batches under the exact Gaussian process (Desautels et al. 2014)."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.arms import as_arms
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF, Matern52
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import initial_state
from bbkb.orchestrator.bandit.start.warm_start import RandomStart, UncertaintyStart
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.gp_bucb import GPBUCB
from bbkb.orchestrator.bandit.strategies.gp_ucb import GPUCB
from bbkb.orchestrator.bandit.strategy import Observation, Wait
from tests.orchestrator.bandit.sequential_runs import arms_of, choice, play

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
