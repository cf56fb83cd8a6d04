import numpy as np
import pytest

from orchestrator.bandit.columns import KernelColumns
from orchestrator.bandit.kernels import Matern52

ARMS = np.random.default_rng(0).normal(size=(50, 3))
KERNEL = Matern52(0.8)


@pytest.mark.parametrize("kept", [0, 1, 3, 100])
def test_memory_for_columns_changes_no_bit_and_stays_bounded(kept) -> None:
    columns = KernelColumns(KERNEL, ARMS, max_bytes=kept * 8 * len(ARMS))
    rng = np.random.default_rng(1)
    for _ in range(30):
        wanted = rng.integers(50, size=rng.integers(0, 6))
        others = slice(10, 31) if rng.random() < 0.5 else rng.integers(50, size=7)
        np.testing.assert_array_equal(columns.take(wanted, others), KERNEL.cross(ARMS[wanted], ARMS[others]))
        assert len(columns._kept) <= kept


def test_a_kept_column_is_not_computed_again() -> None:
    asked = []

    class Counting:
        def cross(self, X, Y):
            asked.append(len(X) * len(Y))
            return KERNEL.cross(X, Y)

        def diagonal(self, X):
            return KERNEL.diagonal(X)

    columns = KernelColumns(Counting(), ARMS)
    for _ in range(3):
        columns.take(np.array([3, 8]), slice(0, 50))
    assert sum(asked) == 2 * 50
