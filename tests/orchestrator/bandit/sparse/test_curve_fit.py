"""The sparse posterior of the model over steps against a dense Gaussian process over all values of
all trials."""

import numpy as np
import pytest

from bbkb.orchestrator.bandit.curves import Curves, CurveValues, pair_numbers
from bbkb.orchestrator.bandit.kernels import Matern52
from bbkb.orchestrator.bandit.model.curve_kernel import CurveKernel, CurveNumbers, log_times, own_covariance
from bbkb.orchestrator.bandit.model.model import Mean
from bbkb.orchestrator.bandit.model.outputs import Outputs, Scale
from bbkb.orchestrator.bandit.results import TrialCurve
from bbkb.orchestrator.bandit.sparse.curve_fit import (
    CurveEvidence,
    fit_evidence,
    pair_variances,
    predict,
    predict_unlearned,
)
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel

NUMBERS = CurveNumbers(1.2, 0.5, 0.3, 0.2, 0.01, 0.6, 0.4, 1.0, 27.0)
ARMS = 40
AT_END = NUMBERS.lasting + NUMBERS.bending + NUMBERS.shared  # prior variance of a candidate's quality


def make_problem(seed: int) -> tuple[SparseModel, CurveEvidence]:
    rng = np.random.default_rng(seed)
    features = rng.random((ARMS, 3))
    curves = []
    for trial in range(12):
        curve = TrialCurve(trial, int(rng.integers(ARMS)))
        for step in range(1, int(rng.integers(2, 28))):
            curve = curve.after(step, float(rng.normal()))
        curves.append(curve)
    arms = np.array([3, 7])
    values = CurveValues.of(Curves().updated(curves, 27), arms, np.array([0.4, -0.2]), np.array([1.0, 3.0]))
    kernel = CurveKernel(Matern52(lengthscale=(0.4, 0.9, 2.0)), NUMBERS, 3)
    model = SparseModel(kernel, features, NUMBERS.end_noise, Outputs.RAW, Mean.CONSTANT)
    return model, CurveEvidence(values, features[values.arms], Scale(values.rewards[values.last], Outputs.RAW))


def dense(model: SparseModel, evidence: CurveEvidence, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of g at `points` by the textbook formula, with a constant mean of prior
    variance 1."""
    kernel, values = model.kernel, evidence.values
    times = log_times(values.steps, NUMBERS.first, NUMBERS.last)
    own = own_covariance(NUMBERS, times[:, None], times) * (values.owners[:, None] == values.owners)
    noise = (own + NUMBERS.noise * np.eye(len(times))) / values.weights[values.owners]
    covariance = kernel.cross(evidence.points, evidence.points) + noise
    solved = np.linalg.solve(covariance, np.column_stack((evidence.scores, np.ones(len(times)))))
    mean = solved[:, 0].sum() / (solved[:, 1].sum() + 1.0)
    cross = kernel.cross(points, evidence.points)
    posterior = kernel.cross(points, points) - cross @ np.linalg.solve(covariance, cross.T)
    return mean + cross @ (solved[:, 0] - mean * solved[:, 1]), posterior


@pytest.mark.parametrize("seed", range(5))
def test_posterior_with_all_pairs_as_atoms_equals_the_dense_one(seed: int) -> None:
    model, evidence = make_problem(seed)
    posterior = fit_evidence(model, evidence, np.sort(evidence.values.numbers))
    mean, covariance = dense(model, evidence, model.arms)
    np.testing.assert_allclose(posterior.mean, mean, atol=1e-6)
    np.testing.assert_allclose(posterior.variance * model.regularization, covariance.diagonal(), atol=1e-6)
    at_pairs = dense(model, evidence, evidence.points)[1].diagonal()
    np.testing.assert_allclose(pair_variances(posterior, evidence) * model.regularization, at_pairs, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_predictions_are_those_of_the_dense_process_with_trial_effects(seed: int) -> None:
    model, evidence = make_problem(seed)
    values = evidence.values
    posterior = fit_evidence(model, evidence, np.sort(values.numbers))
    trials = np.arange(12)
    predictions = predict(posterior, evidence, trials)
    times = log_times(values.steps, NUMBERS.first, NUMBERS.last)
    own = own_covariance(NUMBERS, times[:, None], times) * (values.owners[:, None] == values.owners)
    noise = (own + NUMBERS.noise * np.eye(len(times))) / values.weights[values.owners]
    covariance = model.kernel.cross(evidence.points, evidence.points) + noise
    offset = posterior.fit.offset
    for trial in trials:
        cross = model.kernel.cross(evidence.features[[trial]], evidence.points)[0]
        is_own = values.owners == trial
        cross = cross + np.where(is_own, own_covariance(NUMBERS, np.ones((1, 1)), times[None, :])[0], 0.0)
        expected = offset + cross @ np.linalg.solve(covariance, evidence.scores - offset)
        variance = AT_END + NUMBERS.own - cross @ np.linalg.solve(covariance, cross) + NUMBERS.noise
        assert predictions.means[trial] == pytest.approx(expected, abs=1e-6)
        assert predictions.deviations[trial] ** 2 == pytest.approx(variance, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_trials_that_are_not_learned_are_predicted_like_new_ones(seed: int) -> None:
    model, evidence = make_problem(seed)
    numbers = np.sort(evidence.values.numbers)
    of_other_trial = pair_numbers(np.array([20]), np.array([5.0]))
    posterior = fit_evidence(model, evidence, np.append(numbers, of_other_trial))
    curves = [TrialCurve(trial, trial - 10, (1, 2), (0.1, 0.3)) for trial in (21, 20)]
    unlearned = predict_unlearned(posterior, evidence, curves)
    merged = predict(posterior, evidence, np.arange(12)).merged(unlearned)
    mean, covariance = dense(model, evidence, model.arms[[10, 11]])
    assert merged.trials.tolist() == [*range(12), 20, 21]
    assert merged.arms[-2:].tolist() == [10, 11]
    np.testing.assert_allclose(merged.means[-2:], mean, atol=1e-6)
    variances = covariance.diagonal() + NUMBERS.end_noise
    np.testing.assert_allclose(merged.deviations[-2:] ** 2, variances, atol=1e-6)
    np.testing.assert_allclose(merged.latest[-2:], 0.3)


def test_finished_value_at_the_last_step_counts_as_one_pull() -> None:
    model, _ = make_problem(0)
    curves = Curves().updated([TrialCurve(0, 4, (27,), (1.5,), is_finished=True)], 27)
    values = CurveValues.of(curves, np.empty(0, np.intp), np.empty(0), np.empty(0))
    evidence = CurveEvidence(values, model.arms[values.arms], Scale(values.rewards, Outputs.RAW))
    posterior = fit_evidence(model, evidence, values.numbers)
    expected = AT_END - AT_END**2 / (AT_END + model.regularization)
    assert posterior.variance[4] * model.regularization == pytest.approx(expected)
