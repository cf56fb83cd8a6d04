"""`benchmarks.papers.findings`: The results of an experiment as plain values: tables of numbers
with intervals, and figures made of curves.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from benchmarks.papers.findings import Curve, Interval

SAMPLES = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12).filter(lambda samples: np.ptp(samples) > 1e-3)


@settings(deadline=None, max_examples=30)
@given(SAMPLES)
def test_an_interval_is_the_t_interval(samples: list[float]) -> None:
    interval, expected = Interval.of(samples), ttest_1samp(samples, 0.0).confidence_interval(0.95)
    bounds = (interval.mean - interval.half_width, interval.mean + interval.half_width)
    assert bounds == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-9)


def test_one_seed_has_a_mean_and_no_interval() -> None:
    interval = Interval.of([0.25])
    assert interval.mean == 0.25
    assert np.isnan(interval.half_width)
    assert str(interval) == "0.25"


@pytest.mark.parametrize(
    ("mean", "half_width", "shown"),
    [(0.03567, 0.00123, "0.0357 ± 0.0012"), (203.4, 12.3, "203 ± 12"), (2.0, 0.0, "2.000 ± 0.000")],
)
def test_the_half_width_says_how_many_digits_are_shown(mean: float, half_width: float, shown: str) -> None:
    assert str(Interval(mean, half_width, 10)) == shown


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 900), st.integers(2, 50))
def test_a_thinned_curve_keeps_its_ends_and_lies_on_the_whole_one(length: int, points: int) -> None:
    x, samples = np.arange(length) * 2.0, np.random.default_rng(length).random((3, length))
    curve = Curve.over_seeds("a", x, samples, points)
    assert len(curve.x) == min(points, length)
    assert (curve.x[0], curve.x[-1]) == (x[0], x[-1])
    np.testing.assert_allclose(curve.mean, samples.mean(axis=0)[(curve.x / 2).astype(int)])
