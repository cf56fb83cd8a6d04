"""`bandit.confidence`: the widths of BBKB (Theorem 2) and of Chowdhury and Gopalan (Theorem 2)."""

import math

import numpy as np
import pytest

from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel, Matern32, Matern52
from bbkb.orchestrator.bandit.scheduling import Schedule, WidthOptions, information_gain, information_growth, rkhs_width


def width(schedule: Schedule, gain: float, delta: float = 0.1, ratio_threshold: float = 3.0) -> float:
    options = WidthOptions(noise_variance=0.04, norm_bound=2.0, delta=delta)
    return options.sparse_width(schedule, ratio_threshold, (0.04, 0.09), gain)


def test_practical_width_equals_a_computation_by_hand() -> None:
    assert width("practical", 5.0) == pytest.approx(0.2 * math.sqrt(3 * 5 + math.log(10)) + 0.3 * 2)


def test_theoretical_width_equals_a_computation_by_hand() -> None:
    beta = 2 * 0.2 * math.sqrt(5 + math.log(10)) + (1 + math.sqrt(2)) * 0.3 * 2
    assert width("theory", 5.0) == pytest.approx(3 * beta)


@pytest.mark.parametrize(("schedule", "c"), [("practical", 1), ("theory", 3)])
def test_information_gain_sums_over_pulls(schedule: Schedule, c: int) -> None:
    gain = information_gain(np.array([0.5, 0.5, 2.0]), schedule)
    assert gain == pytest.approx(2 * math.log(1 + c * 0.5) + math.log(1 + c * 2.0))


@pytest.mark.parametrize("schedule", ["practical", "theory"])
def test_width_grows_with_information_and_confidence(schedule: Schedule) -> None:
    assert width(schedule, 2.0) > width(schedule, 1.0)
    assert width(schedule, 1.0, delta=0.01) > width(schedule, 1.0)
    assert width(schedule, 1.0, ratio_threshold=4.0) > width(schedule, 1.0)


def test_width_on_the_bayesian_scale_equals_a_computation_by_hand() -> None:
    found = rkhs_width(0.5, 0.01, math.log(40), 1e-3)
    assert found == pytest.approx(0.5 + 0.01 * math.sqrt(2 * (math.log(40) + 1 + math.log(1000))))


@pytest.mark.parametrize("kernel", [Matern32(0.2), Matern52(0.2)])
def test_information_grows_with_the_root_of_the_pulls_under_a_matern_kernel(kernel: AnyKernel) -> None:
    assert [information_growth(kernel, pulls) for pulls in (0, 1, 49)] == [0.0, 1.0, 7.0]


def test_information_grows_with_the_logarithm_of_the_pulls_under_a_gaussian_kernel() -> None:
    assert [information_growth(RBF(0.2), pulls) for pulls in (0, 1, 40)] == [0.0, 0.0, math.log(40)]
