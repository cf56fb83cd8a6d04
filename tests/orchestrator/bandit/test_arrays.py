"""`bandit.arrays`: read-only arrays, and equality of frozen values that hold arrays."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arrays import read_only, same


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
