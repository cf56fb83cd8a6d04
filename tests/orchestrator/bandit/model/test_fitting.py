"""`bbkb.orchestrator.bandit.model.fitting`: Kernel and noise fitted to scores: the maximum a posteriori
estimate of lengthscales and noise variance.

The fit of the model over steps: its gradient, its fit to curves, and its choice of trials.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.arms import Arms, Layout
from bbkb.orchestrator.bandit.curves import Curves, CurveValues
from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel, Linear, Matern32, Matern52
from bbkb.orchestrator.bandit.model.curve_kernel import CurveNumbers
from bbkb.orchestrator.bandit.model.fitting import (
    LENGTHSCALES,
    MOST_ARMS,
    MOST_VALUES,
    NOISES,
    CurveFitInput,
    CurveObjective,
    Evidence,
    Fitted,
    _Objective,
    chosen_for_fit,
    chosen_trials,
    fit,
    fit_curves,
    is_due,
    keep_close_values,
    local_noise,
    prior,
    prior_numbers,
)
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.model.outputs import Outputs, scores_of
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.results import TrialCurve

FAMILIES: list[AnyKernel] = [RBF(), Matern32(), Matern52()]


def random_problem(seed: int) -> tuple[Evidence, Layout]:
    rng = np.random.default_rng(seed)
    choices = np.eye(3)[rng.integers(3, size=60)] / np.sqrt(2)
    arms = Arms.of(np.column_stack((rng.random((60, 2)), choices)), (0, 1, 2, 2, 2))
    pulled = np.sort(rng.choice(60, size=25, replace=False))
    counts = rng.integers(1, 6, size=25)
    scores = scores_of(np.sin(4 * arms.features[pulled, 0]) + 0.1 * rng.normal(size=25), Outputs.HALF_RANK)
    return Evidence(arms.features[pulled], scores, counts, int(counts.sum())), arms.layout


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("noise", [None, 0.1])
@given(seed=st.integers(0, 1000))
def test_gradient_is_that_of_the_loss(family: AnyKernel, noise: float | None, seed: int) -> None:
    evidence, layout = random_problem(seed)
    objective = _Objective(evidence, layout, family, noise)
    theta = np.random.default_rng(seed).uniform(objective.lower / 3, objective.upper / 3)
    gradient = objective.loss(theta)[1]
    for position in range(len(theta)):
        step = np.zeros(len(theta))
        step[position] = 1e-5
        rise = objective.loss(theta + step)[0] - objective.loss(theta - step)[0]
        np.testing.assert_allclose(gradient[position], rise / 2e-5, rtol=1e-4, atol=1e-5)


def loss_of(fitted: Fitted, evidence: Evidence, layout: Layout) -> float:
    lengthscales = np.log(np.array(fitted.lengthscales) / layout.extents)
    return _Objective(evidence, layout, Matern52(), None).loss(np.append(lengthscales, np.log(fitted.noise)))[0]


def test_best_of_the_minima_found_from_all_starts_is_returned() -> None:
    # an effect that is equal at both ends, where most arms are, looks like noise
    rng = np.random.default_rng(6)
    points = rng.random((40, 4))
    points[:28, 1:] = rng.integers(0, 2, (28, 3))
    arms = Arms.of(points)
    rewards = -np.cos(1.5 * points[:, 0]) * (1 + ((points[:, 1:] - 0.5) ** 2).sum(axis=1))
    evidence = Evidence(arms.features, scores_of(rewards, Outputs.HALF_RANK), np.ones(40, np.intp), 40)
    last = Fitted(tuple((np.array((0.7, 8.0, 8.0, 8.0)) * arms.layout.extents).tolist()), 0.1, 30)
    starts = [last, prior(arms.layout, None)]
    losses = [loss_of(fit(evidence, arms.layout, Matern52(), [start], None), evidence, arms.layout) for start in starts]
    best = fit(evidence, arms.layout, Matern52(), starts, None)
    assert abs(losses[0] - losses[1]) > 1.0
    assert loss_of(best, evidence, arms.layout) == min(losses)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_many_local_optima_of_one_parameter_are_no_noise(seed: int) -> None:
    points = np.random.default_rng(seed).random((30, 1))
    x = 0.5 + 2.0 * points[:, 0]
    rewards = -np.sin(10 * np.pi * x) / (2 * x) - (x - 1) ** 4  # Gramacy and Lee 2012
    arms = Arms.of(points)
    pulls = Pulls.none(30).add(np.arange(30), rewards)
    fitted = Model().refit(prior(arms.layout, None), pulls, arms.layout, points)
    assert fitted.lengthscales[0] < 0.06
    assert fitted.noise < 0.01


def test_with_several_outputs_a_parameter_without_visible_effect_gets_the_longest_lengthscale() -> None:
    points = np.random.default_rng(0).random((40, 4))
    arms = Arms.of(points)
    rewards = (np.cos(2 * points[:, 0]) + 0.2 * points[:, 1], np.sin(2 * points[:, 0]) - 0.2 * points[:, 1])
    scores = np.array([scores_of(one, Outputs.HALF_RANK) for one in rewards])

    def lengthscales(results: int) -> list[float]:
        evidence = Evidence(arms.features[:results], scores[:, :results], np.ones(results, np.intp), results)
        fitted = fit(evidence, arms.layout, Matern52(), [prior(arms.layout, None)], None)
        return list(np.array(fitted.lengthscales) / arms.layout.extents)

    first, weak, *without = lengthscales(40)
    assert first < weak < LENGTHSCALES[1]
    assert without == pytest.approx([LENGTHSCALES[1]] * 2, rel=1e-5)
    assert max(lengthscales(15)) < LENGTHSCALES[1]


@pytest.mark.parametrize("family", FAMILIES)
def test_parameter_that_matters_gets_the_shortest_lengthscale(family: AnyKernel) -> None:
    evidence, layout = random_problem(3)
    fitted = fit(evidence, layout, family, [prior(layout, None)], None)
    assert np.argmin(fitted.lengthscales) == 0
    assert fitted.results == evidence.results
    units = np.array(fitted.lengthscales) / layout.extents
    assert LENGTHSCALES[0] <= units.min() <= units.max() <= LENGTHSCALES[1]
    assert NOISES[0] <= fitted.noise <= NOISES[1]


def test_noise_that_is_known_is_not_fitted() -> None:
    evidence, layout = random_problem(3)
    assert fit(evidence, layout, Matern52(), [prior(layout, 0.02)], 0.02).noise == 0.02


def test_fit_does_not_depend_on_the_units_of_the_features() -> None:
    evidence, layout = random_problem(5)
    units = np.array([1000.0, 0.01, 1.0, 1.0, 1.0])
    scaled = replace(layout, extents=layout.extents * [1000.0, 0.01, 1.0])
    rescaled = replace(evidence, features=evidence.features * units)
    other = fit(rescaled, scaled, Matern52(), [prior(scaled, None)], None)
    fitted = fit(evidence, layout, Matern52(), [prior(layout, None)], None)
    np.testing.assert_allclose(np.array(other.lengthscales) / np.array(fitted.lengthscales), [1000, 0.01, 1], rtol=1e-3)


def test_one_hot_columns_of_a_choice_share_a_lengthscale() -> None:
    _, layout = random_problem(0)
    kernel = prior(layout, None).kernel(Matern52(), layout)
    assert isinstance(kernel, Matern52)
    scales = kernel.lengthscale
    assert isinstance(scales, tuple)
    assert len(scales) == 5
    assert len(set(scales[2:])) == 1


def test_fit_is_due_at_16_results_and_when_they_have_grown_by_30_percent() -> None:
    _, layout = random_problem(0)
    last, due = prior(layout, None), []
    for results in range(1, 201):
        if is_due(results, last):
            due.append(results)
            last = type(last)(last.lengthscales, last.noise, results)
    assert due == [16, 21, 28, 37, 49, 64, 84, 110, 143, 186]


def test_first_fit_can_be_earlier() -> None:
    last = prior(random_problem(0)[1], None)
    assert [results for results in range(12) if is_due(results, last, 8)] == [8, 9, 10, 11]


def test_fit_uses_a_bounded_number_of_arms_including_the_best() -> None:
    scores = np.random.default_rng(0).normal(size=5000)
    positions = chosen_for_fit(scores)
    assert len(positions) == len(set(positions.tolist())) == MOST_ARMS
    assert set(np.argsort(-scores)[:100].tolist()) <= set(positions.tolist())
    assert scores[positions].min() == scores.min()


def test_linear_kernel_has_nothing_to_fit() -> None:
    with pytest.raises(ValueError, match=r"model\.fit must be off with the linear kernel"):
        Model(kernel=Linear())


def test_kernel_is_kept_only_if_a_fit_changes_little() -> None:
    layout = Arms.of(np.random.default_rng(0).random((50, 2))).layout
    last = Fitted((0.5, 30.0), 0.1, 100)
    assert keep_close_values(Fitted((0.51, 20.0), 0.105, 130), last, layout) == Fitted((0.5, 30.0), 0.1, 130)
    assert keep_close_values(Fitted((0.51, 20.0), 0.2, 130), last, layout) == Fitted((0.5, 30.0), 0.2, 130)
    far = Fitted((0.51, 5.0), 0.105, 130)
    assert keep_close_values(far, last, layout) == replace(far, noise=0.1)
    assert keep_close_values(far, prior(layout, None), layout) == far  # the prior's medians were not fitted


def test_small_changes_of_fits_do_not_accumulate() -> None:
    layout, fitted = Arms.of(np.random.default_rng(0).random((50, 1))).layout, Fitted((0.5,), 0.1, 100)
    for step in range(1, 40):
        fitted = keep_close_values(Fitted((0.5 * 1.01**step,), 0.1, 100 + step), fitted, layout)
        assert fitted.lengthscales[0] == pytest.approx(0.5 * 1.01**step, rel=0.051)
    assert fitted.lengthscales != (0.5,)


def converged_search(seed: int, noise: float) -> tuple[Arms, np.ndarray]:
    """60 arms all over a space with a choice and 60 within 1e-5 of the best one.

    `noise` of the rewards is in units of the differences among the latter.
    """
    rng = np.random.default_rng(seed)
    points = np.vstack((rng.random((60, 2)), 0.4 + 1e-5 * rng.standard_normal((60, 2))))
    choices = np.eye(2)[np.append(rng.integers(2, size=60), np.zeros(60, np.intp))]
    rewards = -np.sum((points - 0.4) ** 2, axis=1) - choices[:, 1] + noise * 1e-10 * rng.standard_normal(120)
    return Arms.of(np.column_stack((points, choices)), (0, 1, 2, 2)), rewards


@pytest.mark.parametrize("seed", range(4))
def test_noise_is_distinguished_from_a_narrow_peak_around_the_best_arm(seed: int) -> None:
    arms, rewards = converged_search(seed, noise=0.0)
    assert local_noise(arms.features, rewards, arms.layout, Matern52()) < 0.005
    arms, rewards = converged_search(seed, noise=1.0)
    assert local_noise(arms.features, rewards, arms.layout, Matern52()) > 0.05
    far_away = Arms.of(7.0 + 100.0 * arms.features, arms.layout.parameters)
    assert local_noise(far_away.features, rewards, far_away.layout, Matern52()) > 0.05


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
