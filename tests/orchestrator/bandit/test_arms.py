"""The candidates of a bandit, arrays, and bounded caches."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.arms import Arms, as_arms, feature_extents
from bbkb.orchestrator.bandit.arrays import Recent, read_only, same


def test_feature_is_its_own_parameter_by_default() -> None:
    assert Arms.of(np.random.default_rng(0).random((5, 3))).layout.parameters.tolist() == [0, 1, 2]
    assert Arms.of(np.eye(3), (0, 0, 1)).layout.parameter_count == 2


def test_array_means_arms_that_may_repeat() -> None:
    features = np.random.default_rng(0).random((5, 3))
    assert as_arms(features) == Arms.of(features)
    assert as_arms(features).layout.repeats
    assert as_arms(arms := Arms.of(features, repeats=False)) is arms
    assert arms != Arms.of(features)


def test_extent_is_the_range_of_a_feature_and_the_distance_of_two_choices() -> None:
    choice = np.eye(3)[[0, 1, 2, 0]] / np.sqrt(2)
    features = np.column_stack((np.linspace(0, 50, 4), choice, np.full(4, 7.0)))
    np.testing.assert_allclose(feature_extents(features, np.array([0, 1, 1, 1, 2])), [50.0, 1.0, 1.0])


def test_single_outlier_hardly_changes_an_extent() -> None:
    values = np.append(np.linspace(0, 1, 1000), 1000.0)[:, None]
    assert feature_extents(values, np.array([0]))[0] < 200


@pytest.mark.parametrize(
    ("features", "parameters", "message"),
    [
        (np.zeros((0, 2)), None, "A, d >= 1"),
        (np.array([[0.0], [np.nan]]), None, "row 1 is"),
        (np.zeros((3, 2)), (0,), "one number a feature"),
        (np.zeros((3, 2)), (0, 2), "must be the indices"),
    ],
)
def test_parts_that_do_not_fit_together_are_rejected(features: Any, parameters: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Arms.of(features, parameters)


@dataclass(frozen=True, eq=False)
class Value:
    array: Any
    number: float = 0.0


def test_read_only_array_is_a_copy_of_a_writeable_one() -> None:
    owned = np.arange(3.0)
    array = read_only(owned, np.float64)
    owned[0] = 7.0
    assert array.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1.0


def test_read_only_array_is_not_copied_again() -> None:
    array = read_only([1, 2], np.intp)
    assert read_only(array, np.intp) is array
    assert read_only(array, np.float64).dtype == np.float64


def test_values_are_equal_if_their_types_and_fields_are_equal() -> None:
    assert same(Value(np.arange(3)), Value(np.arange(3)))
    assert not same(Value(np.arange(3)), Value(np.arange(4)))
    assert not same(Value(np.arange(3)), Value(np.arange(3), 1.0))
    assert not same(Value(np.arange(3)), np.arange(3))


def test_read_only_view_of_an_array_that_can_change_is_copied() -> None:
    array = np.zeros(3)
    view = array[:]
    view.flags.writeable = False
    copy = read_only(view, np.float64)
    array[0] = 1.0
    assert copy.tolist() == [0.0, 0.0, 0.0]
    assert read_only(copy[1:], np.float64).base is copy  # no copy of a read-only array
    buffer = np.frombuffer(bytes(16), np.float64)
    assert read_only(buffer, np.float64) is buffer
    assert read_only(np.frombuffer(bytearray(16), np.float64), np.float64).base is None


@given(st.lists(st.integers(0, 5)), st.integers(1, 4))
def test_values_used_last_are_cached_and_others_recomputed(keys: list[int], capacity: int) -> None:
    recent: Recent[int, int] = Recent(capacity)
    used: list[int] = []
    for key in keys:
        made_keys: list[int] = []

        def make(key: int = key, made_keys: list[int] = made_keys) -> int:
            made_keys.append(key)
            return 10 * key

        assert recent.get(key, make) == 10 * key
        assert bool(made_keys) == (key not in list(dict.fromkeys(reversed(used)))[:capacity])
        used.append(key)


def test_removed_value_is_no_longer_cached() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.put("one", 1)
    assert recent.take("one") == 1
    assert recent.take("one") is None
