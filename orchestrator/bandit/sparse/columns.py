"""Kernel columns k(·, x_s) over all arms, cached between refits within limited memory.

A dictionary changes little from one refit to the next, so nearly all of its columns were already
computed. Caching them cannot change a result, because an entry of a kernel depends only on its two
rows (`kernels`). Columns are stored in panels of a fixed number of columns, arm by arm. A batch
therefore reads the entries of its few arms from contiguous memory, and no column moves when others
are added.
"""

from dataclasses import dataclass

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.kernels import Kernel

MAX_BYTES = 256 * 2**20
WIDTH = 64  # the number of columns of a panel
ENTRIES = 65_536  # the number of column entries to compute at a time
# the number of arms whose panels are copied at a time, so that they stay in the processor's cache
GATHERED_ROWS = 128
# the number of cached lookups, for the dictionary and the pulled arms, which a sweep requests
# alternately
RECENT = 2


@dataclass(frozen=True, eq=False)
class Points:
    """Some arms: their indices `arms` (m,) and their features `features` (m, d)."""

    arms: Indices
    features: Floats


@dataclass(frozen=True, eq=False)
class _Places:
    """The locations of the m columns of some points."""

    panels: list[int]  # the indices of the panels with at least one of the columns, ascending
    among: Indices  # the position (m,) of each column among all columns of these panels

    @classmethod
    def of(cls, slots: Indices) -> "_Places":
        """Return the locations of `slots` (m,), which are indices of columns over all panels."""
        panel, place = np.divmod(slots, WIDTH)
        panels, rank = np.unique(panel, return_inverse=True)
        return cls(panels.tolist(), rank * WIDTH + place)


class KernelColumns:
    """Kernel columns over `features` (A, d); old ones are evicted beyond `max_bytes`."""

    def __init__(self, kernel: Kernel, features: Floats, max_bytes: int = MAX_BYTES) -> None:
        # feature by feature, which is the order in which a column is computed
        self._kernel = kernel
        self._features = np.asfortranarray(features)
        self.capacity = max_bytes // (8 * len(features))  # the largest number of cached columns
        self._panels: list[Floats] = []  # (A, `WIDTH`) each
        # arm → the index of its column over all panels; the last one is the most recently used
        self._slots: dict[int, int] = {}
        self._recent: list[tuple[Points, _Places]] = []  # the lookups of the last `RECENT` points

    def rows(self, positions: slice | Indices, columns: Points) -> Floats:
        """Return k(x, x_s) for the rows at `positions` (n,) and s in `columns` (m): (n, m),
        contiguous.

        Complete panels of a few rows are copied next to each other, and the columns are selected
        from the copy. Both steps stay in the processor's cache, and the number of calls does not
        depend on the number of columns.
        """
        # caching complete columns for all of them would evict the others
        if len(columns.arms) > self.capacity:
            return self._kernel.cross(self._features[positions], columns.features)
        if not len(columns.arms):
            return np.empty((len(self._features[positions]), 0))
        places = self._places_of(columns)
        if isinstance(positions, slice):
            positions = np.arange(*positions.indices(len(self._features)))
        gathered = np.empty((len(positions), len(places.among)))
        copied = np.empty((min(GATHERED_ROWS, len(positions)), WIDTH * len(places.panels)))
        panels = [
            (self._panels[number], slice(WIDTH * rank, WIDTH * rank + self._panels[number].shape[1]))
            for rank, number in enumerate(places.panels)
        ]
        for low in range(0, len(positions), GATHERED_ROWS):
            rows = positions[low : low + GATHERED_ROWS]
            copy = copied[: len(rows)]
            for panel, side in panels:
                copy[:, side] = panel.take(rows, axis=0)
            copy.take(places.among, axis=1, out=gathered[low : low + GATHERED_ROWS], mode="clip")
        return gathered

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

    def _places_of(self, columns: Points) -> _Places:
        """Return the locations of the columns, after computing those that are not cached."""
        for points, places in self._recent:
            if points is columns:
                return places
        numbers = columns.arms.tolist()
        for arm in numbers:
            if arm in self._slots:
                self._slots[arm] = self._slots.pop(arm)
        slots: dict[int, int] = {}  # the columns to compute: index in `columns` → slot
        for number, arm in enumerate(numbers):
            if arm not in self._slots:
                self._slots[arm] = slots[number] = self._free_slot()
        if slots:
            self._fill(columns.features[list(slots)], np.array(list(slots.values())))
        places = _Places.of(np.array([self._slots[arm] for arm in numbers], np.intp))
        self._recent = [*self._recent[1 - RECENT :], (columns, places)]
        return places

    def _fill(self, points: Floats, slots: Indices) -> None:
        """Compute the columns of `points` (k, d), and put them into `slots` (k,)."""
        panel, place = np.divmod(slots, WIDTH)
        for number in np.unique(panel).tolist():
            of_panel = np.flatnonzero(panel == number)
            for low in range(0, len(self._features), ENTRIES // len(of_panel)):
                part = slice(low, low + ENTRIES // len(of_panel))
                cross = self._kernel.cross(self._features[part], points[of_panel])
                self._panels[number][part, place[of_panel]] = cross

    def _free_slot(self) -> int:
        count = len(self._slots)
        if count == self.capacity:
            self._recent = []  # the cached locations may no longer be valid
            return self._slots.pop(next(iter(self._slots)))
        if count == WIDTH * len(self._panels):
            self._panels.append(np.empty((len(self._features), min(WIDTH, self.capacity - count))))
        return count
