"""`bbkb.orchestrator.bandit.sparse.columns`: Kernel columns k(·, x_s) over all arms, kept between refits
within bounded memory.
"""

from typing import Any, cast

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.kernels import AnyKernel, Matern52
from bbkb.orchestrator.bandit.sparse.all_arms import WIDTH, KernelColumns, Points

FEATURES = np.random.default_rng(0).normal(size=(50, 3))
KERNEL = Matern52(0.8)
EVERY = np.arange(len(FEATURES))


class Counting:
    """The kernel, and the number of entries that were computed."""

    def __init__(self) -> None:
        self.computed = 0

    def cross(self, X: Floats, Y: Floats) -> Floats:
        self.computed += len(X) * len(Y)
        return KERNEL.cross(X, Y)

    def diagonal(self, X: Floats) -> Floats:
        return KERNEL.diagonal(X)


def points(*arms: int) -> Points:
    return Points(np.array(arms, np.intp), FEATURES[np.array(arms, np.intp)])


def columns_with_room_for(count: int, kernel: AnyKernel = KERNEL) -> KernelColumns:
    return KernelColumns(kernel, FEATURES, max_bytes=count * 8 * len(FEATURES))


@pytest.mark.parametrize("capacity", [0, 1, 3, 7, 100])
def test_columns_are_the_same_bits_with_any_memory_limit(capacity: int) -> None:
    columns = columns_with_room_for(capacity)
    assert columns.capacity == capacity
    rng = np.random.default_rng(1)
    earlier = [points()]  # the same object may be asked for again after its columns had to go
    for _ in range(200):
        earlier.append(points(*rng.integers(50, size=rng.integers(0, 6))))
        columns_asked = earlier[-1 - int(rng.integers(min(len(earlier), 4)))]
        asked = slice(10, 31) if rng.random() < 0.5 else rng.integers(50, size=7)
        rows = columns.rows(asked, columns_asked)
        np.testing.assert_array_equal(rows, KERNEL.cross(FEATURES[asked], columns_asked.features))
        assert rows.flags.c_contiguous
        assert len(columns._slots) <= capacity
        assert columns._columns.shape[1] <= capacity


def test_cached_columns_are_unchanged_when_the_array_grows() -> None:
    features = np.random.default_rng(2).normal(size=(20 * WIDTH, 2))
    columns = KernelColumns(KERNEL, features)
    widths = set()
    for number in range(0, 5 * WIDTH, 20):
        arms = np.arange(number, number + 20)
        columns.rows(slice(None), Points(arms, features[arms]))
        widths.add(columns._columns.shape[1])
    assert len(widths) >= 3
    every = np.random.default_rng(3).permutation(5 * WIDTH)
    again = columns.rows(np.arange(100), Points(every, features[every]))
    np.testing.assert_array_equal(again, KERNEL.cross(features[:100], features[every]))


def test_cached_column_is_not_computed_again() -> None:
    counting = Counting()
    columns = KernelColumns(counting, FEATURES)
    for asked in (points(3, 8), points(8, 3), points(3), points(3, 8)):
        columns.rows(slice(0, 50), asked)
        columns.rows(EVERY, asked)
    assert counting.computed == 2 * 50


def test_least_recently_used_column_is_evicted_first() -> None:
    counting = Counting()
    columns = columns_with_room_for(3, cast(Any, counting))
    for asked in (points(1, 2, 3), points(1), points(4)):  # 4 replaces 2
        columns.rows(EVERY, asked)
    assert counting.computed == 4 * 50
    columns.rows(EVERY, points(1, 3, 4))
    assert counting.computed == 4 * 50
    columns.rows(EVERY, points(2))
    assert counting.computed == 5 * 50


def test_columns_beyond_the_capacity_are_computed_and_evict_none() -> None:
    counting = Counting()
    columns = columns_with_room_for(3, cast(Any, counting))
    columns.rows(EVERY, points(1, 2))
    columns.rows(np.array([5, 6]), points(3, 4, 5, 6))
    assert counting.computed == 2 * 50 + 2 * 4
    columns.rows(EVERY, points(1, 2))
    assert counting.computed == 2 * 50 + 2 * 4
