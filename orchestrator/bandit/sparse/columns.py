"""Kernel columns k(·, x_s) over all arms, kept between refits within bounded memory.

A dictionary changes little from one refit to the next, so nearly all its columns were computed before. Keeping them
cannot change a result: a kernel's entry depends on its two rows only (`kernels`). They lie in panels of some columns,
arm by arm, so that the few arms that a batch looks at are gathered in few sweeps of memory, and nothing is moved when
columns are added.
"""

from dataclasses import dataclass

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.kernels import Kernel

MAX_BYTES = 256 * 2**20
WIDTH = 32  # columns of a panel
ENTRIES = 65_536  # of columns, computed at a time
ROWS = 1024  # arms whose kept columns are gathered at a time: they stay in the cache


@dataclass(frozen=True, eq=False)
class Points:
    """Some arms: their numbers `arms` (m,) and their features `features` (m, d)."""

    arms: Indices
    features: Floats


class KernelColumns:
    """Columns of the kernel matrix over `features` (A, d); the least recently used go first at `max_bytes`."""

    def __init__(self, kernel: Kernel, features: Floats, max_bytes: int = MAX_BYTES) -> None:
        # feature by feature: the order in which a column is computed
        self._kernel, self._features = kernel, np.asfortranarray(features)
        self.capacity = max_bytes // (8 * len(features))  # how many columns are kept
        self._panels: list[Floats] = []  # (A, `WIDTH`) each
        self._slots: dict[int, int] = {}  # arm -> its column, over all panels; the last one is the most recently used
        self._last: tuple[Points, Indices] | None = None  # columns asked for last, and their slots

    def rows(self, positions: slice | Indices, columns: Points) -> Floats:
        """k(x, x_s) for the rows at `positions` (n of them) and s in `columns` (m): (n, m), contiguous."""
        if len(columns.arms) > self.capacity:  # a complete column for each would replace the kept ones
            return self._kernel.cross(self._features[positions], columns.features)
        if not len(columns.arms):
            return np.empty((len(self._features[positions]), 0))
        panel, place = np.divmod(self._slots_of(columns), WIDTH)
        first, last = int(place[0]), int(place[-1])
        if (panel == panel[0]).all() and (np.diff(place) == 1).all():  # in the order in which they first came
            return np.ascontiguousarray(self._panels[panel[0]][positions, first : last + 1])
        gathered = np.empty((len(self._features[positions]), len(panel)))
        for number in _distinct(panel):
            of_panel = np.flatnonzero(panel == number)
            gathered[:, of_panel] = self._panels[number][positions].take(place[of_panel], axis=1)
        return gathered

    def entries(self, positions: Indices, columns: Points) -> Floats:
        """`rows`, without keeping columns that are not kept yet: they are computed for these rows only."""
        is_kept = np.array([arm in self._slots for arm in columns.arms.tolist()], bool)
        if is_kept.all():
            return self.rows(positions, columns)
        entries = np.empty((len(positions), len(is_kept)))
        entries[:, ~is_kept] = self._kernel.cross(self._features[positions], columns.features[~is_kept])
        if is_kept.any():
            entries[:, is_kept] = self.rows(positions, Points(columns.arms[is_kept], columns.features[is_kept]))
        return entries

    def dot(self, positions: Indices, columns: Points, weights: Floats) -> Floats:
        """Σ_s w_s k(x, x_s) for the rows at `positions` (n,), s in `columns` (m) with `weights` (m,): (n,)."""
        if len(columns.arms) > self.capacity:
            return self.rows(positions, columns) @ weights
        panel, place = np.divmod(self._slots_of(columns), WIDTH)
        spread = np.zeros((len(self._panels), WIDTH))  # weights of 0 for the others save a second gathering
        spread[panel, place] = weights
        product = np.zeros(len(positions))
        for low in range(0, len(positions), ROWS):
            part = slice(low, low + ROWS)
            for number in _distinct(panel):
                kept = self._panels[number][positions[part]]
                product[part] += kept @ spread[number, : kept.shape[1]]
        return product

    def _slots_of(self, columns: Points) -> Indices:
        """Where the columns lie (m,), after computing those that do not lie anywhere yet."""
        if self._last is None or self._last[0] is not columns:
            wanted = columns.arms.tolist()
            for arm in wanted:
                if arm in self._slots:
                    self._slots[arm] = self._slots.pop(arm)
            slots: dict[int, int] = {}  # of those to be computed: number in `columns` -> slot
            for number, arm in enumerate(wanted):
                if arm not in self._slots:
                    self._slots[arm] = slots[number] = self._free_slot()
            if slots:
                self._fill(columns.features[list(slots)], np.array(list(slots.values())))
            self._last = columns, np.array([self._slots[arm] for arm in wanted], np.intp)
        return self._last[1]

    def _fill(self, points: Floats, slots: Indices) -> None:
        """Compute the columns of `points` (k, d), and put them into `slots` (k,)."""
        panel, place = np.divmod(slots, WIDTH)
        for number in _distinct(panel):
            of_panel = np.flatnonzero(panel == number)
            for low in range(0, len(self._features), ENTRIES // len(of_panel)):
                part = slice(low, low + ENTRIES // len(of_panel))
                cross = self._kernel.cross(self._features[part], points[of_panel])
                self._panels[number][part, place[of_panel]] = cross

    def _free_slot(self) -> int:
        used = len(self._slots)
        if used == self.capacity:
            return self._slots.pop(next(iter(self._slots)))
        if used == WIDTH * len(self._panels):  # zeros: `dot` reads columns that are not filled yet
            self._panels.append(np.zeros((len(self._features), min(WIDTH, self.capacity - used))))
        return used


def _distinct(numbers: Indices) -> list[int]:
    """The distinct values of `numbers` (n,), all ≥ 0, ascending."""
    distinct: list[int] = np.flatnonzero(np.bincount(numbers)).tolist()
    return distinct
