"""The fit of the model over steps: its gradient, its fit to curves, and its choice of trials."""

import math

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.curves import Curves, CurveValues
from bbkb.orchestrator.bandit.kernels import Matern52
from bbkb.orchestrator.bandit.model.curve_kernel import CurveNumbers
from bbkb.orchestrator.bandit.model.fitting import (
    MOST_VALUES,
    CurveFitInput,
    CurveObjective,
    chosen_trials,
    fit_curves,
    prior_numbers,
)
from bbkb.orchestrator.bandit.results import TrialCurve

SPAN = (1.0, 32.0)
NONE = np.empty(0, np.intp), np.empty(0), np.empty(0)


def make_input(seed: int, reliability: float = 0.5) -> CurveFitInput:
    """Curves that rise to an end that depends on the first feature; early values have this
    `reliability` as predictions of the end."""
    rng = np.random.default_rng(seed)
    arms = Arms.of(rng.random((14, 3)))
    curves = []
    for trial in range(14):
        curve = TrialCurve(trial, trial)
        end, early = np.sin(5 * arms.features[trial, 0]), rng.normal()
        for step in (1, 2, 4, 8, 16, 32):
            share = np.log2(step) / 5
            start = reliability * end + (1 - reliability) * early
            curve = curve.after(step, float(share * end + (1 - share) * start + 0.01 * rng.normal()))
        curves.append(curve)
    values = CurveValues.of(Curves().updated(curves), *NONE)
    scores = (values.rewards - values.rewards.mean()) / values.rewards.std()
    return CurveFitInput(arms.features, values, scores, arms.layout, Matern52())


@pytest.mark.parametrize("seed", range(5))
def test_gradient_of_the_loss_is_its_derivative(seed: int) -> None:
    objective = CurveObjective(make_input(seed), SPAN)
    theta = np.random.default_rng(seed).uniform(objective.lower / 3, objective.upper / 3)
    gradient = objective.loss(theta)[1]
    for position in range(len(theta)):
        step = np.zeros(len(theta))
        step[position] = 1e-5
        rise = objective.loss(theta + step)[0] - objective.loss(theta - step)[0]
        np.testing.assert_allclose(gradient[position], rise / 2e-5, rtol=1e-4, atol=1e-5)


def correlation(numbers: CurveNumbers, step: float) -> float:
    """Return the correlation over configurations of the value at `step` with the last one."""
    apart = 1.0 - math.log(step) / math.log(numbers.last)
    bend = math.exp(-0.5 * (apart / numbers.step_lengthscale) ** 2)
    own = math.exp(-0.5 * (apart / numbers.own_lengthscale) ** 2)
    covariance = numbers.lasting + numbers.bending * bend + numbers.own * 0.5 * (1.0 + own)
    return covariance / (numbers.lasting + numbers.bending + numbers.own + numbers.noise)


def test_early_steps_are_more_reliable_if_they_predict_the_end() -> None:
    correlations = []
    for reliability in (0.0, 1.0):
        start = (1.0, 1.0, 1.0), prior_numbers(*SPAN)
        _, numbers = fit_curves(make_input(3, reliability), start, SPAN)
        correlations.append(correlation(numbers, 1))
        assert correlation(numbers, 32) > 0.95
    assert correlations[0] < 0.92 < 0.98 < correlations[1]


def test_fit_takes_whole_trials_within_its_limit_and_the_best_of_them() -> None:
    sizes = np.full(500, 6)
    scores = np.random.default_rng(0).normal(size=500)
    positions = chosen_trials(scores, sizes)
    assert sizes[positions].sum() <= MOST_VALUES
    assert set(np.argsort(-scores)[:10]) <= set(positions.tolist())
    assert chosen_trials(scores[:20], sizes[:20]).tolist() == list(range(20))
