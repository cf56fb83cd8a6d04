"""`bbkb.objectives.problems.synthetic`: functions with a formula, and regression data sets."""

import time

import numpy as np
import pytest

from bbkb.objectives.objective import Report
from bbkb.objectives.problems.datasets import Regression
from bbkb.objectives.problems.synthetic import Abalone, Branin, Cadata, Sine, branin, sine
from bbkb.objectives.reference import DataSource
from bbkb.objectives.sampling import make_candidates


@pytest.mark.parametrize("objective", [Sine(noise_std=0.0), Branin(noise_std=0.0)])
def test_optimum_is_the_best_of_a_fine_grid(objective: Sine | Branin, silent: Report) -> None:
    space = objective.default_space()
    candidates = make_candidates(space, 160_000 if len(space) == 2 else 10_001, "grid")
    # every 7th arm is fine enough, and both ends of the grid are kept
    arms = {*range(0, len(candidates), 7), 0, len(candidates) - 1}
    values = [objective.evaluate(candidates.parameters(arm), 0, silent).value for arm in arms]
    assert max(values) <= objective.optimum(maximize=True) <= max(values) + 1e-3
    assert min(values) - 1e-3 <= objective.optimum(maximize=False) <= min(values)


def test_branin_is_the_classical_function_scaled() -> None:
    """The classical minimum 0.397887 is attained at three points; the scaled function is (54.81 −
    classical) / 51.95."""
    for u, v in ((-np.pi, 12.275), (np.pi, 2.275), (9.42478, 2.475)):
        assert 54.81 - 51.95 * branin((u + 5) / 15, v / 15) == pytest.approx(0.397887, abs=1e-5)


def test_branin_has_mean_zero_and_variance_one_over_the_square() -> None:
    side = (np.arange(200) + 0.5) / 200
    values = np.array([branin(x, y) for x in side for y in side])
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.02


def test_sine_has_the_formula_of_the_paper() -> None:
    assert sine(0.0) == 1.0
    assert sine(np.pi) == pytest.approx(-1 + 0.1 * np.pi)


@pytest.mark.parametrize("objective", [Sine(noise_std=0.5), Branin(noise_std=0.5)])
def test_noise_has_the_requested_deviation(objective: Sine | Branin, silent: Report) -> None:
    parameters = {"x": 0.3, "y": 0.4}
    evaluations = [objective.evaluate(parameters, seed, silent) for seed in range(2000)]
    noise = np.array([evaluation.value - evaluation.metrics["noise_free"] for evaluation in evaluations])
    assert abs(noise.mean()) < 5 * 0.5 / np.sqrt(2000)
    assert abs(noise.std() - 0.5) < 0.05


def test_expensive_function_sleeps(monkeypatch: pytest.MonkeyPatch, silent: Report) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    Sine(seconds=3.0).evaluate({"x": 1.0}, 0, silent)
    Sine().evaluate({"x": 1.0}, 0, silent)
    assert slept == [3.0]


def test_missing_coordinate_is_named(silent: Report) -> None:
    with pytest.raises(ValueError, match="the space must have x and y, got x, z"):
        Branin().evaluate({"x": 0.1, "z": 0.2}, 0, silent)


def test_data_set_is_standardized_and_its_target_scaled_to_the_unit_interval(
    monkeypatch: pytest.MonkeyPatch, source: DataSource, silent: Report
) -> None:
    """Both named problems on the real data if the folder exists, else on a stand-in of the same
    shape."""
    if source.file("abalone/abalone.csv") is None:
        rng = np.random.default_rng(0)
        names = tuple("abcdefgh")
        stand_in = Regression(names, rng.random((50, 8)), rng.random(50) * 28 + 1, "a stand-in")
        monkeypatch.setattr("bbkb.objectives.problems.synthetic.load_abalone", lambda source: stand_in)
        monkeypatch.setattr("bbkb.objectives.problems.synthetic.load_cadata", lambda source: stand_in)
    for options in (Abalone(), Cadata()):
        table = options.load(source)
        assert table.features.shape[1] == 8
        np.testing.assert_allclose(table.features.mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(table.features.std(axis=0), 1)
        assert (table.optimum(maximize=False), table.optimum(maximize=True)) == (0, 1)
        best = int(table.target[:, 0].argmax())
        evaluation = table.evaluate(table.candidates().parameters(best), 0, silent)
        assert 0 < abs(evaluation.value - 1) < 0.1
        assert table.description
