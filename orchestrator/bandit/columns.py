"""Kernel columns k(·, x_s) over all arms, kept between refits within bounded memory.

A dictionary changes little from one refit to the next, so nearly all its columns were computed before. Keeping them
cannot change a result: a kernel's entry depends on its two rows only (`kernels`).
"""

from dataclasses import dataclass, field

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.kernels import Kernel


@dataclass(frozen=True, eq=False)
class KernelColumns:
    """Columns of the kernel matrix of `arms` (A, d); the least recently used go first when `max_bytes` is reached."""

    kernel: Kernel
    arms: Floats
    max_bytes: int = 256 * 2**20
    _kept: dict[int, Floats] = field(default_factory=dict, init=False, repr=False)

    @property
    def capacity(self) -> int:
        """How many columns are kept."""
        return self.max_bytes // (8 * len(self.arms))

    def take(self, columns: Indices, arms: slice | Indices) -> Floats:
        """k(x_s, x) for s in `columns` (m,) and x in `arms` (n of them): (m, n)."""
        if len(columns) > self.capacity:  # a whole column each would drive the others out: compute what is asked only
            return self.kernel.cross(self.arms[columns], self.arms[arms])
        taken = np.empty((len(columns), len(self.arms[arms])))
        for row, index in zip(taken, columns.tolist(), strict=True):
            row[:] = self._column(index)[arms]
        return taken

    def _column(self, index: int) -> Floats:
        column = self._kept.pop(index, None)
        if column is None:
            column = np.ascontiguousarray(self.kernel.cross(self.arms, self.arms[[index]])[:, 0])
            while len(self._kept) >= self.capacity > 0:
                self._kept.pop(next(iter(list(self._kept))), None)
        self._kept[index] = column  # last in the dict: the most recently used
        return column
