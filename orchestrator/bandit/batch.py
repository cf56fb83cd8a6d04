"""The variance within a batch: pulls without rewards as rank-one updates (BBKB Algorithm 1, line 8).

In the coordinates of `posterior`, where V at the start of the batch is the identity, a pull of x turns V⁻¹ = C into
C − w wᵀ with w = C y / √(1 + yᵀ C y), so a variance is brought up to date by subtracting the squares of its arm's
products with the w's it has missed. They are subtracted one by one in the order of the pulls: an arm's variance then is
the same, bit for bit, whether it was brought up to date at every pull or at the last one only, and it never rises.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.posterior import SparsePosterior


class BatchVariance:
    """Scratch of one `ask`: σ̃²_t of the arms that are asked for, while pulls are appended."""

    def __init__(self, posterior: SparsePosterior) -> None:
        rank = len(posterior.basis)
        self._posterior = posterior
        self._slots = np.full(len(posterior.model.arms), -1, np.intp)  # arm -> its row below, −1: never touched
        self._touched = 0
        self._rows = np.empty((64, rank))  # y(x)
        self._variance = np.empty(64)
        self._seen = np.zeros(64, np.intp)  # how many pulls are in the variance
        self._directions = np.empty((64, rank))  # the w's
        self._appended = 0
        self._inverse = np.eye(rank)  # C

    def variance(self, arms: Indices) -> Floats:
        """σ̃²_t of `arms` (n,), which must be distinct: (n,)."""
        slots = self._touch(arms)
        seen = self._seen[slots]
        first, last = int(seen.min(initial=self._appended)), self._appended
        if first < last:
            # einsum, not @: each product is summed on its own, whatever else is computed with it
            missed = np.einsum("kr,tr->tk", self._rows[slots], self._directions[first:last]) ** 2
            missed[np.arange(first, last)[:, None] < seen] = 0.0
            falling = np.concatenate((self._variance[slots][None], missed))
            self._variance[slots] = np.maximum(np.subtract.reduce(falling, axis=0), 0.0)
            self._seen[slots] = last
        return self._variance[slots]

    def append(self, arm: int) -> None:
        """Add a pull of `arm`."""
        row = self._rows[self._touch(np.array([arm]))[0]]
        product = self._inverse @ row
        direction = product / np.sqrt(1.0 + row @ product)
        self._inverse -= np.multiply.outer(direction, direction)
        self._directions = _with_room(self._directions, self._appended + 1)
        self._directions[self._appended] = direction
        self._appended += 1

    def _touch(self, arms: Indices) -> Indices:
        """Rows of `arms` (n,), made when they are not there yet."""
        new = arms[self._slots[arms] < 0]
        if len(new):
            end = self._touched + len(new)
            self._rows, self._variance = _with_room(self._rows, end), _with_room(self._variance, end)
            self._seen = _with_room(self._seen, end)
            self._rows[self._touched : end] = self._posterior.whiten(new)
            self._variance[self._touched : end] = self._posterior.variance[new]
            self._seen[self._touched : end] = 0
            self._slots[new] = np.arange(self._touched, end)
            self._touched = end
        return self._slots[arms]


def _with_room(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """`array`, or a longer one that begins with it: at least `rows` rows, doubled so that growing stays linear."""
    if rows <= len(array):
        return array
    larger = np.empty((max(rows, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
