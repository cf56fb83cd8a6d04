"""Recorded curves: the nearest recorded configuration, diverged trainings, the regret's unit."""

import numpy as np
import pytest

from benchmarks.curves.problems import WORST, CurveProblem
from benchmarks.curves.recorded import load_taskset
from objectives.datasets import DataSource
from objectives.objective import ObjectiveError


def test_a_recorded_configuration_has_its_own_curve(problem: CurveProblem, source: DataSource) -> None:
    losses = np.load(source.file("taskset/taskset.npz") or "")["valid_loss_a"]
    assert problem.arms is not None
    for arm in (0, 7, 59):
        assert problem.curve(problem.arms.parameters(arm)) == pytest.approx(-losses[arm])


def test_a_configuration_near_a_recorded_one_has_its_curve(problem: CurveProblem) -> None:
    assert problem.arms is not None
    near = {name: float(str(value)) * 1.0001 for name, value in problem.arms.parameters(3).items()}
    lowest = {name: max(value, float(problem.arms.columns[name].min())) for name, value in near.items()}
    inside = {name: min(value, float(problem.arms.columns[name].max())) for name, value in lowest.items()}
    assert problem.curve(inside) == pytest.approx(problem.curve(problem.arms.parameters(3)))


def test_a_diverged_training_keeps_the_largest_loss(source: DataSource) -> None:
    problem = load_taskset(1, source)
    assert problem.arms is not None
    curve = problem.curve(problem.arms.parameters(7))
    assert np.all(np.isfinite(curve))
    assert np.all(curve[5:] == curve.min())
    assert curve[5] <= min(problem.curve(problem.arms.parameters(arm)).min() for arm in range(60))


def test_regret_is_in_units_of_best_minus_median(problem: CurveProblem) -> None:
    assert problem.regret(problem.best) == 0.0
    assert problem.regret(problem.median) == pytest.approx(1.0)
    assert problem.regret(-1e30) == WORST


def test_missing_data_are_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(ObjectiveError, match=r"taskset/taskset\.npz"):
        load_taskset(0, DataSource(tmp_path_factory.mktemp("empty")))
