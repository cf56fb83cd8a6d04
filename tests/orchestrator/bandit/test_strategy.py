"""Checks of decisions and classes, and confidence widths."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel, Matern32, Matern52
from bbkb.orchestrator.bandit.scheduling import Schedule, WidthOptions, information_gain, information_growth, rkhs_width
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


def width(schedule: Schedule) -> float:
    return WidthOptions(noise_variance=0.04, norm_bound=2.0, delta=0.1).sparse_width(schedule, 3.0, (0.04, 0.09), 5.0)


def test_widths_equal_a_computation_by_hand() -> None:
    assert width("practical") == pytest.approx(0.2 * math.sqrt(3 * 5 + math.log(10)) + 0.3 * 2)
    beta = 2 * 0.2 * math.sqrt(5 + math.log(10)) + (1 + math.sqrt(2)) * 0.3 * 2
    assert width("theory") == pytest.approx(3 * beta)


@pytest.mark.parametrize(("schedule", "c"), [("practical", 1), ("theory", 3)])
def test_information_gain_sums_over_pulls(schedule: Schedule, c: int) -> None:
    gain = information_gain(np.array([0.5, 0.5, 2.0]), schedule)
    assert gain == pytest.approx(2 * math.log(1 + c * 0.5) + math.log(1 + c * 2.0))


def test_width_on_the_bayesian_scale_equals_a_computation_by_hand() -> None:
    found = rkhs_width(0.5, 0.01, math.log(40), 1e-3)
    assert found == pytest.approx(0.5 + 0.01 * math.sqrt(2 * (math.log(40) + 1 + math.log(1000))))


@pytest.mark.parametrize(
    ("kernel", "growth"),
    [(Matern32(0.2), [0.0, 1.0, 7.0]), (Matern52(0.2), [0.0, 1.0, 7.0]), (RBF(), [0, 0, math.log(49)])],
)
def test_information_grows_as_the_kernel_determines(kernel: AnyKernel, growth: list[float]) -> None:
    assert [information_growth(kernel, pulls) for pulls in (0, 1, 49)] == growth
