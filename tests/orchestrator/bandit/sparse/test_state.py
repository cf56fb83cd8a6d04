"""`bbkb.orchestrator.bandit.sparse.state`: The state of a strategy with a sparse posterior; the
posterior is derived from it once, when it is needed.
"""

from typing import Any

import numpy as np
import pytest

from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.observations import arms_and_rewards, check_arms
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import SparseState, initial_state
from bbkb.orchestrator.bandit.strategy import Observation


def state(initial: tuple[int, ...] = (3, 1, 3)) -> SparseState:
    return initial_state(SparseModel(RBF(0.5), np.linspace(0, 1, 6)[:, None], 0.1), initial)


def test_warm_start_is_a_multiset_without_the_learned_and_pending_pulls() -> None:
    assert state().remaining_start() == [3, 1, 3]
    assert state().remaining_start(pending=[3]) == [1, 3]
    assert state().remaining_start(pending=[3, 3, 5]) == [1]
    after = state().observe([Observation(3, 0.5)])
    assert after.remaining_start() == [1, 3]
    assert after.remaining_start(pending=[3, 1]) == []


def test_arm_set_aside_has_no_pull_left_in_the_warm_start() -> None:
    after = state().observe([Observation(3, None)])
    assert after.remaining_start() == [1]
    assert after.set_aside.tolist() == [3]
    assert after.available.tolist() == [0, 1, 2, 4, 5]


def test_pulls_without_a_reward_do_not_count() -> None:
    after = state().observe([Observation(3, 0.5), Observation(2, None), Observation(3, 0.25)])
    assert after.pulls.counts.tolist() == [0, 0, 0, 2, 0, 0]
    assert after.pulls.reward_sums[3] == 0.75
    assert after.round == 1


def test_state_fits_its_posterior_once() -> None:
    after = state().observe([Observation(3, 0.5)])
    assert after.posterior is after.posterior
    assert after == state().observe([Observation(3, 0.5)])
    assert after != state()


def test_reward_that_is_not_finite_is_rejected_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="the reward of arm 2 must be finite, got nan; use None"):
        arms_and_rewards([Observation(2, float("nan"))])


@pytest.mark.parametrize("arms", [np.zeros(3), np.zeros((0, 2)), np.zeros((2, 0)), [[np.inf, 1.0]], [[0.0], [np.nan]]])
def test_bad_candidates_are_rejected(arms: Any) -> None:
    with pytest.raises(ValueError, match="candidates must be"):
        check_arms(arms)
