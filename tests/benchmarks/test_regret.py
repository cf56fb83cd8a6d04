"""`benchmarks.regret`: Regret: the loss compared with pulling the best arm always."""

import numpy as np

from benchmarks.regret import cumulative_regret, regret_ratio, simple_regret

VALUES = np.array([0.5, 1.0, 0.25, 2.0])


def test_cumulative_regret_sums_what_was_missed() -> None:
    assert cumulative_regret(2.0, VALUES).tolist() == [1.5, 2.5, 4.25, 4.25]


def test_simple_regret_is_that_of_the_best_so_far() -> None:
    assert simple_regret(2.0, VALUES).tolist() == [1.5, 1.0, 1.0, 0.0]


def test_the_regret_ratio_of_uniform_to_itself_is_one_and_undefined_without_regret() -> None:
    regret = cumulative_regret(2.0, VALUES)
    assert regret_ratio(regret, regret).tolist() == [1.0] * 4
    assert np.isnan(regret_ratio(np.zeros(1), np.zeros(1))[0])
