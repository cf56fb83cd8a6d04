"""`bbkb.orchestrator.bandit.sparse.posterior`: The square root of K_𝒮 behind the Nyström embedding z(x) =
L⁻¹ k_𝒮(x) (BKB, Calandriello et al. 2019, eq. 4).
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.kernels import RBF, Linear
from bbkb.orchestrator.bandit.sparse.posterior import pivoted_cholesky


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
