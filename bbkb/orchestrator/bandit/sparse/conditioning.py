"""The exact posterior variances, given pulls without rewards: every pull is an inducing point.

`batch` adds a pull only through the embedding, as in BBKB's Algorithm 1. Far from the dictionary,
the variance would then not decrease, and the same arm would be chosen for every worker until its
reward arrives. Here, a pull of x_s conditions the Gaussian process of the sparse posterior, whose
covariance is k̃ of `posterior`: with

    c_s(x) = (k̃(x, x_s) − Σ_{r < s} c_r(x) c_r(x_s)) / √(1 + σ̃²_{s−1}(x_s))

σ̃² decreases by c_s(x)². With C the c_s(x) of some arms x, k̃ their covariances with the pulls, and
L the c_r(x_s) below the roots, k̃ = C Lᵀ: one triangular system for any number of arms and pulls.
n_s pulls of x_s that are added at once count as one pull with noise 1/n_s instead of 1, which gives
the same variances. With hundreds of workers, many evaluate the same few arms.

A variance never increases, so an outdated variance is an upper bound, and only arms whose bound may
be the largest are updated (`argmax_queue`). Arms are updated together in matrix products, so the
last digits of a variance depend on the time of the update. Therefore scores that differ by at most
`TIE` count as equal.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import scipy

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.sparse.all_arms import Points
from bbkb.orchestrator.bandit.sparse.argmax_queue import most_arms
from bbkb.orchestrator.bandit.sparse.posterior import SparsePosterior

FIRST_PULLS = 32  # initial capacity
FEW = 2048  # for at most this many kernel entries, computing is faster than reading cached columns
TIE = 1e-8  # far above rounding errors (below 1e-10) and far below the uncertainty of a score


class ConditionedPosterior:
    """The workspace of one `ask`: μ̃_fb and σ̃²_t of the entered arms, to which pulls are appended.

    `arms` are the n entered arms, in the order of their entry. `mean` (μ̃_fb), `start_variance`
    (σ̃²_fb), `variance` (σ̃²_t, or its value before the last pulls, see `refresh`) and `rows` (y,
    (n, r)) have the same order.
    """

    tie: ClassVar[float] = TIE

    def __init__(self, posterior: SparsePosterior) -> None:
        self.posterior = posterior
        self.arms: Indices = np.empty(0, np.intp)
        self.mean = np.empty(0)
        self.start_variance = np.empty(0)
        self.variance = np.empty(0)
        self.rows = np.empty((0, len(posterior.fit.spectrum)))
        self._features = np.empty((0, 0))
        # the number of pulls included in an arm's columns and variance
        self._levels: Indices = np.empty(0, np.intp)
        # the permutation that sorts the entered arms; None until it is needed
        self._order: Indices | None = None
        self._pulled: Indices = np.empty(0, np.intp)  # the positions of the pulls
        # c_s of the entered arms, and L: c_r(x_s) for r < s, and the root. Both have capacity for
        # further pulls
        self._columns = np.empty((0, FIRST_PULLS))
        self._factor = np.zeros((FIRST_PULLS, FIRST_PULLS))

    @property
    def stale(self) -> Indices:
        """The positions at which `variance` is only an upper bound."""
        return np.flatnonzero(self._levels < len(self._pulled))

    @property
    def most(self) -> int:
        """See `argmax_queue.ScoredArms`."""
        return most_arms(self.rows.shape[1] + self._columns.shape[1] + self._features.shape[1] + 5)

    def leave(self, positions: Indices) -> Indices:
        """See `argmax_queue.ScoredArms`. Pulled arms are not removed."""
        leaving = np.setdiff1d(positions, self._pulled, assume_unique=True)
        staying = np.ones(len(self.arms), bool)
        staying[leaving] = False
        self._pulled = np.cumsum(staying)[self._pulled] - 1
        self.arms = self.arms[staying]
        self.mean = self.mean[staying]
        self.start_variance = self.start_variance[staying]
        self.variance = self.variance[staying]
        self.rows = self.rows[staying]
        self._features = self._features[staying]
        self._levels = self._levels[staying]
        self._columns = self._columns[staying]
        self._order = None
        return leaving

    def position(self, arm: int) -> int:
        """Return the position of `arm` in the arrays; it is entered and updated if necessary."""
        positions = np.flatnonzero(self.arms == arm)
        if not len(positions):
            self.enter(np.array([arm], np.intp))
            positions = np.array([len(self.arms) - 1])
        self.refresh(positions)
        return int(positions[0])

    def positions(self, arms: Indices) -> Indices:
        """Return the positions (n,) of `arms` (n,), which must be entered."""
        if self._order is None:
            self._order = np.argsort(self.arms, kind="stable")
        return self._order[self.arms.searchsorted(arms, sorter=self._order)]

    def enter(self, arms: Indices) -> None:
        """Enter `arms` (n,), which must be distinct and not entered yet."""
        if not len(arms):
            return
        mean, start, rows = self.posterior.joint_moments(arms)
        features = self.posterior.model.arms[arms]
        columns = np.empty((len(arms), self._columns.shape[1]))
        self.arms = np.concatenate((self.arms, arms))
        self.mean = np.concatenate((self.mean, mean))
        self.start_variance = np.concatenate((self.start_variance, start))
        self.variance = np.concatenate((self.variance, start))
        self.rows = np.concatenate((self.rows, rows))
        self._features = np.concatenate((self._features.reshape(-1, features.shape[1]), features))
        self._levels = np.concatenate((self._levels, np.zeros(len(arms), np.intp)))
        self._columns = np.concatenate((self._columns, columns))
        self._order = None

    def refresh(self, positions: Indices) -> None:
        """Update `variance` at these positions."""
        levels = self._levels[positions]
        pulls = len(self._pulled)
        if not len(positions) or levels.min() == pulls:
            return
        # arms that lack many pulls are updated separately from those that lack only the last few
        is_new = levels == 0
        for at in (positions,) if is_new.all() else (positions[is_new], positions[~is_new & (levels < pulls)]):
            if len(at):
                self._catch_up(at)

    def _catch_up(self, at: Indices) -> None:
        """Update `variance` at the positions `at`, where some pulls are missing."""
        levels = self._levels[at]
        pulls = len(self._pulled)
        low = int(levels.min())
        columns = self._solve(at, slice(low, pulls))
        self._columns[at, low:pulls] = columns
        columns *= columns
        columns[np.arange(low, pulls) < levels[:, None]] = 0.0  # these pulls are already included
        self.variance[at] = np.maximum(self.variance[at] - columns.sum(axis=1), 0.0)
        self._levels[at] = pulls

    def append(self, arm: int) -> None:
        """Add a pull of `arm`."""
        at = self.position(arm)
        before = len(self._pulled)
        self._make_room(before + 1)
        self._factor[before, :before] = self._columns[at, :before]
        self._factor[before, before] = math.sqrt(1.0 + self.variance.item(at))
        self._pulled = np.append(self._pulled, at)

    def extend(self, arms: Sequence[int]) -> None:
        """Add pulls of `arms`."""
        if not len(arms):
            return
        pulls, counts = np.unique(np.array(arms, np.intp), return_counts=True)
        before = len(self._pulled)
        after = before + len(pulls)
        self.enter(np.setdiff1d(pulls, self.arms, assume_unique=True))
        self._make_room(after)
        at = self.positions(pulls)
        self.refresh(at)
        earlier = self._columns[at, :before]
        self._factor[before:after, :before] = earlier
        covariance = self._covariances(at, at) - earlier @ earlier.T + np.diag(1.0 / counts)
        self._factor[before:after, before:after] = np.linalg.cholesky(covariance)
        self._pulled = np.append(self._pulled, at)

    def _solve(self, at: Indices, part: slice) -> Floats:
        """Return the columns `part` (s columns) for the arms at the positions `at` (n,): (n, s)."""
        unexplained = self._covariances(at, self._pulled[part])
        unexplained -= self._columns[at, : part.start] @ self._factor[part, : part.start].T
        solve = scipy.linalg.lapack.dtrtrs
        columns: Floats = solve(self._factor[part, part], unexplained.T, lower=1, overwrite_b=1)[0].T
        return columns

    def _covariances(self, at: Indices, pulled: Indices) -> Floats:
        """Return k̃ of the arms at positions `at` (n,) with those at `pulled` (s,): (n, s)."""
        model = self.posterior.model
        features = self._features[pulled]
        if len(at) * len(pulled) <= FEW:
            kernel = model.kernel.cross(self._features[at], features)
        else:
            kernel = model.columns.entries(self.arms[at], Points(self.arms[pulled], features))
        kernel -= self.rows[at] @ (self.rows[pulled] * self.posterior.fit.spectrum).T
        kernel /= model.regularization
        return kernel

    def _make_room(self, pulls: int) -> None:
        """Provide capacity for this many pulls; at least double it, so that arrays are rarely
        copied."""
        width = self._columns.shape[1]
        if pulls > width:
            more = max(width, pulls + FIRST_PULLS - width)
            self._columns = np.pad(self._columns, ((0, 0), (0, more)))
            self._factor = np.pad(self._factor, (0, more))
