"""`strategies.gp_ucb`: the exact Gaussian process, one pull at a time."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF, Matern32
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import initial_state
from bbkb.orchestrator.bandit.start.warm_start import UncertaintyStart
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.gp_ucb import GPUCB
from tests.orchestrator.bandit.sequential_runs import choice, run_sequentially

ARMS = np.random.default_rng(0).random((50, 2))
NOISY = GPUCB(kernel=RBF(0.4), regularization=0.01, noise_variance=0.01, norm_bound=1.0)
play = partial(run_sequentially, ARMS)


@given(seed=st.integers(0, 10**6))
def test_pick_is_the_argmax_of_the_refitted_upper_bound(seed: int) -> None:
    strategy = replace(NOISY, kernel=Matern32(0.5))
    for state, pick in list(play(strategy, 12, seed))[1:]:
        mean, variance = exact_posterior(strategy.kernel, ARMS, state.pulls, 0.01)
        pulled = np.repeat(np.arange(50), state.pulls.counts)
        gram = strategy.kernel.cross(ARMS[pulled], ARMS[pulled])
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
    sparse = BBKB(**options, delta=NOISY.delta**2, ratio_threshold=1.0)
    model = SparseModel(RBF(0.4), ARMS, 0.01)
    for state, pick in list(play(NOISY, 60))[1:]:
        full = replace(
            initial_state(model, ()),
            pulls=state.pulls,
            dictionary=state.pulls.arms,
            information_gain=state.belief.information_gain,
        )
        decision = choice(sparse.ask(full, (), 7))
        assert [other.arm for other in decision.picks] == [pick.arm]


def test_warm_start_comes_first() -> None:
    strategy = replace(NOISY, warm_start=UncertaintyStart(max_pulls=4))
    played = list(play(strategy, 6))
    assert [pick.arm for _, pick in played[:4]] == list(played[0][0].initial)
    assert math.isnan(played[3][1].mean)
    assert not math.isnan(played[4][1].mean)


def test_large_width_explores_and_zero_width_exploits() -> None:
    state, _ = list(play(NOISY, 10))[-1]
    belief = state.belief
    bold = replace(NOISY, norm_bound=1e6).ask(state, (), 1)
    assert choice(bold).picks[0].arm == int(np.argmax(belief.variance))
    greedy = replace(NOISY, norm_bound=0.0, noise_variance=0.0).ask(state, (), 1)
    assert choice(greedy).picks[0].arm == int(np.argmax(belief.mean))
