"""The posterior within a batch: pulls without rewards as rank-one updates (BBKB Algorithm 1, line
8).

In the coordinates of `posterior`, where V at the start of the batch is the identity, a pull of x
turns V⁻¹ = C into C − w wᵀ with w = C y / √(1 + yᵀ C y), so a variance is updated by subtracting
the square of its arm's product with w. That is done only for the arms that were entered. The
squares are subtracted one by one in the order of the pulls: an arm's variance is the same, bit for
bit, whether it was entered before the first pull or after the last one, and it never rises.
"""

import math
from typing import ClassVar

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.sparse.argmax_queue import most_arms
from orchestrator.bandit.sparse.posterior import SparsePosterior

MOST_UPDATED = 4096  # arms that a pull updates at most; those of the least scores can be looked at again later
FOLD = 32  # pulls that are kept apart before they join C: one product of matrices instead of 32 of vectors


class BatchPosterior:
    """Scratch of one `ask`: μ̃_fb and σ̃²_t of the arms looked at, while pulls are appended.

    The n arms looked at are `arms`, ascending; `mean` (μ̃_fb), `start_variance` (σ̃²_fb),
    `variance` (σ̃²_t) and `rows` (y, (n, r)) are in their order.
    """

    tie: ClassVar[float] = 0.0  # an arm's numbers are the same bits in any call
    stale: ClassVar[Indices] = np.empty(0, np.intp)  # no pull is appended to it

    def __init__(self, posterior: SparsePosterior) -> None:
        rank = len(posterior.fit.spectrum)
        self.posterior = posterior
        self.arms: Indices = np.empty(0, np.intp)
        self.mean = np.empty(0)
        self.start_variance = np.empty(0)
        self.variance = np.empty(0)
        self.rows = np.empty((0, rank))
        self._directions = np.empty((64, rank))  # the w's
        self._appended = 0
        self._folded = 0
        self._pulled: set[int] = set()
        self._inverse = np.eye(rank)  # C after the first `_folded` pulls

    def position(self, arm: int) -> int:
        """Return where `arm` stands in the arrays; it is entered if it was not."""
        position = int(self.arms.searchsorted(arm))
        if position == len(self.arms) or self.arms[position] != arm:
            self.enter(np.array([arm]))
        return position

    @property
    def most(self) -> int:
        """See `argmax_queue.ScoredArms`."""
        return min(MOST_UPDATED, most_arms(self.rows.shape[1] + 4))

    def refresh(self, positions: Indices) -> None:
        """Nothing: variances are always up to date."""

    def leave(self, positions: Indices) -> Indices:
        """See `argmax_queue.ScoredArms`: arms that were pulled stay."""
        leaving = positions[~np.isin(self.arms[positions], list(self._pulled))]
        staying = np.ones(len(self.arms), bool)
        staying[leaving] = False
        self.arms, self.mean, self.rows = self.arms[staying], self.mean[staying], self.rows[staying]
        self.start_variance, self.variance = self.start_variance[staying], self.variance[staying]
        return leaving

    def positions(self, arms: Indices) -> Indices:
        """Return where `arms` (n,), all looked at, stand: (n,)."""
        return np.searchsorted(self.arms, arms)

    def enter(self, arms: Indices) -> None:
        """Look at `arms` (n,) from now on: distinct ones that are not looked at."""
        mean, start, rows = self.posterior.moments(arms)
        missed = np.vecdot(rows, self._directions[: self._appended, None]) ** 2  # (pulls, n)
        # one by one in the order of the pulls, as `append` does it
        variance = np.maximum(np.subtract.reduce(np.vstack((start[None], missed)), axis=0), 0.0)
        joined = np.concatenate((self.arms, arms))
        order = np.argsort(joined, kind="stable")
        self.arms = joined[order]
        self.mean = np.concatenate((self.mean, mean))[order]
        self.start_variance = np.concatenate((self.start_variance, start))[order]
        self.variance = np.concatenate((self.variance, variance))[order]
        self.rows = np.concatenate((self.rows, rows))[order]

    def append(self, arm: int) -> None:
        """Add a pull of `arm`."""
        position = self.position(arm)  # first: it may replace the arrays
        self._pulled.add(arm)
        row = self.rows[position]
        product = self._inverse @ row if self._folded else row
        if self._appended > self._folded:
            since = self._directions[self._folded : self._appended]
            product = product - (since @ row) @ since
        direction = product / math.sqrt(1.0 + float(row @ product))
        # vecdot, not @: each product is summed on its own, whatever else is computed with it
        product = np.vecdot(self.rows, direction)
        product *= product
        self.variance -= product
        np.maximum(self.variance, 0.0, out=self.variance)
        self._record(direction)

    def _record(self, direction: Floats) -> None:
        if self._appended == len(self._directions):
            self._directions = np.concatenate((self._directions, np.empty_like(self._directions)))
        self._directions[self._appended] = direction
        self._appended += 1
        if self._appended - self._folded == FOLD:
            folding = self._directions[self._folded : self._appended]
            self._inverse -= folding.T @ folding
            self._folded = self._appended
