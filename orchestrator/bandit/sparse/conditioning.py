"""The posterior given pulls without rewards, exactly: every pull is an inducing point of its own.

`batch` adds a pull through the embedding only, as BBKB's Algorithm 1 has it: far from the dictionary the variance would
not fall, and the same arm would be chosen for every worker until its reward is in. Here a pull of x_s conditions the
Gaussian process of the sparse posterior, whose covariance is k̃ of `posterior`: with

    c_s(x) = (k̃(x, x_s) − Σ_{r < s} c_r(x) c_r(x_s)) / √(1 + σ̃²_{s−1}(x_s))

σ̃² falls by c_s(x)². This is done for the arms that were looked at only, pull by pull in their order: an arm's variance
is the same, bit for bit, whether it was looked at from the first pull on or at the last one only, and it never rises.
"""

import math
from collections.abc import Sequence

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.sparse.columns import Points
from orchestrator.bandit.sparse.posterior import SparsePosterior

FIRST_PULLS = 32  # pulls that there is room for at first
CHUNK = 256  # arms at a time whose columns stay in the cache


class ConditionedPosterior:
    """Scratch of one `ask`: μ̃_fb and σ̃²_t of the arms looked at, while pulls are appended.

    The n arms looked at are `arms`, ascending; `mean` (μ̃_fb), `start_variance` (σ̃²_fb), `variance` (σ̃²_t) and `rows`
    (y, (n, r)) are in their order.
    """

    def __init__(self, posterior: SparsePosterior) -> None:
        rank = len(posterior.fit.spectrum)
        self.posterior = posterior
        self.arms: Indices = np.empty(0, np.intp)
        self.mean, self.start_variance, self.variance = np.empty(0), np.empty(0), np.empty(0)
        self.rows = np.empty((0, rank))
        self._columns = np.empty((0, FIRST_PULLS))  # c_s of the arms looked at, (n, room)
        self._pulled: list[int] = []
        self._weighted: list[Floats] = []  # diag(b) y(x_s) of each pull, (r,)
        self._earlier: list[Floats] = []  # c_r(x_s) for r < s
        self._pivots: list[float] = []

    def position(self, arm: int) -> int:
        """Where `arm` stands in the arrays; it is entered if it was not."""
        position = int(self.arms.searchsorted(arm))
        if position == len(self.arms) or self.arms[position] != arm:
            self.enter(np.array([arm]))
        return position

    def positions(self, arms: Indices) -> Indices:
        """Where `arms` (n,), all looked at, stand: (n,)."""
        return np.searchsorted(self.arms, arms)

    def enter(self, arms: Indices) -> None:
        """Look at `arms` (n,) from now on: distinct ones that were not looked at before."""
        mean, start, rows = self.posterior.moments(arms)
        columns, variance = np.empty((len(arms), self._columns.shape[1])), start.copy()
        if self._pulled:
            kernel = self._kernel_rows(arms, np.array(self._pulled, np.intp))
            for low in range(0, len(arms), CHUNK):
                part = slice(low, low + CHUNK)
                self._catch_up(kernel[part], rows[part], columns[part], variance[part])
        joined = np.concatenate((self.arms, arms))
        order = np.argsort(joined, kind="stable")
        self.arms = joined[order]
        self.mean = np.concatenate((self.mean, mean))[order]
        self.start_variance = np.concatenate((self.start_variance, start))[order]
        self.variance = np.concatenate((self.variance, variance))[order]
        self.rows = np.concatenate((self.rows, rows))[order]
        self._columns = np.concatenate((self._columns, columns))[order]

    def _catch_up(self, kernel: Floats, rows: Floats, columns: Floats, variance: Floats) -> None:
        """Fill the `columns` (n, room) of n arms and lower their `variance`, in place, by all pulls so far."""
        for pull in range(len(self._pulled)):
            columns[:, pull] = self._column(pull, kernel[:, pull], rows, columns)
            _subtract(variance, columns[:, pull])

    def append(self, arm: int) -> None:
        """Add a pull of `arm`."""
        self.position(arm)  # first: it may replace the arrays
        self._append(arm, self._kernel_rows(self.arms, np.array([arm]))[:, 0])

    def extend(self, arms: Sequence[int]) -> None:
        """Add pulls of `arms`, in their order; as `append` one by one, at a fraction of the calls."""
        pulls = np.array(arms, np.intp)
        self.enter(np.setdiff1d(pulls, self.arms))
        kernel = self._kernel_rows(self.arms, pulls)
        for number, arm in enumerate(arms):
            self._append(arm, kernel[:, number])

    def _append(self, arm: int, kernel: Floats) -> None:
        """Add a pull of `arm`, which was looked at; `kernel` (n,): k of all arms looked at with it."""
        position, pull = self.position(arm), len(self._pulled)
        if pull == self._columns.shape[1]:
            self._columns = np.hstack((self._columns, np.empty_like(self._columns)))
        self._pulled.append(arm)
        self._weighted.append(self.posterior.fit.spectrum * self.rows[position])
        self._earlier.append(self._columns[position, :pull].copy())
        self._pivots.append(math.sqrt(1.0 + float(self.variance[position])))
        self._columns[:, pull] = self._column(pull, kernel, self.rows, self._columns)
        _subtract(self.variance, self._columns[:, pull])

    def _column(self, pull: int, kernel: Floats, rows: Floats, columns: Floats) -> Floats:
        """c_s of the pull number `pull` for n arms with k(x, x_s) `kernel` (n,), y `rows` (n, r), earlier `columns`."""
        # vecdot, not @: each product is summed on its own, whatever else is computed with it
        covariance = (kernel - np.vecdot(rows, self._weighted[pull])) / self.posterior.model.regularization
        if pull:
            covariance = covariance - np.vecdot(columns[:, :pull], self._earlier[pull])
        column: Floats = covariance / self._pivots[pull]
        return column

    def _kernel_rows(self, arms: Indices, pulled: Indices) -> Floats:
        """k(x, x_s) of `arms` (n,) with the arms `pulled` (s,): (n, s)."""
        model = self.posterior.model
        return model.all_arms.kernel_rows(arms, Points(pulled, model.all_arms.look_up(pulled)))


def _subtract(variance: Floats, column: Floats) -> None:
    variance -= column * column
    np.maximum(variance, 0.0, out=variance)
