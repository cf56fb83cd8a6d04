"""`bbkb.orchestrator.bandit.kernels`: Covariance functions k(x, x'), one frozen dataclass each."""

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
from bbkb.orchestrator.bandit.kernels import KERNELS, RBF, AnyKernel, Linear, Matern32, Matern52
from bbkb.orchestrator.bandit.model.fitting import Evidence, fit, prior

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
