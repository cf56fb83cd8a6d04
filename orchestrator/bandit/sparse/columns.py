"""Kernel columns k(·, x_s) over all arms, kept between refits within bounded memory.

A dictionary changes little from one refit to the next, so nearly all its columns were computed before. Keeping them
cannot change a result: a kernel's entry depends on its two rows only (`kernels`). They lie arm by arm, so that the few
arms that a batch looks at are gathered in one sweep of memory each.
"""

from dataclasses import dataclass

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.kernels import Kernel

MAX_BYTES = 256 * 2**20
FIRST_WIDTH = 64  # columns that there is room for at first; doubled when they are full


@dataclass(frozen=True, eq=False)
class Points:
    """Some arms: their numbers `arms` (m,) and their features `features` (m, d)."""

    arms: Indices
    features: Floats


class KernelColumns:
    """Columns of the kernel matrix over `features` (A, d); the least recently used go first at `max_bytes`."""

    def __init__(self, kernel: Kernel, features: Floats, max_bytes: int = MAX_BYTES) -> None:
        self._kernel, self._features = kernel, features
        self.capacity = max_bytes // (8 * len(features))  # how many columns are kept
        self._table = np.empty((len(features), 0))
        self._slots: dict[int, int] = {}  # arm -> its column of the table; the last one is the most recently used
        self._last: tuple[Points, Indices] | None = None  # columns asked for last, and their slots

    def rows(self, positions: slice | Indices, columns: Points) -> Floats:
        """k(x, x_s) for the rows at `positions` (n of them) and s in `columns` (m): (n, m), contiguous."""
        if len(columns.arms) > self.capacity:  # a whole column each would drive the others out
            return self._kernel.cross(self._features[positions], columns.features)
        if not len(columns.arms):
            return np.empty((len(self._features[positions]), 0))
        slots = self._slots_of(columns)
        first, last = int(slots[0]), int(slots[-1])
        if last - first == len(slots) - 1 and (np.diff(slots) == 1).all():  # in the order in which they first came
            return np.ascontiguousarray(self._table[positions, first : last + 1])
        return self._table[positions].take(slots, axis=1)

    def dot(self, positions: Indices, columns: Points, weights: Floats) -> Floats:
        """Σ_s w_s k(x, x_s) for the rows at `positions` (n,), s in `columns` (m) with `weights` (m,): (n,)."""
        if len(columns.arms) > self.capacity:
            return self.rows(positions, columns) @ weights
        slots = self._slots_of(columns)
        spread = np.zeros(self._table.shape[1])  # weights of 0 for the others save a second gathering
        spread[slots] = weights
        product: Floats = self._table[positions] @ spread
        return product

    def _slots_of(self, columns: Points) -> Indices:
        """Where the columns lie (m,), after computing those that do not lie anywhere yet."""
        if self._last is None or self._last[0] is not columns:
            wanted = columns.arms.tolist()
            for arm in wanted:
                if arm in self._slots:
                    self._slots[arm] = self._slots.pop(arm)
            for number, arm in enumerate(wanted):
                if arm not in self._slots:
                    slot = self._free_slot()
                    self._table[:, slot] = self._kernel.cross(self._features, columns.features[[number]])[:, 0]
                    self._slots[arm] = slot
            self._last = columns, np.array([self._slots[arm] for arm in wanted], np.intp)
        return self._last[1]

    def _free_slot(self) -> int:
        used, width = len(self._slots), self._table.shape[1]
        if used == self.capacity:
            return self._slots.pop(next(iter(self._slots)))
        if used == width:
            wider = np.zeros((len(self._features), min(max(FIRST_WIDTH, 2 * width), self.capacity)))
            wider[:, :width] = self._table
            self._table = wider
        return used
