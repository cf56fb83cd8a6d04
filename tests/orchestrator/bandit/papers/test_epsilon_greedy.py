"""`papers.epsilon_greedy`: ε-greedy on the exact Gaussian process."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.papers.epsilon_greedy import EpsilonGreedy
from bbkb.orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.sequential_runs import arms_of, value

ARMS = np.random.default_rng(0).random((20, 2))
CURIOUS = EpsilonGreedy(kernel=RBF(0.4), regularization=0.01, exploration=0.3, batch_size=10_000)


def after(strategy: EpsilonGreedy, arms: Sequence[int], seed: int = 0, failed: Sequence[int] = ()) -> Any:
    rng = np.random.default_rng(seed)
    rows = [Observation(arm, float(reward)) for arm, reward in zip(arms, value(ARMS[arms]), strict=True)]
    rows += [Observation(arm, None) for arm in failed]
    return strategy.tell(strategy.init(ARMS, rng), rows, rng)


@given(seed=st.integers(0, 10**6))
def test_pick_is_the_argmax_of_the_refitted_mean_without_exploration(seed: int) -> None:
    greedy = replace(CURIOUS, exploration=0.0)
    learned = np.random.default_rng(seed).integers(20, size=12).tolist()
    state = after(greedy, learned, seed)
    mean, variance = exact_posterior(greedy.kernel, ARMS, state.pulls, 0.01)
    decision = greedy.ask(state, (3,), 5)
    assert arms_of(decision) == [int(np.argmax(mean))] * 5
    np.testing.assert_allclose(greedy.posterior(state).mean, mean, atol=1e-8)
    np.testing.assert_allclose(greedy.posterior(state).variance, variance, atol=1e-8)
    assert np.isnan(greedy.posterior(state).ucb).all()


@given(seed=st.integers(0, 10**6))
def test_greedy_pick_without_a_bound_is_the_best_arm_not_pending(seed: int) -> None:
    greedy = replace(CURIOUS, exploration=0.0, batch_size=None, mode="async")
    state = after(greedy, np.random.default_rng(seed).integers(20, size=12).tolist(), seed, failed=[7])
    order = np.argsort(-exact_posterior(greedy.kernel, ARMS, state.pulls, 0.01)[0], kind="stable")
    best = [arm for arm in order.tolist() if arm != 7]
    assert arms_of(greedy.ask(state, (best[1],), 5)) == [best[0], *best[2:6]]
    # with every arm pending the best one is pulled again
    assert arms_of(greedy.ask(state, tuple(best), 2)) == [best[0]] * 2


def test_pull_is_uniform_with_probability_epsilon_and_greedy_otherwise() -> None:
    state = after(CURIOUS, [1, 5, 9, 13], failed=[7])
    greedy = int(state.available[np.argmax(state.belief.mean[state.available])])
    counts = np.bincount(arms_of(CURIOUS.ask(state, (), 2000)), minlength=20)
    assert counts[7] == 0
    others = np.delete(counts, [7, greedy])
    # a uniform arm: 2000 · 0.3 / 19 ≈ 32; five standard deviations are below 28
    assert abs(others - 2000 * 0.3 / 19).max() < 28
    # 2000 · (0.7 + 0.3 / 19) ≈ 1432; five standard deviations are below 101
    assert abs(counts[greedy] - 2000 * (0.7 + 0.3 / 19)) < 101


def test_pull_is_uniform_before_any_reward() -> None:
    greedy = replace(CURIOUS, exploration=0.0)
    for state in (greedy.init(ARMS, np.random.default_rng(0)), after(greedy, [], failed=[3])):
        assert len(set(arms_of(greedy.ask(state, (), 200)))) == 20 - len(state.set_aside)


def test_finished_and_pending_pulls_advance_the_sequence_alike() -> None:
    uniform = replace(CURIOUS, exploration=1.0)
    state = uniform.init(ARMS, np.random.default_rng(0))
    learned = uniform.tell(state, [Observation(1, 0.5), Observation(1, 0.5)], np.random.default_rng(0))
    assert arms_of(uniform.ask(learned, (), 9)) == arms_of(uniform.ask(state, (1, 1), 9))
    assert arms_of(uniform.ask(learned, (), 9)) != arms_of(uniform.ask(state, (), 9))
