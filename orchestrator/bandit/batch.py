"""The posterior within a batch: pulls without rewards as rank-one updates (BBKB Algorithm 1, line 8).

In the coordinates of `posterior`, where V at the start of the batch is the identity, a pull of x turns V⁻¹ = C into
C − w wᵀ with w = C y / √(1 + yᵀ C y), so a variance is brought up to date by subtracting the square of its arm's
product with w. That is done for the arms that were looked at only. The squares are subtracted one by one in the order
of the pulls: an arm's variance is the same, bit for bit, whether it was looked at from the first pull on or at the last
one only, and it never rises.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.posterior import SparsePosterior

FOLD = 32  # pulls that are kept apart before they join C: one product of matrices instead of 32 of vectors


class BatchPosterior:
    """Scratch of one `ask`: μ̃_fb and σ̃²_t of the arms looked at, while pulls are appended.

    The n arms looked at are `arms`; `mean`, `start_variance` (σ̃²_fb), `variance` (σ̃²_t) and `rows` (y, (n, r)) are in
    their order, which is that in which they were entered.
    """

    def __init__(self, posterior: SparsePosterior) -> None:
        rank = len(posterior.fit.spectrum)
        self.posterior = posterior
        self._positions: dict[int, int] = {}
        self._arms = np.empty(0, np.intp)
        self._mean, self._start, self._variance = np.empty(0), np.empty(0), np.empty(0)
        self._rows, self._directions = np.empty((0, rank)), np.empty((0, rank))  # y(x), and the w's
        self._appended, self._folded = 0, 0
        self._inverse = np.eye(rank)  # C after the first `_folded` pulls

    @property
    def arms(self) -> Indices:
        """The arms looked at (n,)."""
        return self._arms[: len(self._positions)]

    @property
    def mean(self) -> Floats:
        """μ̃_fb (n,)."""
        return self._mean[: len(self._positions)]

    @property
    def start_variance(self) -> Floats:
        """σ̃²_fb (n,)."""
        return self._start[: len(self._positions)]

    @property
    def variance(self) -> Floats:
        """σ̃²_t (n,)."""
        return self._variance[: len(self._positions)]

    @property
    def rows(self) -> Floats:
        """y (n, r)."""
        return self._rows[: len(self._positions)]

    def position(self, arm: int) -> int:
        """Where `arm` stands in the arrays; it is entered if it was not."""
        if arm not in self._positions:
            self.enter(np.array([arm]))
        return self._positions[arm]

    def positions(self, arms: Indices) -> Indices:
        """Where `arms` (n,), all looked at, stand: (n,)."""
        return np.array([self._positions[arm] for arm in arms.tolist()], np.intp)

    def enter(self, arms: Indices) -> None:
        """Look at `arms` (n,) from now on: distinct ones that were not looked at before."""
        first, end = len(self._positions), len(self._positions) + len(arms)
        self._arms, self._mean = _with_room(self._arms, end), _with_room(self._mean, end)
        self._start, self._variance = _with_room(self._start, end), _with_room(self._variance, end)
        self._rows = _with_room(self._rows, end)
        mean, variance, rows = self.posterior.moments(arms)
        self._arms[first:end], self._mean[first:end], self._rows[first:end] = arms, mean, rows
        self._start[first:end], self._variance[first:end] = variance, variance
        self._positions.update(zip(arms.tolist(), range(first, end), strict=True))
        for direction in self._directions[: self._appended]:
            _shrink(self._variance[first:end], self._rows[first:end], direction)

    def append(self, arm: int) -> None:
        """Add a pull of `arm`."""
        position = self.position(arm)  # first: it may move the arrays
        row = self._rows[position]
        since = self._directions[self._folded : self._appended]
        product = self._inverse @ row - since.T @ (since @ row) if self._folded else row - since.T @ (since @ row)
        direction = product / np.sqrt(1.0 + row @ product)
        _shrink(self.variance, self.rows, direction)
        self._directions = _with_room(self._directions, self._appended + 1)
        self._directions[self._appended] = direction
        self._appended += 1
        if self._appended - self._folded == FOLD:
            folding = self._directions[self._folded : self._appended]
            self._inverse -= folding.T @ folding
            self._folded = self._appended


def _shrink(variance: Floats, rows: Floats, direction: Floats) -> None:
    """Subtract the squares of the rows' products with `direction` from `variance` (n,), in place."""
    # vecdot, not @: each product is summed on its own, whatever else is computed with it
    product = np.vecdot(rows, direction)
    np.maximum(variance - product * product, 0.0, out=variance)


def _with_room(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """`array`, or a longer one that begins with it: at least `rows` rows, doubled so that growing stays linear."""
    if rows <= len(array):
        return array
    larger = np.empty((max(rows, 2 * len(array), 64), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
