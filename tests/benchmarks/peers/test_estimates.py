"""How often the truth is within the deviations of a recommended configuration."""

import numpy as np
import pytest

from benchmarks.peers.estimates import errors, named
from objectives.datasets import DataSource


def test_a_finite_problem_has_the_best_value_one_and_the_median_zero() -> None:
    problem = named("branin:0.3:0.15:200", 1, DataSource.find(None))
    assert problem.arms is not None
    still = np.random.default_rng(0)
    results = [problem.evaluate(problem.arms.parameters(arm), still) for arm in range(len(problem.arms))]
    values = [result.expected for result in results]
    assert max(values) == 1.0
    assert np.median(values) == pytest.approx(0.0, abs=1e-12)
    assert np.std([result.reward - result.expected for result in results if result.reward is not None]) > 0.25


def test_errors_are_measured_where_an_estimate_is_shown() -> None:
    problem = named("branin:0.3:0.15:200", 0, DataSource.find(None))
    measured = errors(problem, 4, (30, 60), 0)
    assert {mark for mark, *_ in measured} <= {30, 60}
    assert measured
    assert all(deviation > 0.0 and abs(error) < 2.0 for _, error, deviation in measured)
