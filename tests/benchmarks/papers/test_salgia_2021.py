"""`benchmarks.papers.salgia_2021`: Salgia, Vakili, Zhao 2021 (GP-ThreDS): the methods of its
section 5 and appendix D, with their settings.
"""

import numpy as np
import pytest

from benchmarks.papers.measured import Measured
from benchmarks.papers.salgia_2021 import against_time, method


def run_of(seconds: list[float], values: list[float]) -> Measured:
    count, nothing = len(values), np.zeros(len(values), np.intp)
    return Measured(
        nothing,
        np.array(values),
        1.0,
        np.array(seconds),
        np.ones(count),
        np.arange(count),
        nothing,
        warm_start_batches=0,
    )


def test_against_time_every_pull_counts_from_when_it_was_made() -> None:
    curve = against_time("one", [run_of([1.0, 1.0, 2.0], [0.0, 1.0, 1.0])], points=5)
    np.testing.assert_allclose(curve.x, [1.0, 2**0.5, 2.0, 8**0.5, 4.0])
    np.testing.assert_allclose(curve.mean, [1.0, 1.0, 0.5, 0.5, 1 / 3])


def test_against_time_all_runs_count_everywhere() -> None:
    fast, slow = run_of([0.5, 0.5], [0.0, 0.0]), run_of([1.0, 3.0], [1.0, 1.0])
    curve = against_time("both", [fast, slow], points=3)
    assert (curve.x[0], curve.x[-1]) == (1.0, 1.0)  # where the fast one has ended, the slow one has just started
    np.testing.assert_allclose(curve.mean, 0.5)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be one of gp_threds, .*, got 'gp_ucb'"):
        method("gp_ucb", {"regularization": 0.01}, {}, {}, 1000)
