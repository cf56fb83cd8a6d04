"""`strategies.bkb`: budgeted kernel bandits (Calandriello et al. 2019, Algorithm 1)."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from bbkb.orchestrator.bandit.arms import as_arms
from bbkb.orchestrator.bandit.kernels import RBF, Matern52
from bbkb.orchestrator.bandit.sparse.strategy import Resampling
from bbkb.orchestrator.bandit.start.warm_start import RandomStart
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.bkb import BKB
from bbkb.orchestrator.bandit.strategy import Observation
from tests.examples import examples
from tests.orchestrator.bandit.sequential_runs import effective_dimension
from tests.orchestrator.bandit.strategies import bbkb_games

ARMS = np.random.default_rng(0).random((50, 2))
NOISY = BKB(kernel=RBF(0.4), regularization=0.01, noise_variance=0.001, norm_bound=0.3)


def play(strategy: Any, rounds: int, seed: int = 0) -> list[tuple[Any, Any]]:
    """Every state of a run and the picks at it."""
    return [(state, decision.picks) for state, decision in bbkb_games.play(strategy, ARMS, rounds, seed)]


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
    one = play(BKB(**options), 25, seed)
    batched = play(BBKB(**options, ratio_threshold=1.0, width="theory"), 25, seed)
    assert [[pick.arm for pick in picks] for _, picks in one] == [[pick.arm for pick in picks] for _, picks in batched]
    assert one[-1][0].dictionary.tolist() == batched[-1][0].dictionary.tolist()


def test_pick_is_the_argmax_of_its_upper_bound() -> None:
    for state, (pick,) in play(NOISY, 40)[1:]:
        posterior = state.model.fit(state.pulls, state.dictionary)
        dimension = (state.pulls.counts * posterior.variance).sum()
        noise = math.sqrt(3 * math.log(state.pulls.total) * dimension + math.log(100))
        width = 2 * math.sqrt(0.001) * noise + (1 + math.sqrt(2)) * 0.1 * 0.3
        ucb = posterior.mean + width * np.sqrt(posterior.variance)
        assert pick.width == pytest.approx(width)
        assert pick.arm == int(np.argmax(ucb))
        assert pick.mean + pick.width * math.sqrt(pick.variance) == pytest.approx(ucb.max())


def test_width_estimates_the_effective_dimension_within_a_factor_of_three() -> None:
    strategy = replace(NOISY, oversampling=500.0)  # near the value of the theory
    state, _ = play(strategy, 60)[-1]
    exact = effective_dimension(strategy.kernel, ARMS, state.pulls, 0.01)
    bias = (1 + math.sqrt(2)) * 0.1 * 0.3
    squared = ((strategy.width_at(state) - bias) / (2 * math.sqrt(0.001))) ** 2
    estimate = (squared - math.log(100)) / (3 * math.log(state.pulls.total))
    assert exact / 3 <= estimate <= 3 * exact


def test_kernel_of_small_variance_does_not_make_the_width_complex() -> None:
    strategy = replace(NOISY, kernel=RBF(0.4, variance=0.01))
    state = strategy.tell(
        strategy.init(as_arms(ARMS), np.random.default_rng(0)), [Observation(3, 1.0)], np.random.default_rng()
    )
    assert strategy.width_at(state) == pytest.approx(2 * math.sqrt(0.001 * math.log(100)) + (1 + math.sqrt(2)) * 0.03)


def test_new_dictionary_is_drawn_after_every_pull_and_stays_small() -> None:
    states = [state for state, _ in play(NOISY, 80)]
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
    for state, (pick,) in play(replace(NOISY, acquisition=acquisition), 40)[1:]:
        posterior = state.model.fit(state.pulls, state.dictionary)
        deviation = np.sqrt(NOISY.regularization * posterior.variance)
        pulled = state.pulls.arms
        rewards = state.pulls.reward_sums[pulled] / state.pulls.counts[pulled]
        z = (posterior.mean - (rewards.max() if acquisition == "ei" else posterior.mean.max())) / deviation
        expected = deviation * (norm.pdf(z) + z * norm.cdf(z))
        assert expected[pick.arm] == pytest.approx(expected.max(), rel=1e-6, abs=1e-15)
