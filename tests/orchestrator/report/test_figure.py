"""The conversion of texts and numbers in all pictures."""

import html
import json
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.report.figure import axis_range, label, quantiles, round_values, visible_range
from bbkb.orchestrator.wording import printable
from tests.present import present

LARGEST = sys.float_info.max


@given(st.text(max_size=80))
@settings(max_examples=100, deadline=None)
def test_label_shows_the_text_without_markup(text: str) -> None:
    shown = label(text, limit=900)
    assert "<" not in shown
    assert html.unescape(shown) == html.unescape(html.escape(printable(" ".join(text.split())), quote=False))


@given(st.text(min_size=1), st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_label_is_never_longer_than_its_limit(text: str, limit: int) -> None:
    assert len(html.unescape(label(text, limit))) <= limit


@given(st.lists(st.floats()))
@settings(max_examples=60, deadline=None)
def test_rounded_numbers_are_strict_json_and_close_to_the_originals(values: list[float]) -> None:
    result = json.loads(json.dumps(round_values(values), allow_nan=False))
    for value, short in zip(values, result, strict=True):
        assert (short is None) == (value - value != 0)
        assert short is None or abs(short - value) <= 1e-5 * abs(value)


@given(st.lists(st.floats(-LARGEST, LARGEST), min_size=1, max_size=9))
def test_quantiles_lie_between_the_smallest_and_the_largest_value(values: list[float]) -> None:
    low, high = quantiles(values, 0.0, 1.0)
    np.testing.assert_allclose([low, high], [min(values), max(values)], atol=1e-300)
    inner = quantiles(values, 0.25, 0.75)
    assert low <= inner[0] <= inner[1] <= high
    all_values = np.array([-LARGEST, LARGEST, *values])
    visible_range(all_values, np.ones(len(all_values), dtype=bool), True)  # a warning would be an error


def test_rounded_values_keep_the_largest_float_finite() -> None:
    largest = sys.float_info.max
    for digits in range(1, 8):
        numbers = round_values([largest, -largest, 1.5, float("inf")], digits=digits)
        assert numbers[3] is None
        assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


@given(st.lists(st.tuples(st.floats(-LARGEST, LARGEST), st.booleans()), min_size=1, max_size=30), st.booleans())
@settings(max_examples=200, deadline=None)
def test_visible_range_is_finite_and_contains_the_best_feasible_value(
    results: list[tuple[float, bool]], is_maximized: bool
) -> None:
    values, is_feasible = (np.array(column) for column in zip(*results, strict=True))
    visible = visible_range(values, is_feasible, is_maximized)
    feasible = values[is_feasible] if is_feasible.any() else values
    best = feasible.max() if is_maximized else feasible.min()
    assert visible is None or visible[0] <= best <= visible[1]
    assert json.loads(json.dumps(visible, allow_nan=False)) == (visible and list(visible))


def test_axis_range_is_none_if_its_margin_exceeds_the_largest_float() -> None:
    assert axis_range(0.9 * LARGEST, LARGEST) is None
    assert axis_range(10.0, 0.0) == (-0.5, 10.5)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_visible_range_is_at_most_doubled_by_better_infeasible_values(sign: float) -> None:
    feasible, infeasible = np.linspace(100.0, 102.0, 20), np.linspace(103.0, 200.0, 20)
    is_feasible = np.arange(40) < 20
    visible = visible_range(sign * np.append(feasible, infeasible), is_feasible, sign > 0)
    assert visible == tuple(sorted((sign * 99.8, sign * 104.2)))


def test_visible_range_shows_few_feasible_values_among_the_others() -> None:
    values = np.array([*np.linspace(0.0, 1.0, 36), 100.0, 100.0001, 1e9])
    visible = present(visible_range(values, np.isin(values, (100.0, 100.0001)), False))
    assert visible[0] < 0.0
    assert 100.0001 < visible[1] < 200.0


def test_visible_range_may_follow_the_earliest_values() -> None:
    values = np.append(np.linspace(-0.6, -0.1, 32), np.linspace(-1e-6, 0.0, 100))
    is_feasible = np.ones(len(values), dtype=bool)
    visible = present(visible_range(values, is_feasible, True))
    assert visible[0] > -1e-4
    assert visible_range(values, is_feasible, True, earliest=32) is None
