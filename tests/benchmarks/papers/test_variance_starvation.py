"""`benchmarks.papers.variance_starvation`: Calandriello et al. 2019 (BKB), figure 1: BKB's variance
far from the data, where other approximations are too small.
"""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.experiment import Request
from benchmarks.papers.variance_starvation import (
    ARMS,
    EVALUATED,
    FAR,
    KERNEL,
    METHODS,
    REGULARIZATION,
    VARIANCE_STARVATION,
    Snapshot,
    draw_function,
    simulate,
)


@pytest.fixture(scope="module")
def snapshots() -> list[Snapshot]:
    return simulate(0, [4, 30])


def test_only_the_near_half_is_evaluated(snapshots: list[Snapshot]) -> None:
    assert all(EVALUATED[snapshot.dictionary].all() for snapshot in snapshots)
    assert ARMS[FAR].min() - ARMS[EVALUATED].max() > 0.09


def test_bkb_is_as_uncertain_far_away_as_it_should_be(snapshots: list[Snapshot]) -> None:
    for snapshot in snapshots:
        np.testing.assert_allclose(snapshot.ratio("bkb")[FAR], 1.0, atol=0.05)
        assert snapshot.coverage("bkb") == pytest.approx(snapshot.coverage("exact"), abs=0.05)


def test_without_the_residual_the_variance_far_away_vanishes(snapshots: list[Snapshot]) -> None:
    end = np.flatnonzero(FAR)[-1]
    assert all(snapshot.ratio("subset_of_regressors")[end] < 1e-6 for snapshot in snapshots)
    for snapshot in snapshots:
        assert (snapshot.ratio("subset_of_regressors") <= snapshot.ratio("bkb") * (1 + 1e-9)).all()


def test_after_one_evaluation_the_subset_of_regressors_is_the_formula() -> None:
    (snapshot,) = simulate(1, [1])
    covariance = KERNEL.cross(ARMS, ARMS[snapshot.dictionary])[:, 0]
    expected = covariance**2 / (1.0 + REGULARIZATION)  # k_𝒮ᵀ (K_𝒮p K_p𝒮 + λ K_𝒮)⁻¹ k_𝒮
    np.testing.assert_allclose(snapshot.beliefs["subset_of_regressors"].variance, expected, rtol=1e-9, atol=1e-30)


def test_every_seed_draws_its_own_function(snapshots: list[Snapshot]) -> None:
    functions = {draw_function(np.random.default_rng(seed)).tobytes() for seed in (0, 1)}
    assert len(functions) == 2
    assert snapshots[0].function.tobytes() in functions


def test_the_figure_has_a_column_a_size_and_a_row_a_method(tmp_path: Path) -> None:
    results = VARIANCE_STARVATION.run(Request(seeds=2, evaluations=9, methods=METHODS, out=tmp_path))
    rivals = ["BKB (DTC)", "subset of regressors"]
    assert [panel.title for panel in results.figures[0].panels] == [
        f"{rival}, t = {t}" for rival in rivals for t in (6, 9)
    ]
    assert [(row[0], row[1]) for row in results.tables[0].rows] == [(rival, t) for t in (6, 9) for rival in rivals]
    assert all(len(row) == len(results.tables[0].columns) for row in results.tables[0].rows)
