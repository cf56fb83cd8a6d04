"""Values as codes and features, and back."""

import numpy as np
import pytest
from ConfigSpace.hyperparameters.hp_components import UnitScaler
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.objectives import coding
from bbkb.objectives.parameters import Choice, Parameter, Range
from tests.objectives.random_spaces import discrete, parameters


@settings(max_examples=60, deadline=None)
@given(parameters, st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_values_and_codes_are_each_others_inverse(parameter: Parameter, positions: list[float]) -> None:
    values = coding.values(parameter, coding.draw(parameter, np.array(positions)))
    codes = coding.encode(parameter, values)
    again = coding.values(parameter, codes)
    if coding.is_real(parameter):
        np.testing.assert_allclose(again.astype(float), values.astype(float), rtol=1e-9)
    else:
        assert again.tolist() == values.tolist()
    np.testing.assert_array_equal(coding.encode(parameter, values), codes)
    for value, code in zip(values.tolist(), codes, strict=True):
        assert coding.code_of(parameter, value) == code


@settings(max_examples=40, deadline=None)
@given(discrete)
def test_codes_reach_all_values_and_are_distinct_when_spread(parameter: Parameter) -> None:
    codes = coding.draw(parameter, np.linspace(0, 1, 20_001))
    assert set(codes) == set(range(int(coding.count(parameter))))
    few = coding.spread_codes(parameter, 3)
    assert 1 <= len(set(few)) == len(few) <= 3
    assert {few[0], few[-1]} == {0.0, coding.count(parameter) - 1.0}


def test_steps_are_decimal() -> None:
    values = coding.values(Range(0, 1, step=0.05), np.arange(21.0))
    assert values.tolist() == [round(0.05 * k, 2) for k in range(21)]
    assert 0.15 in values.tolist()


@given(st.floats(1e-9, 1e6), st.floats(1.5, 1e9), st.booleans())
@settings(deadline=None)
def test_bounds_keep_their_written_values(low: float, factor: float, is_log: bool) -> None:
    bounds = [low, low * factor]
    real = Range(bounds[0], bounds[1], log=is_log)
    assert coding.values(real, np.array([0.0, 1.0])).tolist() == bounds
    assert coding.values(real, coding.encode(real, np.array(bounds))).tolist() == bounds


def test_weights_determine_the_shares_of_draws() -> None:
    codes = coding.draw(Choice(("a", "b"), weights=(3.0, 1.0)), np.linspace(0, 1, 1000, endpoint=False))
    assert np.bincount(codes.astype(int)).tolist() == [750, 250]


@pytest.mark.parametrize(
    ("parameter", "value", "rule"),
    [
        (Range(0, 1), 1.5, "must be from 0 to 1, got 1.5"),
        (Range(0, 1), "x", "must be a number, got 'x'"),
        (Range(0, 4, integer=True), 1.5, "must be a whole number, got 1.5"),
        (Range(0, 1, step=0.25), 0.3, "must be 0 plus steps of 0.25, got 0.3"),
        (Choice(("a", "b")), "c", "must be one of 'a', 'b', got 'c'"),
    ],
)
def test_value_that_a_parameter_cannot_take_is_rejected(parameter: Parameter, value: object, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        coding.code_of(parameter, value)


@pytest.mark.parametrize(("low", "high", "log"), [(0.0, 1.0, False), (-3.0, 7.1, False), (1e-7, 0.3, True)])
def test_scale_of_a_range_equals_that_of_configspace(low: float, high: float, log: bool) -> None:
    parameter = Range(low, high, log=log)
    reference = UnitScaler(np.float64(low), np.float64(high), np.float64, log=log)
    positions = np.random.default_rng(0).random(200)
    values = reference.to_value(positions)
    np.testing.assert_array_equal(coding.values(parameter, positions), values)
    np.testing.assert_array_equal(coding.encode(parameter, values), reference.to_vector(values))
