"""The user's prior over arms counts in the choice, less with each result, and not in the model."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.sparse.state import LEAST_PRIOR, PRIOR_RESULTS
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.decisions import arms_of, choice
from tests.orchestrator.bandit.eager import eager

GRID = np.random.default_rng(0).random((400, 2))
EXPECTED = -0.5 * ((GRID - 0.8) ** 2).sum(axis=1) / 0.25**2
CHOOSER = BBKB(**with_preset(BBKB, {"coverage": 0.0}))


def search(chooser: BBKB, log_prior: np.ndarray[Any, Any] | None, results: int) -> tuple[Any, list[int]]:
    """Return the state after this number of results, and the arms, chosen one at a time; the best
    arm is at (.2, .2)."""
    rewards = -((GRID - 0.2) ** 2).sum(axis=1)
    arms, pulled = Arms.of(GRID, repeats=False, log_prior=log_prior), list[int]()
    state = chooser.init(arms, np.random.default_rng(0))
    for number in range(results):
        decision = choice(chooser.ask(state, [], 1))
        pulled.append(decision.picks[0].arm)
        told = [Observation(pulled[-1], float(rewards[pulled[-1]]))]
        state = chooser.tell(state, told, np.random.default_rng([1, number]))
    return state, pulled


def test_pick_has_the_largest_bound_with_the_bonus_of_all_arms() -> None:
    differing = 0
    for results in (10, 12, 14, 20):
        state, _ = search(CHOOSER, EXPECTED, results)
        belief = CHOOSER.posterior(state)
        bounds = belief.ucb + PRIOR_RESULTS / results * np.maximum(EXPECTED, LEAST_PRIOR)
        bounds[state.blocked_arms()] = -np.inf
        decision = choice(CHOOSER.ask(state, [], 1))
        assert decision.picks[0].arm == np.argmax(bounds)
        differing += int(np.argmax(np.where(np.isinf(bounds), -np.inf, belief.ucb)) != np.argmax(bounds))
    assert differing


def test_lazy_picks_equal_eager_ones_with_pending_pulls() -> None:
    state, _ = search(CHOOSER, EXPECTED, 20)
    picked = []
    for chooser in (CHOOSER, eager(CHOOSER)):
        picked.append(arms_of(chooser.ask(state, [3, 5], 16)))
    assert picked[0] == picked[1]


def test_belief_about_rewards_equals_the_one_without_a_prior() -> None:
    state, _ = search(CHOOSER, EXPECTED, 12)
    plain = replace(state, log_prior=None)
    assert np.array_equal(CHOOSER.posterior(state).mean, CHOOSER.posterior(plain).mean)
    assert CHOOSER.recommend(state) == CHOOSER.recommend(plain)


def test_wrong_prior_is_overcome() -> None:
    _, pulled = search(CHOOSER, EXPECTED, 60)
    late = GRID[pulled[40:]]
    assert np.median(np.abs(late - 0.2).max(axis=1)) < 0.3


def test_new_arms_bring_their_prior() -> None:
    state, _ = search(CHOOSER, EXPECTED, 9)
    after = CHOOSER.extend(state, np.array([[0.5, 0.5]]), [], np.array([-3.0]))
    assert after.prior_bonus is not None
    assert after.prior_bonus.shape == (401,)
    assert after.prior_bonus[400] == pytest.approx(PRIOR_RESULTS / 9 * LEAST_PRIOR)


def test_promised_gain_is_at_least_that_of_the_largest_bound() -> None:
    for results in (8, 9, 12, 20):
        state, _ = search(CHOOSER, EXPECTED, results)
        decision = choice(CHOOSER.ask(state, [], 1))
        if decision.prospect is None:  # nothing is fitted yet
            continue
        bounds = np.delete(CHOOSER.posterior(state).ucb, state.blocked_arms())
        largest = state.knowledge.prospect(float(bounds.max()))
        assert decision.prospect.gain >= largest.gain - 1e-9
        assert results > 9 or largest.gain > 0.0
