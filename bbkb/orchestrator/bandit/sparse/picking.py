"""Picks arms by their upper bounds u = μ̃ + width · σ̃, from all arms, with one fitted
posterior.

The posterior within a batch: pulls without rewards are rank-one updates (BBKB Algorithm 1, line
8).

In the coordinates of `posterior`, in which V at the start of the batch is the identity, a pull of x
turns V⁻¹ = C into C − w wᵀ with w = C y / √(1 + yᵀ C y). So a variance is updated by subtracting
the square of the product of its arm's y and w. Only the variances of entered arms are updated. The
squares are subtracted one by one in the order of the pulls. An arm's variance is therefore the
same, bit for bit, whether the arm was entered before the first pull or after the last one, and it
never increases.

The exact posterior variances, given pulls without rewards: every pull is an inducing point.

`BatchPosterior` adds a pull only through the embedding, as in BBKB's Algorithm 1. Far from the dictionary,
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
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from bbkb.orchestrator.bandit.arrays import ROUNDING, Floats, Indices
from bbkb.orchestrator.bandit.sparse.argmax_queue import MOST_NUMBERS, LazyQueue
from bbkb.orchestrator.bandit.sparse.posterior import SparsePosterior
from bbkb.orchestrator.bandit.sparse.scalarization import bounds_of
from bbkb.orchestrator.bandit.sparse.state import SparseState
from bbkb.orchestrator.bandit.sparse.upper_bounds import UpperBounds
from bbkb.orchestrator.bandit.strategy import Pick

# the largest number of arms that a pull updates; those with the smallest scores can be entered
# again later
MOST_UPDATED = 4096
# the number of pulls that are collected before C is updated: one matrix product instead of 32
# vector products
FOLD = 32


class WorkspacePosterior(ABC):
    """The workspace of one `ask`: μ̃_fb and σ̃²_t of the entered arms, to which pulls are appended.

    `arms` are the n entered arms, in the order of their entry. `mean` (μ̃_fb), `start_variance`
    (σ̃²_fb), `variance` (σ̃²_t, or its value before the last pulls, see `refresh`) and `rows` (y,
    (n, r)) have the same order.
    """

    tie: ClassVar[float]  # see `argmax_queue.EvaluatedArms`
    is_joint: ClassVar[bool]  # whether arms are computed together, by joint products

    def __init__(self, posterior: SparsePosterior) -> None:
        self.posterior = posterior
        self.arms: Indices = np.empty(0, np.intp)
        self.mean = np.empty(0)
        self.start_variance = np.empty(0)
        self.variance = np.empty(0)
        self.rows = np.empty((0, len(posterior.fit.spectrum)))
        # the number of pulls included in an arm's variance
        self._levels: Indices = np.empty(0, np.intp)
        self._pulled: list[int] = []  # the positions of the pulls
        self._position_of: dict[int, int] = {}  # arm → its position

    @property
    @abstractmethod
    def most(self) -> int:
        """See `argmax_queue.EvaluatedArms`."""

    @abstractmethod
    def refresh(self, positions: Indices) -> None:
        """Update `variance` at these positions."""

    @abstractmethod
    def append(self, arm: int) -> None:
        """Add a pull of `arm`."""

    @property
    def stale(self) -> Indices:
        """The positions at which `variance` is only an upper bound."""
        return np.flatnonzero(self._levels < len(self._pulled))

    def has_stale(self, positions: Indices) -> bool:
        """See `argmax_queue.EvaluatedArms`."""
        return bool((self._levels[positions] < len(self._pulled)).any())

    def leave(self, positions: Indices) -> Indices:
        """See `argmax_queue.EvaluatedArms`. Pulled arms are not removed."""
        pulled = np.array(self._pulled, np.intp)
        leaving = np.setdiff1d(positions, pulled, assume_unique=True)
        staying = np.ones(len(self.arms), bool)
        staying[leaving] = False
        self._pulled = (np.cumsum(staying)[pulled] - 1).tolist()
        self.arms = self.arms[staying]
        self.mean = self.mean[staying]
        self.start_variance = self.start_variance[staying]
        self.variance = self.variance[staying]
        self.rows = self.rows[staying]
        self._levels = self._levels[staying]
        self._position_of = {arm: position for position, arm in enumerate(self.arms.tolist())}
        return leaving

    def position(self, arm: int) -> int:
        """Return the position of `arm` in the arrays; it is entered and updated if necessary."""
        if arm not in self._position_of:
            self.enter(np.array([arm], np.intp))
        position = self._position_of[arm]
        if self._levels.item(position) < len(self._pulled):
            self.refresh(np.array([position], np.intp))
        return position

    def watch(self, positions: Indices) -> bool:
        """See `argmax_queue.EvaluatedArms`."""
        return False

    def positions(self, arms: Indices) -> Indices:
        """Return the positions (n,) of `arms` (n,), which must be entered."""
        return np.array([self._position_of[arm] for arm in arms.tolist()], np.intp)

    def enter(self, arms: Indices) -> None:
        """Enter `arms` (n,), which must be distinct and not entered yet."""
        if not len(arms):
            return
        mean, start, rows = self.posterior.moments(arms, self.is_joint)
        self._position_of.update(zip(arms.tolist(), range(len(self.arms), len(self.arms) + len(arms)), strict=True))
        self.arms = np.concatenate((self.arms, arms))
        self.mean = np.concatenate((self.mean, mean))
        self.start_variance = np.concatenate((self.start_variance, start))
        self.variance = np.concatenate((self.variance, start))
        self.rows = np.concatenate((self.rows, rows))
        self._levels = np.concatenate((self._levels, np.zeros(len(arms), np.intp)))


class BatchPosterior(WorkspacePosterior):
    """Pulls without rewards are rank-one updates, as in BBKB's Algorithm 1."""

    # an arm's values are the same, bit for bit, in any call; those of equal arms are not
    tie: ClassVar[float] = ROUNDING
    is_joint: ClassVar[bool] = False

    def __init__(self, posterior: SparsePosterior) -> None:
        super().__init__(posterior)
        rank = len(posterior.fit.spectrum)
        self._directions = np.empty((64, rank))  # the vectors w of the pulls
        self._folded = 0
        self._inverse = np.eye(rank)  # C after the first `_folded` pulls
        # the arms whose variances are updated at each pull, with their y
        self._watched: Indices = np.empty(0, np.intp)
        self._watched_rows = self.rows

    @property
    def most(self) -> int:
        """See `argmax_queue.EvaluatedArms`."""
        return min(MOST_UPDATED, MOST_NUMBERS // (self.rows.shape[1] + 4))

    def watch(self, positions: Indices) -> bool:
        """See `argmax_queue.EvaluatedArms`."""
        self.refresh(positions)
        self._watched = positions
        self._watched_rows = self.rows[positions]
        return True

    def leave(self, positions: Indices) -> Indices:
        """See `argmax_queue.EvaluatedArms`. No arm is watched afterward."""
        self.watch(positions[:0])
        return super().leave(positions)

    def refresh(self, positions: Indices) -> None:
        """Update `variance` at these positions."""
        pulls = len(self._pulled)
        levels = self._levels[positions]
        for level in set(levels.tolist()) - {pulls}:
            at = positions[levels == level]
            # vecdot instead of @, so that the rounding of each product does not depend on the others
            missed = np.vecdot(self.rows[at], self._directions[level:pulls, None])
            variance = np.subtract.reduce(np.vstack((self.variance[at], missed * missed)))  # one after the other
            self.variance[at] = np.maximum(variance, 0.0)
        self._levels[positions] = pulls

    def append(self, arm: int) -> None:
        """Add a pull of `arm`."""
        position = self.position(arm)
        row = self.rows[position]
        before = len(self._pulled)
        product = self._inverse @ row if self._folded else row
        if before > self._folded:
            since = self._directions[self._folded : before]
            product = product - (since @ row) @ since
        if before == len(self._directions):
            self._directions = np.concatenate((self._directions, np.empty_like(self._directions)))
        direction = np.divide(product, math.sqrt(1.0 + float(row @ product)), out=self._directions[before])
        self._pulled.append(position)
        if len(self._watched):
            missed = np.vecdot(self._watched_rows, direction)
            self.variance[self._watched] = np.maximum(self.variance[self._watched] - missed * missed, 0.0)
            self._levels[self._watched] = before + 1
        if before + 1 - self._folded == FOLD:
            folding = self._directions[self._folded : before + 1]
            self._inverse -= folding.T @ folding
            self._folded = before + 1


FIRST_PULLS = 32  # initial capacity
LAST_PULLS = 32  # arms that lack at most this many are updated apart from the others
FEW = 2048  # for at most this many kernel entries, computing is faster than reading cached columns
TIE = 1e-8  # far above rounding errors (below 1e-10) and far below the uncertainty of a score


class ConditionedPosterior(WorkspacePosterior):
    """Pulls without rewards condition the Gaussian process of the sparse posterior."""

    tie: ClassVar[float] = TIE
    is_joint: ClassVar[bool] = True

    def __init__(self, posterior: SparsePosterior) -> None:
        super().__init__(posterior)
        # c_s of the entered arms, and L: c_r(x_s) for r < s, and the root. Both have capacity for
        # further pulls
        self._columns = np.empty((0, FIRST_PULLS))
        self._factor = np.zeros((FIRST_PULLS, FIRST_PULLS))

    @property
    def most(self) -> int:
        """See `argmax_queue.EvaluatedArms`."""
        return MOST_NUMBERS // (self.rows.shape[1] + self._columns.shape[1] + 5)

    def leave(self, positions: Indices) -> Indices:
        """See `argmax_queue.EvaluatedArms`. Pulled arms are not removed."""
        leaving = super().leave(positions)
        self._columns = np.delete(self._columns, leaving, axis=0)
        return leaving

    def enter(self, arms: Indices) -> None:
        """Enter `arms` (n,), which must be distinct and not entered yet."""
        super().enter(arms)
        self._columns = np.concatenate((self._columns, np.empty((len(arms), self._columns.shape[1]))))

    def refresh(self, positions: Indices) -> None:
        """Update `variance` at these positions."""
        levels = self._levels[positions]
        pulls = len(self._pulled)
        if not len(positions) or levels.min() == pulls:
            return
        # arms that lack many pulls are updated separately from those that lack only the last few
        lacks_many = levels < pulls - LAST_PULLS
        for at in (positions[lacks_many], positions[~lacks_many & (levels < pulls)]):
            if not len(at):
                continue
            levels = self._levels[at]
            low = int(levels.min())
            unexplained = self._covariances(at, np.array(self._pulled[low:pulls], np.intp))
            unexplained -= self._columns[at, :low] @ self._factor[low:pulls, :low].T
            solve = scipy.linalg.lapack.dtrtrs
            columns = solve(self._factor[low:pulls, low:pulls], unexplained.T, lower=1, overwrite_b=1)[0].T
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
        self._pulled.append(at)

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
        self._pulled.extend(at.tolist())

    def _covariances(self, at: Indices, pulled: Indices) -> Floats:
        """Return k̃ of the arms at positions `at` (n,) with those at `pulled` (s,): (n, s)."""
        model = self.posterior.model
        arms = self.arms[at]
        points = model.points(self.arms[pulled])
        if len(at) * len(pulled) <= FEW:
            kernel = model.kernel.cross(model.arms[arms], points.features)
        else:
            kernel = model.columns.entries(arms, points)
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


@dataclass(frozen=True)
class Picking:
    """The workspace of one `ask`: the bounds of all arms, and the evaluated arms. It is the
    `argmax_queue.Scoring` of a queue."""

    posterior: WorkspacePosterior
    bounds: UpperBounds
    width: float
    # an addend to each arm's score (A,), at most 0, so that `bounds` remain valid
    bonus: Floats | None = None

    @staticmethod
    def begin(state: SparseState, width: float, blocked: Indices, is_conditioned: bool = False) -> "Picking":
        """Return a workspace at `state` without picks. `blocked`: arms that may not be picked.

        `is_conditioned`: whether pulls without rewards reduce variances as in
        `ConditionedPosterior`, instead of as in `BatchPosterior`.
        """
        scored_bounds = bounds_of(state.goals, width)
        bounds = state.model.screen.upper(state.model.all_arms, state.posterior.fit, scored_bounds, blocked)
        posterior = (ConditionedPosterior if is_conditioned else BatchPosterior)(state.posterior)
        return Picking(posterior, bounds, width, state.prior_bonus)

    def queue(self, blocked: Indices) -> LazyQueue:
        """Return a lazy queue of the arms that are not `blocked`, ordered by u."""
        return LazyQueue(self.bounds.remaining, self, blocked)

    def scores(self, positions: Indices | slice) -> Floats:
        """Return u = μ̃_fb + width · σ̃_t (n,) at these positions, with the arms' `bonus`."""
        scores: Floats = np.sqrt(self.posterior.variance[positions])
        scores *= self.width
        scores += self.posterior.mean[positions]
        if self.bonus is not None:
            scores += self.bonus[self.posterior.arms[positions]]
        return scores

    def tighten(self, arms: Indices) -> Floats:
        """Return upper bounds on u for `arms` (n,), none of which was evaluated yet."""
        bounds: Floats = self.bounds.tighten(arms)[0]
        return bounds if self.bonus is None else bounds + self.bonus[arms]

    def pick(self, arm: int, trial: int | None = None, reason: str = "") -> Pick:
        """Return a pick of `arm` with its current mean, width and variance."""
        position = self.posterior.position(arm)
        mean = self.posterior.mean.item(position) + self.posterior.posterior.fit.offset
        return Pick(arm, mean, self.width, self.posterior.variance.item(position), trial, reason)

    def upper_bound(self, arm: int) -> float:
        """Return the current upper bound on the score of `arm`, without `bonus`."""
        pick = self.pick(arm)
        return pick.mean + pick.width * math.sqrt(pick.variance)

    def look_at(self, arms: Indices) -> None:
        """Evaluate those of `arms` (n,) that were not evaluated yet."""
        is_missing = np.zeros(len(self.posterior.posterior.model.arms), np.bool_)
        is_missing[arms] = True
        is_missing[self.posterior.arms] = False
        if is_missing.any():
            self.posterior.enter(np.flatnonzero(is_missing))
