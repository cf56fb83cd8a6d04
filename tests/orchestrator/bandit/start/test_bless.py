"""`start.bless`: leverage score sampling (Rudi et al. 2018, Algorithm 1)."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel, Kernel
from bbkb.orchestrator.bandit.start.warm_start import WeightedDictionary, bless, leverage_scores
from tests.orchestrator.bandit.conftest import Problem


class CountingKernel:
    """A kernel that counts its entries, and the size of the largest requested block."""

    def __init__(self, kernel: AnyKernel) -> None:
        self.kernel, self.entries, self.largest = kernel, 0, 0

    def cross(self, X: Floats, Y: Floats) -> Floats:
        self.entries += len(X) * len(Y)
        self.largest = max(self.largest, len(X) * len(Y))
        return self.kernel.cross(X, Y)

    def diagonal(self, X: Floats) -> Floats:
        return self.kernel.diagonal(X)


def points(count: int, d: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, d))


def one_pull_each(count: int) -> np.ndarray:
    return np.ones(count, np.intp)


def exact_scores(kernel: AnyKernel, rows: NDArray[np.float64], regularization: float) -> np.ndarray:
    gram = kernel.cross(rows, rows)
    return np.diag(np.linalg.solve(gram + regularization * np.eye(len(rows)), gram))


def estimated_scores(
    dictionary: WeightedDictionary, kernel: Kernel, rows: NDArray[np.float64], regularization: float
) -> np.ndarray:
    return leverage_scores(kernel, rows, rows[dictionary.members], dictionary.weights, regularization)


@pytest.mark.parametrize("regularization", [1.0, 0.1, 0.01])
def test_estimated_scores_are_within_a_factor_3_of_the_exact_ones(regularization: float) -> None:
    kernel, rows = RBF(2.0), points(800)
    dictionary = bless(kernel, rows, one_pull_each(800), regularization, np.random.default_rng(1))
    ratio = estimated_scores(dictionary, kernel, rows, regularization) / exact_scores(kernel, rows, regularization)
    assert ratio.min() >= 1 / 3
    assert ratio.max() <= 3


def test_dictionary_is_a_few_times_the_effective_dimension() -> None:
    kernel, rows = RBF(2.0), points(1500, d=2)
    dimension = exact_scores(kernel, rows, 0.1).sum()
    dictionary = bless(kernel, rows, one_pull_each(1500), 0.1, np.random.default_rng(0))
    assert 2 * dimension < len(dictionary.members) < 9 * dimension


def test_kernel_entries_grow_nearly_linearly_and_never_are_an_n_by_n_matrix() -> None:
    entries = {}
    for count in (2000, 4000, 8000):
        kernel = CountingKernel(RBF(2.0))
        bless(kernel, points(count, d=2), one_pull_each(count), 0.1, np.random.default_rng(0))
        entries[count] = kernel.entries
        assert kernel.largest < count**2 / 10
    assert entries[8000] < 8000**2 / 2
    for count in (2000, 4000):  # 2 would be linear, and 4 quadratic
        assert entries[2 * count] < 2.6 * entries[count]


@given(seed=st.integers(0, 10**6), exponent=st.floats(-8, 1))
def test_members_are_distinct_rows_ascending_with_positive_weights(
    make_problem: Callable[..., Problem], seed: int, exponent: float
) -> None:
    model, rng = make_problem(seed).model, np.random.default_rng(seed)  # with duplicates and near-duplicates
    counts = rng.integers(1, 6, size=len(model.arms))
    dictionary = bless(model.kernel, model.arms, counts, 10**exponent, rng)
    assert dictionary.members.tolist() == sorted(set(dictionary.members.tolist()))
    assert dictionary.members.min() >= 0
    assert dictionary.members.max() < len(model.arms)
    assert (dictionary.weights > 0).all()
    assert not dictionary.members.flags.writeable
    assert np.isfinite(estimated_scores(dictionary, model.kernel, model.arms, 10**exponent)).all()


def test_pulls_of_one_arm_are_one_row_with_a_count() -> None:
    kernel, distinct, counts = RBF(1.0), points(60, d=2), np.random.default_rng(3).integers(1, 9, size=60)
    repeated = np.repeat(distinct, counts, axis=0)
    exact = exact_scores(kernel, repeated, 0.05)[np.cumsum(counts) - 1]
    dictionary = bless(kernel, distinct, counts, 0.05, np.random.default_rng(0))
    ratio = estimated_scores(dictionary, kernel, distinct, 0.05) / exact
    assert ratio.min() >= 1 / 3
    assert ratio.max() <= 3


def test_equal_rows_need_few_atoms() -> None:
    rows = np.zeros((500, 3))
    dictionary = bless(RBF(1.0), rows, one_pull_each(500), 0.1, np.random.default_rng(0))
    assert len(dictionary.members) <= 8 * 1 + 2  # d_eff is below 1, so at most ⌈8 · (estimate of it)⌉ are drawn
    np.testing.assert_allclose(estimated_scores(dictionary, RBF(1.0), rows, 0.1), 1 / 500.1, rtol=1.0)


@pytest.mark.parametrize("regularization", [1e-8, 1.0, 1e4])
def test_single_row_is_the_dictionary(regularization: float) -> None:
    dictionary = bless(RBF(1.0), np.zeros((1, 2)), np.array([1]), regularization, np.random.default_rng(0))
    assert dictionary.members.tolist() == [0]


def test_same_generator_gives_the_same_dictionary() -> None:
    one, other = (bless(RBF(1.0), points(200), one_pull_each(200), 0.1, np.random.default_rng(5)) for _ in range(2))
    assert one.members.tolist() == other.members.tolist()
    assert one.weights.tolist() == other.weights.tolist()


@pytest.mark.parametrize(
    ("counts", "constants", "message"),
    [
        ([1, 1], {"q": 1.0}, "bless needs q > 1, q1 > 0 and q2 > 0, got 1.0, 4.0 and 8.0"),
        ([1, 1], {"q2": 0.0}, "q2 > 0"),
        ([1, 0], {}, "a count >= 1 for each of its rows"),
        ([1], {}, "got 1 counts of 2 rows"),
    ],
)
def test_impossible_arguments_are_rejected(counts: list[int], constants: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bless(RBF(1.0), np.zeros((2, 1)), np.array(counts), 0.1, np.random.default_rng(0), **constants)
