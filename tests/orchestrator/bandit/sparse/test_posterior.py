"""The posterior of a dictionary, against dense algebra, with and without curves."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.linalg import cho_factor, cho_solve

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.curves import Curves, CurveValues, pair_numbers
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel, Linear, Matern32, Matern52
from bbkb.orchestrator.bandit.model.curve_kernel import CurveKernel, CurveNumbers, log_times, own_covariance
from bbkb.orchestrator.bandit.model.model import Mean
from bbkb.orchestrator.bandit.model.outputs import (
    LARGEST_VARIANCE,
    LEAST_VARIANCE,
    Outputs,
    Scale,
    mean_rewards,
    scores_of,
)
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.results import TrialCurve
from bbkb.orchestrator.bandit.sparse import all_arms as all_arms_module
from bbkb.orchestrator.bandit.sparse.all_arms import LocalCovariance, Pulled
from bbkb.orchestrator.bandit.sparse.curve_fit import (
    CurveEvidence,
    fit_evidence,
    pair_variances,
    predict,
    predict_unlearned,
)
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel, pivoted_cholesky
from tests.orchestrator.bandit.conftest import Problem

SEEDS = st.integers(0, 10**6)


@given(seed=SEEDS, gap=st.sampled_from([0.0, 1e-9, 1e-3]))
def test_posterior_is_exact_with_every_pulled_arm_in_the_dictionary(
    make_problem: Callable[..., Problem], seed: int, gap: float
) -> None:
    problem = make_problem(seed, gap)
    model = problem.model
    fitted = model.fit(problem.pulls, problem.pulls.arms)
    mean, variance = exact_posterior(model.kernel, model.arms, problem.pulls, model.regularization)
    points = model.arms[fitted.basis]
    # duplicates cost nothing; nearly singular rows that are not dropped cost digits of K_𝒮
    # itself
    is_easy = gap == 0.0 and np.linalg.cond(model.kernel.cross(points, points)) < 1e8
    tolerance = 1e-8 if is_easy else 1e-5
    np.testing.assert_allclose(fitted.mean, mean, atol=tolerance)
    np.testing.assert_allclose(fitted.variance, variance, atol=tolerance)


def assume_clear_rank(problem: Problem) -> None:
    """Skip dictionaries whose rank is a matter of rounding: the printed pseudo-inverse amplifies
    rounding errors of eigenvalues near its cutoff by up to 1e6, so it is not an oracle there."""
    atoms = problem.model.arms[problem.dictionary]
    values = np.linalg.eigvalsh(problem.model.kernel.cross(atoms, atoms))
    shares = values / values.max()
    assume(not np.any((shares > 1e-14) & (shares < 1e-10)))


def textbook_moments(model: SparseModel, pulls: Pulls, dictionary: Indices) -> tuple[Floats, Floats, Floats]:
    """Mean and k̃ as printed: z = K_𝒮^{+/2} k_𝒮, V = Σ n z zᵀ + λI."""
    gram = model.kernel.cross(model.arms, model.arms)
    values, vectors = np.linalg.eigh(gram[np.ix_(dictionary, dictionary)])
    keep = values > 1e-12 * values.max()
    Z = gram[:, dictionary] @ (vectors[:, keep] / np.sqrt(values[keep]))
    V = (Z.T * pulls.counts) @ Z + model.regularization * np.eye(keep.sum())
    embedded = Z @ np.linalg.solve(V, Z.T)
    mean = Z @ np.linalg.solve(V, Z.T @ pulls.reward_sums)
    return mean, (gram - Z @ Z.T) / model.regularization + embedded, embedded


# dictionaries may be near-singular, where the last digits of either computation depend on the
# version of LAPACK
assert_close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)


@given(seed=SEEDS)
def test_posterior_follows_the_printed_formulas_for_any_dictionary(
    make_problem: Callable[..., Problem], seed: int
) -> None:
    problem = make_problem(seed)
    assume_clear_rank(problem)
    mean, covariance, embedded = textbook_moments(problem.model, problem.pulls, problem.dictionary)
    fitted = problem.posterior
    assert_close(fitted.mean, mean)
    assert_close(fitted.variance, covariance.diagonal())
    everything = np.arange(len(mean))
    full, inside = fitted.covariances(fitted.moments(everything)[2], problem.model.points(everything))
    assert_close(full, covariance)
    assert_close(inside, embedded)
    whitened = fitted.moments(everything)[2]
    assert_close(whitened @ whitened.T, embedded)
    single_mean, single_variance, _ = fitted.moments(everything)
    assert_close(single_mean, mean)
    assert_close(single_variance, covariance.diagonal())
    assert_close(fitted.fit.weights[0] @ kernel_rows(problem.model, fitted.basis), mean)
    root = fitted.fit.roots @ kernel_rows(problem.model, fitted.basis)
    explained = (problem.model.diagonal - (root * root).sum(axis=0)) / problem.model.regularization
    assert_close(explained, covariance.diagonal())


@given(seed=SEEDS, covariance=st.sampled_from(["embedded", "paper"]))
def test_local_sums_are_those_of_the_printed_covariances(
    make_problem: Callable[..., Problem], seed: int, covariance: LocalCovariance
) -> None:
    problem = make_problem(seed)
    assume_clear_rank(problem)
    _, full, embedded = textbook_moments(problem.model, problem.pulls, problem.dictionary)
    arms, counts = np.unique(problem.batch, return_counts=True)
    pulled = Pulled(problem.model.points(arms), counts, problem.posterior.moments(arms)[2])
    square = full**2 if covariance == "paper" else np.maximum(full**2, embedded**2)
    variance = full.diagonal()
    is_measurable = variance > 1e-6  # below that a ratio is one of rounding errors
    expected = (square[:, arms] @ counts)[is_measurable] / variance[is_measurable]
    sums = problem.posterior.local_sums(None, pulled, covariance)
    np.testing.assert_allclose(sums[is_measurable], expected, rtol=1e-3, atol=1e-9)
    some = np.flatnonzero(is_measurable)[::-2]
    np.testing.assert_allclose(problem.posterior.local_sums(some, pulled, covariance), sums[some], rtol=1e-5)


def kernel_rows(model: SparseModel, basis: Indices) -> np.ndarray:
    result: np.ndarray = model.kernel.cross(model.arms[basis], model.arms)
    return result


def test_far_arms_stay_uncertain() -> None:
    arms = np.array([[0.0], [100.0]])
    model = SparseModel(RBF(1.0), arms, 0.01)
    fitted = model.fit(Pulls.none(2).add([0] * 5, [1.0] * 5), np.array([0]))
    assert fitted.variance[1] == pytest.approx(100.0)
    assert fitted.variance[0] < 0.2


@pytest.mark.parametrize("regularization", [1e-8, 1e-4, 1.0])
@pytest.mark.parametrize("kernel", [RBF(5.0), Matern32(5.0), Linear()])
def test_near_singular_dictionaries_stay_finite_and_close_to_exact(kernel: AnyKernel, regularization: float) -> None:
    rng = np.random.default_rng(0)
    line = np.outer(np.linspace(0, 1, 40), [1.0, 2.0])  # collinear
    arms = np.vstack((line, line[:10], line[:10] + 1e-9, np.zeros((1, 2))))  # duplicates, near-duplicates, zero
    pulled = rng.integers(len(arms), size=200)
    pulls = Pulls.none(len(arms)).add(pulled, arms[pulled, 0])
    fitted = SparseModel(kernel, arms, regularization).fit(pulls, pulls.arms)
    assert np.isfinite(fitted.mean).all()
    assert (fitted.variance >= 0).all()
    _, variance = exact_posterior(kernel, arms, pulls, regularization)
    # the prior is κ²/λ, so a rounding error costs 1e-12 of it
    np.testing.assert_allclose(fitted.variance, variance, atol=1e-12 * 10 / regularization + 1e-8)


def test_posterior_without_pulls_is_the_prior() -> None:
    fitted = SparseModel(RBF(1.0, 2.0), np.zeros((3, 1)), 0.5).fit(Pulls.none(3), np.empty(0, np.intp))
    assert fitted.mean.tolist() == [0.0] * 3
    assert fitted.variance.tolist() == [4.0] * 3
    assert fitted.moments(np.array([0, 1]))[2].shape == (2, 0)


def test_moments_of_an_arm_do_not_depend_on_the_other_arms_bit_for_bit(make_problem: Callable[..., Problem]) -> None:
    for seed in range(30):
        fitted, rng = make_problem(seed).posterior, np.random.default_rng(seed)
        count = len(fitted.model.arms)
        everything = fitted.moments(np.arange(count))
        np.testing.assert_array_equal(fitted.moments(np.arange(count))[2], everything[2])
        companies = [np.array([arm]) for arm in range(count)]
        companies += [rng.permutation(count)[: rng.integers(0, count + 1)] for _ in range(10)]
        for company in companies:
            for moment, every in zip(fitted.moments(company), everything, strict=True):
                np.testing.assert_array_equal(moment, every[company])


@pytest.mark.parametrize("regularization", [1e-8, 1e-4, 1.0])
@pytest.mark.parametrize("kernel", [RBF(5.0), RBF(0.3), Matern32(5.0), Linear()])
def test_moments_equal_those_of_the_sweep_up_to_rounding(kernel: AnyKernel, regularization: float) -> None:
    rng = np.random.default_rng(1)
    arms = rng.random((300, 3))
    arms[200:] = arms[:100] + rng.choice([0.0, 1e-9], size=(100, 1))
    pulled = rng.integers(300, size=400)
    pulls = Pulls.none(300).add(pulled, np.sin(arms[pulled, 0]))
    fitted = SparseModel(kernel, arms, regularization).fit(pulls, pulls.arms)
    mean, variance, _ = fitted.moments(np.arange(300))
    # the error that `upper_bounds.Rounded` allows for
    np.testing.assert_allclose(mean, fitted.mean, atol=1e-6)
    assert (np.abs(variance - fitted.variance) <= 1e-8 * fitted.model.diagonal / regularization).all()


@pytest.mark.parametrize("cuts", [[1], [20], [3, 4, 30, 50]])
def test_appended_arms_have_the_same_moments_bit_for_bit_as_arms_given_at_once(cuts: list[int]) -> None:
    rng = np.random.default_rng(4)
    arms = rng.normal(size=(60, 2))
    pulled = rng.integers(60, size=80)
    pulls = Pulls.none(60).add(pulled, rng.normal(size=80))
    dictionary = np.sort(rng.choice(pulls.arms, size=20, replace=False))
    whole = SparseModel(RBF(0.7), arms, 0.01).fit(pulls, dictionary)
    first, *others = np.split(arms, cuts)
    model = SparseModel(RBF(0.7), first, 0.01)
    for part in others:
        known = np.arange(len(model.arms))
        model.columns.rows(known, model.points(known))  # cached columns get the entries of the new arms
        model = model.extend(part)
    divided = model.fit(pulls, dictionary)
    for asked in (np.arange(60), rng.permutation(60)[:25], np.array([59, 0, 59, 3]), np.empty(0, np.intp)):
        for one, other in zip(divided.moments(asked), whole.moments(asked), strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(divided.mean, whole.mean, atol=1e-12)
    np.testing.assert_allclose(divided.variance, whole.variance, atol=1e-9)


def test_duplicates_have_the_same_moments_bit_for_bit() -> None:
    rng = np.random.default_rng(3)
    arms = np.tile(rng.normal(size=(37, 3)), (3, 1))
    pulled = rng.integers(111, size=60)
    pulls = Pulls.none(111).add(pulled, rng.normal(size=60))
    fitted = SparseModel(Matern32(1.0), arms, 0.01).fit(pulls, pulls.arms)
    for moment in fitted.moments(np.arange(111)):  # not `mean` and `variance`, which are joint products
        np.testing.assert_array_equal(moment[:37], moment[37:74])
        np.testing.assert_array_equal(moment[:37], moment[74:])


def test_blocks_of_arms_affect_only_the_memory(
    make_problem: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem(7)
    whole = problem.posterior
    monkeypatch.setattr(all_arms_module, "BLOCK", 3)
    blocked = SparseModel(problem.model.kernel, problem.model.arms, problem.model.regularization).fit(
        problem.pulls, problem.dictionary
    )
    np.testing.assert_allclose(blocked.mean, whole.mean, atol=1e-12)
    np.testing.assert_allclose(blocked.variance, whole.variance, atol=1e-9)


@given(seed=st.integers(0, 50), regularization=st.floats(1e-3, 1.0))
def test_changed_regularization_equals_a_new_model(
    make_problem: Callable[..., Problem], seed: int, regularization: float
) -> None:
    problem = make_problem(seed)
    before = problem.posterior.mean.copy()
    changed = problem.model.with_regularization(regularization)
    new = SparseModel(problem.model.kernel, problem.model.arms, regularization)
    assert changed == new
    one, other = (model.fit(problem.pulls, problem.dictionary) for model in (changed, new))
    np.testing.assert_array_equal(one.variance, other.variance)
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(problem.model.fit(problem.pulls, problem.dictionary).mean, before)


def test_models_are_equal_by_value_and_moments_are_read_only(make_problem: Callable[..., Problem]) -> None:
    one, other = make_problem(1).model, make_problem(1).model
    assert one == other
    assert one != make_problem(2).model
    assert one != "a model"
    with pytest.raises(ValueError, match="read-only"):
        make_problem(1).posterior.mean[0] = 0.0


@given(seed=st.integers(0, 10**6), exponent=st.floats(-8, -2), gap=st.floats(-9, -2))
def test_mean_of_white_noise_on_near_duplicates_is_exact_within_the_stated_range(
    seed: int, exponent: float, gap: float
) -> None:
    """The docstring of `posterior` states it: relative to the rewards, 10 m · eps · κ² · max(counts)
    / λ."""
    rng, lam = np.random.default_rng(seed), 10.0**exponent
    base = rng.random((20, 2))
    arms = np.concatenate((base, base + 10.0**gap * rng.normal(size=base.shape)))
    pulled = np.concatenate((np.arange(40), rng.integers(40, size=rng.integers(0, 200))))
    pulls = Pulls.none(40).add(pulled, rng.normal(size=len(pulled)))
    kernel = (RBF, Matern32)[seed % 2](0.5)
    rewards = pulls.reward_sums / pulls.counts
    fitted = SparseModel(kernel, arms, lam).fit(pulls, np.arange(40)).moments(np.arange(40))[0]
    allowed = 10 * 40 * np.finfo(np.float64).eps * pulls.counts.max() / lam * np.abs(rewards).max()
    assert np.abs(fitted - refined_mean(kernel.cross(arms, arms), lam / pulls.counts, rewards)).max() <= allowed


def refined_mean(gram: np.ndarray, noise: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """K (K + diag(noise))⁻¹ y, refined until the residual, in extended precision, is as small as it
    gets."""
    matrix, factor = gram.astype(np.longdouble) + np.diag(noise), cho_factor(gram + np.diag(noise))
    weights = np.zeros(len(rewards), np.longdouble)
    for _ in range(30):
        weights += cho_solve(factor, np.asarray(rewards - matrix @ weights, np.float64))
    return np.asarray(gram.astype(np.longdouble) @ weights, np.float64)


@given(seed=st.integers(0, 10**6))
def test_factor_restores_the_whole_matrix_even_if_it_is_singular(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(8, 2))
    points = np.vstack((points, points[rng.integers(8, size=5)], points[:3] + 1e-10))  # duplicates, near-duplicates
    for kernel in (RBF(5.0), Linear()):  # numerical rank below 16; rank 2
        gram = kernel.cross(points, points)
        pivots, factor = pivoted_cholesky(gram)
        np.testing.assert_allclose(factor @ factor.T, gram[np.ix_(pivots, pivots)], atol=1e-13)
        embedded = np.linalg.solve(factor, gram[pivots])
        np.testing.assert_allclose(embedded.T @ embedded, gram, atol=1e-6)
        assert len(set(pivots.tolist())) == len(pivots) < len(gram)
        assert (np.diagonal(factor) > 0).all()


def test_well_conditioned_matrix_keeps_every_row() -> None:
    points = np.arange(10.0)[:, None]
    pivots, _ = pivoted_cholesky(RBF(0.5).cross(points, points))
    assert sorted(pivots.tolist()) == list(range(10))


def test_empty_matrix_has_an_empty_factor() -> None:
    assert [len(part) for part in pivoted_cholesky(np.empty((0, 0)))] == [0, 0]
    assert [len(part) for part in pivoted_cholesky(np.zeros((3, 3)))] == [0, 0]


def test_matrix_that_is_not_finite_is_rejected() -> None:
    with pytest.raises(ValueError, match="must be finite"):
        pivoted_cholesky(np.full((2, 2), np.nan))


@given(st.integers(0, 50), st.sampled_from([Outputs.HALF_RANK, Outputs.STANDARDIZE]), st.sampled_from([0.05, 0.5]))
def test_known_deviations_give_the_posterior_of_a_dense_process_with_noise_per_point(
    seed: int, outputs: Outputs, regularization: float
) -> None:
    rng = np.random.default_rng(seed)
    arms = rng.random((30, 2))
    pulled = rng.integers(0, 12, 20)
    deviations = rng.choice([0.0, 0.01, 0.3, 5.0], 20)
    rewards = np.sin(5 * arms[pulled, 0]) + deviations * rng.normal(size=20)
    pulls = Pulls.none(30).add(pulled, rewards, deviations=deviations.tolist())
    model = SparseModel(Matern32(0.5), arms, regularization, outputs, Mean.CONSTANT)
    posterior = model.fit(pulls, pulls.arms)

    means = mean_rewards(pulls)
    scores = scores_of(means, outputs)
    assert pulls.variances is not None
    noise = np.clip(Scale(means, outputs).slope ** 2 * pulls.variances[pulls.arms], LEAST_VARIANCE, LARGEST_VARIANCE)
    kernel = model.kernel.cross(arms, arms)
    columns = kernel[pulls.arms]
    inverse = np.linalg.inv(columns[:, pulls.arms] + np.diag(noise))
    offset = inverse.sum(axis=0) @ scores / (inverse.sum() + 1.0)
    np.testing.assert_allclose(posterior.mean, offset + columns.T @ inverse @ (scores - offset), rtol=1e-6, atol=1e-6)
    variance = kernel.diagonal() - np.einsum("pa,pq,qa->a", columns, inverse, columns)
    np.testing.assert_allclose(posterior.variance * regularization, variance, rtol=1e-5, atol=1e-6)


def test_several_results_of_an_arm_are_worth_one_with_their_weighted_mean() -> None:
    arms = np.linspace(0, 1, 9)[:, None]
    rewards = np.array([0.0, 2.0, 1.0, 3.0])
    four = Pulls.none(9).add([0, 2, 5, 5], rewards, deviations=[0.2, 0.1, 0.3, 0.3])
    three = Pulls.none(9).add([0, 2, 5], [0.0, 2.0, 2.0], deviations=[0.2, 0.1, 0.3 / 2**0.5])
    model = SparseModel(RBF(0.4), arms, 0.05, Outputs.HALF_RANK, Mean.CONSTANT)
    fits = [model.fit(pulls, pulls.arms) for pulls in (four, three)]
    np.testing.assert_allclose(fits[0].mean, fits[1].mean, rtol=1e-9)
    np.testing.assert_allclose(fits[0].variance, fits[1].variance, rtol=1e-9)


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
