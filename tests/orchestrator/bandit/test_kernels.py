"""Kernels over arms, and the curves of trainings."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import kernels as oracle

from bbkb.objectives import coding
from bbkb.objectives.coding import MOST_ONE_HOT
from bbkb.objectives.parameters import Choice
from bbkb.orchestrator.bandit import kernels as kernels_module
from bbkb.orchestrator.bandit.arms import LEVEL, Arms, as_one_hot
from bbkb.orchestrator.bandit.curves import Curves, CurveValues, is_pair, pair_numbers, trials_and_steps
from bbkb.orchestrator.bandit.kernels import KERNELS, RBF, AnyKernel, Linear, Matern32, Matern52
from bbkb.orchestrator.bandit.model.fitting import Evidence, fit, prior
from bbkb.orchestrator.bandit.results import TrialCurve

ORACLES: dict[type[AnyKernel], Any] = {
    RBF: lambda scale: oracle.RBF(scale),
    Matern32: lambda scale: oracle.Matern(scale, nu=1.5),
    Matern52: lambda scale: oracle.Matern(scale, nu=2.5),
}
EVERY_KERNEL = pytest.mark.parametrize("kernel", list(KERNELS.values()))


def points(seed: int, count: int, d: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, d))


@pytest.mark.parametrize("kernel", list(ORACLES))
@pytest.mark.parametrize("lengthscale", [0.7, (0.5, 1.0, 2.0)])
def test_stationary_kernels_equal_those_of_scikit_learn(
    kernel: type[AnyKernel], lengthscale: float | tuple[float, ...]
) -> None:
    X, Y = points(0, 20), points(1, 15)
    expected = 1.7 * ORACLES[kernel](np.array(lengthscale))(X, Y)
    np.testing.assert_allclose(kernel(lengthscale, 1.7).cross(X, Y), expected, rtol=1e-12, atol=1e-14)


def test_linear_kernel_is_a_scaled_dot_product() -> None:
    X, Y, scales = points(0, 20), points(1, 15), (0.5, 1.0, 2.0)
    expected = 3.0 * (X / np.array(scales)) @ (Y / np.array(scales)).T
    np.testing.assert_allclose(Linear(scales, 3.0).cross(X, Y), expected, rtol=1e-12, atol=1e-14)


@EVERY_KERNEL
@given(seed=st.integers(0, 10**6))
def test_gram_matrix_is_symmetric_positive_semidefinite_with_the_stated_diagonal(
    kernel: type[AnyKernel], seed: int
) -> None:
    X = points(seed, 12)
    gram = kernel(1.3, 0.8).cross(X, X)
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_array_equal(gram.diagonal(), kernel(1.3, 0.8).diagonal(X))
    assert np.linalg.eigvalsh(gram).min() > -1e-12 * gram.diagonal().max()


@EVERY_KERNEL
@given(seed=st.integers(0, 10**6), low=st.integers(0, 40), size=st.integers(1, 30))
def test_kernel_entry_does_not_depend_on_the_other_entries(
    kernel: type[AnyKernel], seed: int, low: int, size: int
) -> None:
    X, Y = points(seed, 90, d=12), points(seed + 1, 9, d=12)
    whole, block = kernel(0.9, 1.1).cross(X, Y), slice(low, low + size)
    assert X.size * len(Y) > kernels_module.FEW  # so it is computed in parts
    np.testing.assert_array_equal(kernel(0.9, 1.1).cross(X[block], Y), whole[block])
    np.testing.assert_array_equal(kernel(0.9, 1.1).cross(X, Y[[4]])[:, 0], whole[:, 4])
    np.testing.assert_array_equal(kernel(0.9, 1.1).cross(Y, X).T, whole)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(0, 30),
    p=st.integers(0, 30),
    block=st.sampled_from([0, 1, 7, 50, 16_384]),
    scales=st.sampled_from([0.3, (0.5, 1.0, 2.0)]),
)
def test_squared_distances_are_those_of_a_double_loop_bit_for_bit_in_any_blocks(
    seed: int, n: int, p: int, block: int, scales: float | tuple[float, ...]
) -> None:
    X, Y = points(seed, n), points(seed + 1, p)
    divisors = np.broadcast_to(scales, 3)
    expected = np.zeros((n, p))
    for i in range(n):
        for j in range(p):
            for k in range(3):
                difference = X[i, k] / divisors[k] - Y[j, k] / divisors[k]
                expected[i, j] += difference * difference
    with pytest.MonkeyPatch.context() as patch:
        if block:  # without it few entries are computed in a call, with it in blocks
            patch.setattr(kernels_module, "BLOCK", block)
            patch.setattr(kernels_module, "FEW", 0)
        distances = kernels_module._squared_distances(X, Y, scales)
    np.testing.assert_array_equal(distances, expected)
    oracle_distances = cdist(X / divisors, Y / divisors, "sqeuclidean") if n and p else expected
    np.testing.assert_allclose(distances, oracle_distances, rtol=1e-12, atol=1e-13)


def test_near_duplicates_keep_their_distance() -> None:
    # far from the origin ‖x‖² + ‖y‖² − 2xy would lose it
    X = np.array([[1000.0, 1000.0], [1000.0, 1000.0 + 1e-6]])
    distances = kernels_module._squared_distances(X, X, 1.0)
    assert distances[0, 1] == pytest.approx(1e-12, rel=1e-6)
    assert distances[0, 0] == 0.0


@EVERY_KERNEL
def test_scale_that_is_not_positive_is_rejected_by_name(kernel: type[AnyKernel]) -> None:
    with pytest.raises(ValueError, match=r"strategy\.kernel\.lengthscale must be > 0 and finite, got -1"):
        kernel(-1)
    with pytest.raises(ValueError, match=r"strategy\.kernel\.lengthscale must be > 0"):
        kernel((1.0, 0.0))
    with pytest.raises(ValueError, match=r"strategy\.kernel\.variance must be > 0, got nan"):
        kernel(1.0, float("nan"))


@EVERY_KERNEL
def test_kernel_needs_one_lengthscale_per_feature(kernel: type[AnyKernel]) -> None:
    with pytest.raises(ValueError, match="one for each of the 3 features, got 2 numbers"):
        kernel((1.0, 2.0)).cross(points(0, 4), points(1, 4))


@pytest.mark.parametrize("name", list(KERNELS))
def test_mapping_names_its_kernel(name: str) -> None:
    adapter = TypeAdapter(AnyKernel)
    assert adapter.validate_python({"name": name, "lengthscale": [1, 2]}) == KERNELS[name]((1.0, 2.0))
    assert adapter.validate_python({"name": name, "lengthscale": 2}) == KERNELS[name](2.0)


@pytest.mark.parametrize("kernel", list(KERNELS.values()))
def test_kernel_accepts_numbers_and_arrays_of_numpy(kernel: Any) -> None:
    for scale in (np.float32(0.25), np.array(0.25), np.float64(0.25)):
        assert kernel(scale, np.int64(2)) == kernel(0.25, 2.0)
        assert type(kernel(scale).lengthscale) is float
    assert kernel(np.int64(1)) == kernel(1.0)
    assert kernel(np.array([0.25, 1])) == kernel((0.25, 1.0)) == kernel([0.25, 1])
    bad: Any
    for bad in ("much", None, {}, np.ones((2, 2)), []):
        with pytest.raises(ValueError, match=r"strategy\.kernel\.lengthscale must be"):
            kernel(bad)


@EVERY_KERNEL
def test_values_of_a_large_choice_compare_as_their_one_hot_columns(kernel: type[AnyKernel]) -> None:
    """The features of the choice are names; an index replaces a column for each value."""
    choice = Choice(tuple(range(MOST_ONE_HOT + 1)))
    codes = np.random.default_rng(0).integers(0, 12, size=40).astype(np.float64)
    codes[5] = np.nan  # the parameter does not exist
    numbers = points(0, 40, d=1)
    named = np.hstack((numbers, coding.features(choice, codes)))
    one_hot, parameters = as_one_hot(named, np.array([0, 1]))
    assert parameters.tolist() == [0, *[1] * len(np.unique(codes))]
    scales = (0.5, *[0.7] * (len(parameters) - 1))
    expected = kernel(scales, 1.7).cross(one_hot, one_hot)
    for rows in (slice(None), slice(3)):  # many and few entries
        at_once = kernel((0.5, 0.7), 1.7).cross(named[rows], named[rows])
        np.testing.assert_allclose(at_once, expected[rows, rows], rtol=1e-12)
    np.testing.assert_allclose(kernel((0.5, 0.7), 1.7).diagonal(named), expected.diagonal(), rtol=1e-12)


def test_fit_of_a_large_choice_equals_the_fit_of_its_one_hot_columns() -> None:
    rng = np.random.default_rng(1)
    named = np.hstack((rng.random((30, 1)), LEVEL - 2.0**20 * rng.integers(0, 5, (30, 1))))
    scores = named[:, 0] + (named[:, 1] == LEVEL) + 0.01 * rng.normal(size=30)
    one_hot, parameters = as_one_hot(named, np.array([0, 1]))
    assert coding.LEVEL == LEVEL
    fits = []
    for arms in (Arms.of(named), Arms.of(one_hot, parameters)):
        evidence = Evidence(arms.features, scores, np.ones(30, np.intp), 30)
        fits.append(fit(evidence, arms.layout, Matern52(), [prior(arms.layout, None)], None))
    np.testing.assert_allclose(fits[0].lengthscales, fits[1].lengthscales)
    np.testing.assert_allclose(fits[0].noise, fits[1].noise)


def curve_of(steps: list[int]) -> TrialCurve:
    curve = TrialCurve(0, 5)
    for step in steps:
        curve = curve.after(step, step / 10)
    return curve


def test_curve_keeps_the_first_value_of_each_octave_and_the_latest_one() -> None:
    assert curve_of(list(range(1, 28))).steps == (1, 2, 4, 8, 16, 27)
    assert curve_of([3, 5, 6, 7]).steps == (3, 5, 7)


@given(st.lists(st.integers(1, 3000), unique=True).map(sorted))
def test_curve_has_one_value_per_octave_and_the_latest(steps: list[int]) -> None:
    curve = curve_of(steps)
    octaves = [step.bit_length() for step in curve.steps[:-1]]
    assert octaves == sorted(set(octaves))
    assert curve.step == max(steps, default=0)


def test_curve_ignores_repeated_steps() -> None:
    curve = curve_of([1, 2, 3])
    assert curve.after(2, 9.0) == curve
    assert curve.after(3, float("nan")) == curve


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf")])
def test_curve_has_diverged_until_its_next_finite_value(reward: float) -> None:
    curve = curve_of([1, 2, 3])
    diverged = curve.after(4, reward)
    assert diverged == replace(curve, has_diverged=True)
    assert diverged.after(4, 0.5) == curve.after(4, 0.5)
    assert diverged.end(0.5) == curve.end(0.5)


def test_trial_that_has_diverged_counts_with_the_smallest_value_until_its_step() -> None:
    good, poor = TrialCurve(0, 5, (1, 2), (0.5, 0.9)), TrialCurve(1, 6, (1, 2, 16), (0.1, 0.2, 0.95))
    diverged = replace(good, has_diverged=True)
    assert Curves().updated([good, poor]).trials == (good, poor)
    assert [trial.rewards for trial in Curves().updated([diverged, poor]).trials] == [(0.5, 0.1), poor.rewards]
    later = TrialCurve(1, 6, (4, 16), (-3.0, 0.95))  # shows nothing of the first two steps
    assert Curves().updated([diverged, later]).trials[0].rewards == (0.5, 0.5)


def test_final_value_replaces_the_latest_one() -> None:
    assert curve_of([1, 2, 3]).end(7.0) == TrialCurve(0, 5, (1, 2, 3), (0.1, 0.2, 7.0), is_finished=True)
    assert TrialCurve(0, 5).end(7.0, 20).steps == (20,)


def test_end_is_the_largest_step_of_a_finished_trial_unless_it_is_given() -> None:
    open_trial, finished = curve_of([1, 2, 30]), TrialCurve(1, 6, (1, 20), (0.0, 1.0), is_finished=True)
    assert Curves().updated([open_trial]).end == 30
    assert Curves().updated([open_trial, finished]).end == 20
    assert Curves().updated([open_trial, finished], 50).end == 50


def test_curves_without_a_value_before_the_end_teach_nothing_about_steps() -> None:
    assert not Curves().is_informative
    assert not Curves(last_step=50).is_informative
    assert not Curves().updated([TrialCurve(1, 6, (20,), (1.0,), is_finished=True)]).is_informative
    assert Curves().updated([TrialCurve(1, 6, (10, 20), (0.0, 1.0), is_finished=True)]).is_informative


def test_older_trials_keep_their_latest_value_only_beyond_a_number_of_values() -> None:
    curves = Curves().updated([TrialCurve(trial, trial, (1, 2, 4), (0.0, 0.5, 1.0)) for trial in range(10)], 8)
    assert curves.within(30) is curves
    thinned = curves.within(9)
    assert [curve.steps for curve in thinned.trials] == [(4,)] * 7 + [(1, 2, 4)] * 3
    assert thinned.end == 8


def test_early_values_are_learned_only_of_ended_trials_or_if_later_ones_are_few() -> None:
    later = [TrialCurve(trial, trial, (2, 5, 8), (0.0, 0.5, 1.0)) for trial in range(2)]
    finished = TrialCurve(2, 2, (1, 3), (0.0, 0.5), is_finished=True)
    diverged = TrialCurve(3, 3, (2,), (0.5,), has_diverged=True)
    paused = TrialCurve(4, 4, (1, 4), (0.0, 0.5))
    curves = Curves().updated([*later, finished, diverged, paused], 16, 5)
    assert {trial: curve.steps for trial, curve in curves.learned.by_trial.items()} == {
        0: (5, 8),
        1: (5, 8),
        2: (3,),
        3: (2,),
    }
    assert curves.learned.end == 16
    assert [curve.steps for curve in curves.updated([], 16).learned.trials][-1] == (1, 4)
    few = Curves().updated([*later, finished, paused], 16, 5)
    assert few.learned is few


def test_numbers_of_pairs_are_unique_and_are_not_arms() -> None:
    trials, steps = np.repeat(np.arange(50), 40), np.tile(np.arange(1.0, 41.0), 50)
    numbers = pair_numbers(trials, steps)
    assert len(np.unique(numbers)) == len(numbers)
    assert is_pair(numbers).all()
    assert not is_pair(np.arange(10**7, 10**7 + 5)).any()
    assert [array.tolist() for array in trials_and_steps(numbers)] == [trials.tolist(), steps.tolist()]


def test_selected_trials_keep_their_values() -> None:
    curves = Curves().updated([curve_of([1, 2]), TrialCurve(4, 6, (3, 9, 20), (0.0, 0.5, 1.0), is_finished=True)])
    values = CurveValues.of(curves, np.array([8]), np.array([0.3]), np.array([2.0]))
    part = values.take(np.array([1, 2]))
    assert part.steps.tolist() == [3.0, 9.0, 20.0, 20.0]
    assert part.rewards.tolist() == [0.0, 0.5, 1.0, 0.3]
    assert part.trials.tolist() == [4, -1]
    assert part.last.tolist() == [2, 3]
