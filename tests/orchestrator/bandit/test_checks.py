"""`bandit.checks`: ranges of hyperparameters, and when nothing may be chosen."""

from dataclasses import dataclass

import numpy as np
import pytest

from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import SparseState, initial_state
from bbkb.orchestrator.bandit.strategy import Observation, Wait, refusal, require, sequential_refusal


@dataclass(frozen=True)
class Options:
    size: float


def three_arms(set_aside: list[int]) -> SparseState:
    state = initial_state(SparseModel(RBF(), np.eye(3), 1.0), ())
    return state.observe([Observation(arm, None) for arm in set_aside])


def test_broken_rule_is_named_with_the_field_and_its_value() -> None:
    require(Options(3), "size", "even", True)
    with pytest.raises(ValueError, match=r"^strategy\.size must be even, got 3$"):
        require(Options(3), "size", "even", False)


def test_strategy_has_no_choice_if_every_arm_is_set_aside() -> None:
    one_left, exhausted = three_arms(set_aside=[0, 2]), three_arms(set_aside=[0, 1, 2])
    assert refusal(one_left, 1) is None
    assert refusal(exhausted, 1) == Wait("all arms were set aside")
    assert sequential_refusal(exhausted, (1,), 1) == refusal(exhausted, 1)
    with pytest.raises(ValueError, match="limit must be >= 1, got 0"):
        refusal(one_left, 0)


def test_sequential_strategy_waits_for_the_reward_of_the_last_pull() -> None:
    state = three_arms(set_aside=[])
    assert sequential_refusal(state, (), 1) is None
    assert sequential_refusal(state, (2,), 1) == Wait("one pull at a time: the last reward has not arrived")
    with pytest.raises(ValueError, match="limit must be >= 1, got -1"):
        sequential_refusal(state, (), -1)
