"""The posterior within a batch: pulls without rewards are rank-one updates (BBKB Algorithm 1, line
8).

In the coordinates of `posterior`, in which V at the start of the batch is the identity, a pull of x
turns V⁻¹ = C into C − w wᵀ with w = C y / √(1 + yᵀ C y). So a variance is updated by subtracting
the square of the product of its arm's y and w. Only the variances of entered arms are updated. The
squares are subtracted one by one in the order of the pulls. An arm's variance is therefore the
same, bit for bit, whether the arm was entered before the first pull or after the last one, and it
never increases.
"""

import math
from typing import ClassVar

import numpy as np

from bbkb.orchestrator.bandit.arrays import ROUNDING, Floats, Indices
from bbkb.orchestrator.bandit.sparse.argmax_queue import most_arms
from bbkb.orchestrator.bandit.sparse.posterior import SparsePosterior

# the largest number of arms that a pull updates; those with the smallest scores can be entered
# again later
MOST_UPDATED = 4096
# the number of pulls that are collected before C is updated: one matrix product instead of 32
# vector products
FOLD = 32


class BatchPosterior:
    """The workspace of one `ask`: μ̃_fb and σ̃²_t of the entered arms, to which pulls are appended.

    `arms` are the n entered arms, ascending. `mean` (μ̃_fb), `start_variance` (σ̃²_fb), `variance`
    (σ̃²_t) and `rows` (y, (n, r)) are in the same order.
    """

    # an arm's values are the same, bit for bit, in any call; those of equal arms are not
    tie: ClassVar[float] = ROUNDING
    stale: ClassVar[Indices] = np.empty(0, np.intp)  # no value is ever outdated

    def __init__(self, posterior: SparsePosterior) -> None:
        rank = len(posterior.fit.spectrum)
        self.posterior = posterior
        self.arms: Indices = np.empty(0, np.intp)
        self.mean = np.empty(0)
        self.start_variance = np.empty(0)
        self.variance = np.empty(0)
        self.rows = np.empty((0, rank))
        self._directions = np.empty((64, rank))  # the vectors w of the pulls
        self._appended = 0
        self._folded = 0
        self._pulled: set[int] = set()
        self._inverse = np.eye(rank)  # C after the first `_folded` pulls

    def position(self, arm: int) -> int:
        """Return the position of `arm` in the arrays, after entering it if necessary."""
        position = int(self.arms.searchsorted(arm))
        if position == len(self.arms) or self.arms[position] != arm:
            self.enter(np.array([arm]))
        return position

    @property
    def most(self) -> int:
        """See `argmax_queue.ScoredArms`."""
        return min(MOST_UPDATED, most_arms(self.rows.shape[1] + 4))

    def refresh(self, positions: Indices) -> None:
        """Do nothing, because variances are always up to date."""

    def leave(self, positions: Indices) -> Indices:
        """See `argmax_queue.ScoredArms`. Pulled arms are not removed."""
        leaving = positions[~np.isin(self.arms[positions], list(self._pulled))]
        staying = np.ones(len(self.arms), bool)
        staying[leaving] = False
        self.arms, self.mean, self.rows = self.arms[staying], self.mean[staying], self.rows[staying]
        self.start_variance, self.variance = self.start_variance[staying], self.variance[staying]
        return leaving

    def positions(self, arms: Indices) -> Indices:
        """Return the positions (n,) of `arms` (n,), which must be entered."""
        return np.searchsorted(self.arms, arms)

    def enter(self, arms: Indices) -> None:
        """Enter `arms` (n,), which must be distinct and not entered yet."""
        mean, start, rows = self.posterior.moments(arms)
        missed = np.vecdot(rows, self._directions[: self._appended, None]) ** 2  # (pulls, n)
        # one by one in the order of the pulls, as in `append`
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
        position = self.position(arm)  # first, because this call may replace the arrays
        self._pulled.add(arm)
        row = self.rows[position]
        product = self._inverse @ row if self._folded else row
        if self._appended > self._folded:
            since = self._directions[self._folded : self._appended]
            product = product - (since @ row) @ since
        direction = product / math.sqrt(1.0 + float(row @ product))
        # vecdot instead of @, so that the rounding of each product does not depend on other rows
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
