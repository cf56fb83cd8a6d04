"""Picks arms by their upper bounds u = μ̃ + width · σ̃, from all arms, with one fitted
posterior."""

import math
from dataclasses import dataclass

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.sparse.argmax_queue import ArgmaxQueue, LazyQueue
from bbkb.orchestrator.bandit.sparse.batch import BatchPosterior
from bbkb.orchestrator.bandit.sparse.conditioning import ConditionedPosterior
from bbkb.orchestrator.bandit.sparse.scalarization import bounds_of
from bbkb.orchestrator.bandit.sparse.state import SparseState
from bbkb.orchestrator.bandit.sparse.upper_bounds import UpperBounds
from bbkb.orchestrator.bandit.strategy import Pick


@dataclass(frozen=True)
class Picking:
    """The workspace of one `ask`: the bounds of all arms, and the evaluated arms, as a
    `ScoredArms`."""

    posterior: BatchPosterior | ConditionedPosterior
    bounds: UpperBounds
    width: float
    # an addend to each arm's score (A,), at most 0, so that `bounds` remain valid
    bonus: Floats | None = None

    @staticmethod
    def begin(state: SparseState, width: float, blocked: Indices, is_conditioned: bool = False) -> "Picking":
        """Return a workspace at `state` without picks. `blocked`: arms that may not be picked.

        `is_conditioned`: whether pulls without rewards reduce variances as in `conditioning`,
        instead of as in `batch`.
        """
        scored_bounds = bounds_of(state.goals, width)
        bounds = state.model.screen.upper(state.model.all_arms, state.posterior.fit, scored_bounds, blocked)
        posterior = (ConditionedPosterior if is_conditioned else BatchPosterior)(state.posterior)
        return Picking(posterior, bounds, width, state.prior_bonus)

    def queue(self, blocked: Indices) -> ArgmaxQueue:
        """Return a lazy queue of the arms that are not `blocked`, ordered by u."""
        return LazyQueue(self.bounds, self, blocked)

    @property
    def arms(self) -> Indices:
        """The evaluated arms (n,)."""
        return self.posterior.arms

    @property
    def tie(self) -> float:
        """See `argmax_queue.ScoredArms`."""
        return self.posterior.tie

    def scores(self) -> Floats:
        """Return u = μ̃_fb + width · σ̃_t (n,), with the arms' `bonus`."""
        scores: Floats = np.sqrt(self.posterior.variance)
        scores *= self.width
        scores += self.posterior.mean
        if self.bonus is not None:
            scores += self.bonus[self.arms]
        return scores

    @property
    def stale(self) -> Indices:
        """See `argmax_queue.ScoredArms`."""
        return self.posterior.stale

    def refresh(self, positions: Indices) -> None:
        """See `argmax_queue.ScoredArms`."""
        self.posterior.refresh(positions)

    @property
    def most(self) -> int:
        """See `argmax_queue.ScoredArms`."""
        return self.posterior.most

    def leave(self, positions: Indices) -> Indices:
        """See `argmax_queue.ScoredArms`."""
        return self.posterior.leave(positions)

    def enter(self, arms: Indices) -> None:
        """Evaluate `arms` (n,)."""
        self.posterior.enter(arms)

    def tighten(self, arms: Indices) -> Floats:
        """Return upper bounds on u for `arms` (n,), none of which was evaluated yet."""
        bounds: Floats = self.bounds.tighten(arms)[0]
        return bounds if self.bonus is None else bounds + self.bonus[arms]

    def pick(self, arm: int) -> Pick:
        """Return a pick of `arm` with its current mean, width and variance."""
        position = self.posterior.position(arm)
        mean = self.posterior.mean.item(position) + self.posterior.posterior.fit.offset
        return Pick(arm, mean, self.width, self.posterior.variance.item(position))

    def upper_bound(self, arm: int) -> float:
        """Return the current upper bound on the score of `arm`, without `bonus`."""
        pick = self.pick(arm)
        return pick.mean + pick.width * math.sqrt(pick.variance)

    def look_at(self, arms: Indices) -> None:
        """Evaluate those of `arms` (n,) that were not evaluated yet."""
        if len(missing := np.setdiff1d(arms, self.posterior.arms)):
            self.posterior.enter(missing)

    def upper_bounds(self, arms: Indices) -> Floats:
        """Return the current upper bounds (n,) on the scores of `arms` (n,), without `bonus`."""
        self.look_at(arms)
        at = self.posterior.positions(arms)
        self.posterior.refresh(at)
        deviations = np.sqrt(self.posterior.variance[at])
        return self.posterior.mean[at] + self.posterior.posterior.fit.offset + self.width * deviations
