"""Kernel columns k(·, x_s) over all arms, kept between refits within bounded memory.

A dictionary changes little from one refit to the next, so nearly all its columns were computed
before. Keeping them cannot change a result: a kernel's entry depends on its two rows only
(`kernels`). They lie in panels of some columns, arm by arm, so that the few arms that a batch looks
at are gathered in few sweeps of memory, and nothing is moved when columns are added.
"""

from dataclasses import dataclass

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.kernels import Kernel

MAX_BYTES = 256 * 2**20
WIDTH = 64  # columns of a panel
ENTRIES = 65_536  # of columns, computed at a time
DOT_ROWS = 1024  # arms whose kept columns are multiplied at a time: they stay in the cache
GATHERED_ROWS = 128  # arms whose panels are copied at a time, for the same reason
RECENT = 2  # lookups that are kept: of a dictionary and of the pulled arms, which a sweep asks for in turns


@dataclass(frozen=True, eq=False)
class Points:
    """Some arms: their numbers `arms` (m,) and their features `features` (m, d)."""

    arms: Indices
    features: Floats


@dataclass(frozen=True, eq=False)
class _Places:
    """Where the m columns of some points lie."""

    panels: list[int]  # numbers of the panels that hold at least one of them, ascending
    among: Indices  # place of each column (m,) when all columns of these panels stand side by side

    @classmethod
    def of(cls, slots: Indices) -> "_Places":
        """Return the places of `slots` (m,), numbers of columns over all panels."""
        panel, place = np.divmod(slots, WIDTH)
        panels, rank = np.unique(panel, return_inverse=True)
        return cls(panels.tolist(), rank * WIDTH + place)

    def run(self) -> slice | None:
        """Return the places as a slice if the columns stand side by side in order; else None."""
        first = int(self.among[0])
        last = int(self.among[-1])
        if last - first + 1 == len(self.among) and (np.diff(self.among) == 1).all():
            return slice(first, last + 1)
        return None


class KernelColumns:
    """Columns of the kernel matrix over `features` (A, d); old ones go at `max_bytes`."""

    def __init__(self, kernel: Kernel, features: Floats, max_bytes: int = MAX_BYTES) -> None:
        # feature by feature: the order in which a column is computed
        self._kernel = kernel
        self._features = np.asfortranarray(features)
        self.capacity = max_bytes // (8 * len(features))  # how many columns are kept
        self._panels: list[Floats] = []  # (A, `WIDTH`) each
        self._slots: dict[int, int] = {}  # arm -> its column, over all panels; the last one is the most recently used
        self._recent: list[tuple[Points, _Places]] = []  # the lookups of the last `RECENT` points

    def rows(self, positions: slice | Indices, columns: Points) -> Floats:
        """Return k(x, x_s), rows at `positions` (n), s in `columns` (m): (n, m), contiguous."""
        if len(columns.arms) > self.capacity:  # a complete column for each would replace the kept ones
            return self._kernel.cross(self._features[positions], columns.features)
        if not len(columns.arms):
            return np.empty((len(self._features[positions]), 0))
        places = self._places_of(columns)
        run = places.run() if len(places.panels) == 1 else None
        if run is not None:  # in the order in which they first came
            return np.ascontiguousarray(self._panels[places.panels[0]][positions, run])
        return self._gather(positions, places)

    def _gather(self, positions: slice | Indices, places: _Places) -> Floats:
        """Return the columns at `places` (m) of the rows at `positions` (n of them): (n, m).

        Whole panels of a few rows are copied side by side and the columns taken from the copy: both
        steps stay in the cache, and their number of calls does not depend on the number of columns.
        """
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
        """Return `rows` without keeping new columns, which are computed for these rows only."""
        is_kept = np.array([arm in self._slots for arm in columns.arms.tolist()], bool)
        if is_kept.all():
            return self.rows(positions, columns)
        entries = np.empty((len(positions), len(is_kept)))
        entries[:, ~is_kept] = self._kernel.cross(self._features[positions], columns.features[~is_kept])
        if is_kept.any():
            entries[:, is_kept] = self.rows(positions, Points(columns.arms[is_kept], columns.features[is_kept]))
        return entries

    def dot(self, positions: Indices, columns: Points, weights: Floats) -> Floats:
        """Return Σ_s w_s k(x, x_s) for the rows at `positions` (n,), s in `columns` (m) with
        `weights` (m,): (n,)."""
        if len(columns.arms) > self.capacity:
            return self.rows(positions, columns) @ weights
        places = self._places_of(columns)
        spread = np.zeros(WIDTH * len(places.panels))  # weights of 0 for the others save a second gathering
        spread[places.among] = weights
        product = np.zeros(len(positions))
        for low in range(0, len(positions), DOT_ROWS):
            part = slice(low, low + DOT_ROWS)
            for rank, number in enumerate(places.panels):
                rows = self._panels[number].take(positions[part], axis=0)
                product[part] += rows @ spread[WIDTH * rank :][: rows.shape[1]]
        return product

    def _places_of(self, columns: Points) -> _Places:
        """Return where the columns lie, after computing those that do not lie anywhere yet."""
        for points, places in self._recent:
            if points is columns:
                return places
        numbers = columns.arms.tolist()
        for arm in numbers:
            if arm in self._slots:
                self._slots[arm] = self._slots.pop(arm)
        slots: dict[int, int] = {}  # of those to be computed: number in `columns` -> slot
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
            self._recent = []  # they may lie there no longer
            return self._slots.pop(next(iter(self._slots)))
        if count == WIDTH * len(self._panels):  # zeros: `dot` reads columns that are not filled yet
            self._panels.append(np.zeros((len(self._features), min(WIDTH, self.capacity - count))))
        return count
