"""`benchmarks.asynchrony.tables`: Courses as tables: utilisation, regret at equal times, the method
with the lowest regret, and parts of the regret.
"""

import numpy as np
import pytest

from benchmarks.asynchrony.tables import verdict


def test_the_lowest_mean_is_the_lowest() -> None:
    assert verdict({"async": np.array([1.0, 1.2]), "batch": np.array([1.1, 1.3])}) == "lowest"


def test_a_lower_mean_counts_only_beyond_the_interval_of_the_paired_difference() -> None:
    ours = np.array([1.0, 2.0, 3.0])
    assert verdict({"async": ours, "batch": ours - [0.3, -0.2, 0.3]}) == "within"
    # the seeds differ far more than the methods do: only pairs show it
    assert verdict({"async": ours, "batch": ours - [0.10, 0.11, 0.12], "liar": ours + 1.0}) == "lower: batch"


def test_one_seed_proves_nothing() -> None:
    assert verdict({"async": np.array([1.0]), "batch": np.array([0.5])}) == "within"


@pytest.mark.parametrize("nothing", [np.array([np.nan, np.nan]), np.array([0.1, np.nan])])
def test_a_method_that_has_nothing_yet_is_not_lower(nothing: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    assert verdict({"async": np.array([1.0, 1.2]), "batch": nothing}) == "lowest"
