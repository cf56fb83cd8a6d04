"""Kernel columns k(·, x_s) over all arms, cached between refits within limited memory.

A dictionary changes little from one refit to the next, so nearly all of its columns were already
computed. Caching them cannot change a result, because an entry of a kernel depends only on its two
rows (`kernels`). The entries of an arm are contiguous, because a batch reads those of few arms.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.kernels import Kernel

MAX_BYTES = 256 * 2**20
WIDTH = 64  # the number of columns by which the array grows
ENTRIES = 65_536  # the number of column entries to compute at a time
# the number of cached lookups, for the dictionary and the pulled arms, which a sweep requests
# alternately
RECENT = 2


@dataclass(frozen=True, eq=False)
class Points:
    """Some arms: their indices `arms` (m,) and their features `features` (m, d)."""

    arms: Indices
    features: Floats


class KernelColumns:
    """Kernel columns over `features` (A, d); old ones are evicted beyond `max_bytes`."""

    def __init__(self, kernel: Kernel, features: Floats, max_bytes: int = MAX_BYTES) -> None:
        # feature by feature, which is the order in which a column is computed
        self._kernel = kernel
        self._features = np.asfortranarray(features)
        self.capacity = max_bytes // (8 * len(features))  # the largest number of cached columns
        self._columns = np.empty((len(features), 0))
        # arm → the index of its column; the last one is the most recently used
        self._slots: dict[int, int] = {}
        # the lookups of the last `RECENT` points, with the indices of their columns
        self._recent: list[tuple[Points, Indices]] = []

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore without cached columns."""
        features = state["_features"]
        max_bytes = 8 * len(features) * state["capacity"]
        vars(self).update(vars(KernelColumns(state["_kernel"], features, max_bytes)))

    def rows(self, positions: slice | Indices, columns: Points) -> Floats:
        """Return k(x, x_s) for the rows at `positions` (n,) and s in `columns` (m): (n, m),
        contiguous."""
        # caching complete columns for all of them would evict the others
        if len(columns.arms) > self.capacity:
            return self._kernel.cross(self._features[positions], columns.features)
        slots = self._slots_of(columns)
        return self._columns[positions].take(slots, axis=1)

    def entries(self, positions: Indices, columns: Points) -> Floats:
        """Like `rows`, but new columns are computed only for these rows and not cached."""
        is_kept = np.array([arm in self._slots for arm in columns.arms.tolist()], bool)
        if is_kept.all():
            return self.rows(positions, columns)
        entries = np.empty((len(positions), len(is_kept)))
        entries[:, ~is_kept] = self._kernel.cross(self._features[positions], columns.features[~is_kept])
        if is_kept.any():
            entries[:, is_kept] = self.rows(positions, Points(columns.arms[is_kept], columns.features[is_kept]))
        return entries

    def _slots_of(self, columns: Points) -> Indices:
        """Return the indices (m,) of the columns, after computing those that are not cached."""
        for points, slots in self._recent:
            if points is columns:
                return slots
        numbers = columns.arms.tolist()
        for arm in numbers:
            if arm in self._slots:
                self._slots[arm] = self._slots.pop(arm)
        added: dict[int, int] = {}  # the columns to compute: index in `columns` → slot
        for number, arm in enumerate(numbers):
            if arm not in self._slots:
                self._slots[arm] = added[number] = self._free_slot()
        if added:
            self._fill(columns.features[list(added)], np.array(list(added.values())))
        slots = np.array([self._slots[arm] for arm in numbers], np.intp)
        self._recent = [*self._recent[1 - RECENT :], (columns, slots)]
        return slots

    def _fill(self, points: Floats, slots: Indices) -> None:
        """Compute the columns of `points` (k, d), and put them into `slots` (k,)."""
        missing = int(slots.max()) + 1 - self._columns.shape[1]
        if missing > 0:
            width = min(self.capacity, self._columns.shape[1] + max(missing, WIDTH))
            grown = np.empty((len(self._features), width))
            grown[:, : self._columns.shape[1]] = self._columns
            self._columns = grown
        size = max(1, ENTRIES // len(points))
        for low in range(0, len(self._features), size):
            part = slice(low, low + size)
            self._columns[part, slots] = self._kernel.cross(self._features[part], points)

    def _free_slot(self) -> int:
        if len(self._slots) < self.capacity:
            return len(self._slots)
        self._recent = []  # the cached indices may no longer be valid
        return self._slots.pop(next(iter(self._slots)))
