"""The conversion of texts and numbers in all pictures."""

import html
import json
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.report.figure import label, quantiles, round_values, visible_range
from orchestrator.wording import printable

LARGEST = sys.float_info.max


@given(st.text(max_size=80))
@settings(max_examples=100, deadline=None)
def test_a_label_shows_the_text_and_can_open_no_tag(text: str) -> None:
    shown = label(text, limit=900)
    assert "<" not in shown
    assert html.unescape(shown) == html.unescape(html.escape(printable(" ".join(text.split())), quote=False))


@given(st.text(min_size=1), st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_a_label_is_never_longer_than_its_limit(text: str, limit: int) -> None:
    assert len(html.unescape(label(text, limit))) <= limit


@given(st.lists(st.floats()))
@settings(max_examples=60, deadline=None)
def test_rounded_numbers_are_strict_json_and_near(values: list[float]) -> None:
    result = json.loads(json.dumps(round_values(values), allow_nan=False))
    for value, short in zip(values, result, strict=True):
        assert (short is None) == (value - value != 0)
        assert short is None or abs(short - value) <= 1e-5 * abs(value)


@given(st.lists(st.floats(-LARGEST, LARGEST), min_size=1, max_size=9))
def test_quantiles_of_any_finite_values_lie_between_the_least_and_the_largest(values: list[float]) -> None:
    low, high = quantiles(values, 0.0, 1.0)
    np.testing.assert_allclose([low, high], [min(values), max(values)], atol=1e-300)
    inner = quantiles(values, 0.25, 0.75)
    assert low <= inner[0] <= inner[1] <= high
    visible_range(np.array([-LARGEST, LARGEST, *values]), True)  # a warning would be an error


def test_the_largest_float_stays_finite_when_it_is_rounded() -> None:
    largest = sys.float_info.max
    for digits in range(1, 8):
        numbers = round_values([largest, -largest, 1.5, float("inf")], digits=digits)
        assert numbers[3] is None
        assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
