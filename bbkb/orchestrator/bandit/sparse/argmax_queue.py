"""The argmax of scores that never increase, found by evaluating only a few of them (lazy greedy,
Minoux 1978).

Every arm has an upper bound on its score, which remains valid as scores decrease. Arms are
evaluated in the order of their bounds until the best evaluated score exceeds the bound of every
other arm. Ties go to the lowest index. Scores that differ from the best by at most `EvaluatedArms.tie`
count as ties.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from bbkb.orchestrator.bandit.arrays import Flags, Floats, Indices

FIRST_NEAR = 1024  # the smallest number of arms to take at a time, because each call has a cost
FRONT = 32  # the number of arms whose scores are kept up to date
FIRST_LOOK = 32  # the smallest number of arms to evaluate in one call
MOST_NUMBERS = 2**22  # the number of floats stored for the evaluated arms: 32 MiB
SHARE = 8  # the reciprocal of the largest share of `EvaluatedArms.most` that enters in one call
SAMPLE = 4096  # the number of bounds from which a quantile is estimated
# arms are taken down to a threshold below the best score, at this share of the distance by which
# bounds exceed the best score
MARGIN = 0.25
NOTHING = np.empty(0, np.intp)
_LOWEST = float(np.finfo(np.float64).min)  # −∞ is reserved for excluded arms


@dataclass(frozen=True, eq=False)
class BoundedSet:
    """Arms with upper bounds on their scores."""

    arms: Indices = field(default_factory=lambda: NOTHING)  # (n,), distinct
    bounds: Floats = field(default_factory=lambda: np.empty(0))  # (n,)
    # (n,), whether `tighten` has already lowered the bound
    is_tight: Flags = field(default_factory=lambda: np.empty(0, np.bool_))

    @cached_property
    def top(self) -> float:
        """The largest bound; −∞ if there is no arm."""
        return float(self.bounds.max(initial=-np.inf))

    def join(self, arms: Indices, bounds: Floats, is_tight: bool) -> "BoundedSet":
        """Return the union with `arms` (n,)."""
        flags = np.full(len(arms), is_tight)
        return BoundedSet(
            np.concatenate((self.arms, arms)),
            np.concatenate((self.bounds, bounds)),
            np.concatenate((self.is_tight, flags)),
        )

    def tighten(self, best: float, bounds_of: Callable[[Indices], Floats]) -> "BoundedSet":
        """Return the same arms, with loose bounds of at least `best` lowered by `bounds_of`."""
        loose = np.flatnonzero(~self.is_tight & (self.bounds >= best))
        if not len(loose):
            return self
        bounds = self.bounds.copy()
        is_tight = self.is_tight.copy()
        bounds[loose] = np.minimum(bounds[loose], bounds_of(self.arms[loose]))
        is_tight[loose] = True
        return BoundedSet(self.arms, bounds, is_tight)

    def split(self, count: int) -> tuple[Indices, "BoundedSet"]:
        """Return the `count` arms with the largest bounds, and the other arms."""
        taken = largest(self.bounds, count)
        is_rest = np.ones(len(self.arms), np.bool_)
        is_rest[taken] = False
        return self.arms[taken], self.where(is_rest)

    def where(self, is_member: Flags) -> "BoundedSet":
        """Return the arms for which `is_member` (n,) is True."""
        return BoundedSet(self.arms[is_member], self.bounds[is_member], self.is_tight[is_member])


class EvaluatedArms(Protocol):
    """The evaluated arms."""

    arms: Indices  # (n,)

    @property
    def tie(self) -> float:
        """The largest difference at which scores of about 1 count as equal; 0 if a score always has
        the same bits."""

    @property
    def stale(self) -> Indices:
        """The positions of the arms with outdated scores (k,)."""

    def has_stale(self, positions: Indices) -> bool:
        """Return whether a score at one of `positions` (n,) is outdated."""

    def watch(self, positions: Indices) -> bool:
        """Keep the scores at these positions up to date from now on, instead of those watched so far, if
        that is cheap. Return whether it is."""

    def refresh(self, positions: Indices) -> None:
        """Update the scores at these positions."""

    @property
    def most(self) -> int:
        """The largest number of evaluated arms to store, unless more are equally good."""

    def enter(self, arms: Indices) -> None:
        """Evaluate `arms`, which must be distinct and not evaluated yet."""

    def leave(self, positions: Indices) -> Indices:
        """Remove the arms at these positions unless needed. Return the removed positions (k,)."""


class Scoring(Protocol):
    """The scores of the evaluated arms, and bounds on those of the others."""

    @property
    def posterior(self) -> EvaluatedArms:
        """The evaluated arms."""

    def scores(self, positions: Indices | slice) -> Floats:
        """Return the current scores (n,) at these positions, or upper bounds on them where they are `stale`."""

    def tighten(self, arms: Indices) -> Floats:
        """Return better bounds (n,) for `arms` (n,), at a fraction of an evaluation's cost."""


class RemainingInArray:
    """The arms that were not taken yet, with their `bounds` (A,)."""

    def __init__(self, bounds: Floats) -> None:
        self.bounds = bounds
        self._below = np.inf  # bounds from this value on were taken
        self.top = float(bounds.max(initial=-np.inf))  # the largest bound

    def take(self, best: float, least: int) -> tuple[Indices, Floats]:
        """Take arms with bounds of at least `best` and some more, or about `least` arms if `best` is −∞.
        Return the arms (n,) and their bounds (n,).

        More arms are taken because scores decrease, so that the next ones will be needed soon. An arm
        with the bound −∞ is never taken.
        """
        bounds = self.bounds
        untaken = bounds if self._below == np.inf else np.where(bounds < self._below, bounds, -np.inf)
        threshold = best - MARGIN * (self.top - best)
        if best == -np.inf:  # a value reached by about the `least` largest bounds, estimated from a sample
            sample = untaken[:: max(1, len(bounds) // SAMPLE)]
            rank = min(len(sample), max(1, least * len(sample) // len(bounds)))
            threshold = float(np.partition(sample, len(sample) - rank)[len(sample) - rank])
        self._below = max(threshold, _LOWEST)
        arms = np.flatnonzero(untaken >= self._below)
        self.top = float(untaken.max(initial=-np.inf, where=untaken < self._below))
        return arms, bounds[arms]


class LazyQueue:
    """Evaluates the arms whose bounds reach the largest score, and never returns `blocked` arms.

    There are three groups: evaluated arms; `near` arms, which have the next largest bounds; and
    remaining arms, of which only the largest bound is used. If more than `EvaluatedArms.most` arms are
    evaluated, those with the smallest scores become near arms again, because a current score is an
    upper bound on later scores. For the same reason, a search returns several arms if watching is cheap: it
    watches the `FRONT` best ones, and the next search is due when none of them exceeds the bound of the others.
    """

    def __init__(self, remaining: RemainingInArray, scoring: Scoring, blocked: Indices = NOTHING) -> None:
        self._scoring = scoring
        self._evaluated = scoring.posterior
        self._remaining = remaining
        # (A,), whether an arm may not be returned, because the scores of evaluated arms remain known
        self._is_excluded = np.zeros(len(remaining.bounds), np.bool_)
        self._is_excluded[blocked] = True
        self._pending = self._evaluated.arms  # arms that were evaluated before
        self._near = BoundedSet()
        self._watches = self._evaluated.watch(NOTHING)  # whether watching is cheap
        self._front = NOTHING  # the positions of the watched arms
        self._others = np.inf  # an upper bound on the scores of all other arms

    def top(self) -> int:
        """Return the arm with the largest current score, with the lowest index among equals; −1 if
        no arm is left."""
        if len(self._front):
            equal, least = equals(_scores(self._scoring, self._is_excluded, self._front), self._evaluated.tie)
            if least > self._others:
                return lowest(self._evaluated.arms, self._front[equal])
        arm = self._search()
        if self._watches:
            scores = _scores(self._scoring, self._is_excluded)
            self._front = largest(scores, FRONT)
            self._evaluated.watch(self._front)
            scores[self._front] = -np.inf
            self._others = max(scores.max(initial=-np.inf), self._near.top, self._remaining.top)
        return arm

    def _search(self) -> int:
        """Return the `top` of all arms."""
        while True:
            arm, best = best_evaluated(self._scoring, self._is_excluded)
            # an unevaluated arm with an equal score may have a lower index
            if best <= self._remaining.top > -np.inf:
                arms, bounds = self._remaining.take(best, FIRST_NEAR)
                if len(self._pending):
                    is_new = np.isin(arms, self._pending, invert=True)
                    arms = arms[is_new]
                    bounds = bounds[is_new]
                self._near = self._near.join(arms, bounds, is_tight=False)
            elif not best <= self._near.top > -np.inf:
                return arm
            self._look_at_more(best)

    def block(self, arm: int) -> None:
        """Exclude `arm`, which was evaluated, from further results."""
        self._is_excluded[arm] = True

    def _look_at_more(self, best: float) -> None:
        """Tighten near bounds of at least `best`. Then evaluate the arms whose bounds are still
        that large, and as many again.

        Each call evaluates at least as many arms as were evaluated before, so that the number of
        calls grows logarithmically, but never more at a time than fit into memory. If there are too many
        evaluated arms, those with the smallest scores become near arms again. The best arms and their
        equals remain, so each iteration of `top` evaluates new arms.
        """
        evaluated = self._evaluated
        near = self._near.tighten(best, self._scoring.tighten)
        reaching = int(np.count_nonzero(near.bounds >= best)) if best > -np.inf else 0
        count = max(2 * reaching, len(evaluated.arms), FIRST_LOOK)
        arms, self._near = near.split(min(count, max(evaluated.most // SHARE, 1)))
        evaluated.enter(arms)
        if len(evaluated.arms) > evaluated.most:
            scores = _scores(self._scoring, self._is_excluded)
            leaving = largest(-scores, len(scores) - evaluated.most // 2)
            arms = evaluated.arms.copy()  # `leave` may move the arms
            dropped = evaluated.leave(leaving[scores[leaving] < max(best, _LOWEST)])
            self._near = self._near.join(arms[dropped], scores[dropped], is_tight=True)


def largest(bounds: Floats, count: int) -> Indices:
    """Return the positions of the `count` largest bounds, excluding bounds of −∞."""
    order = np.argpartition(-bounds, count)[:count] if count < len(bounds) else np.arange(len(bounds))
    return order[bounds[order] > -np.inf]


def best_evaluated(scoring: Scoring, is_excluded: Flags) -> tuple[int, float]:
    """Refresh the scores that may be the largest, and return the `argmax` of the evaluated arms that are not
    excluded (A,)."""
    evaluated = scoring.posterior
    scores = _scores(scoring, is_excluded)
    count = FIRST_LOOK
    while True:
        equal, least = equals(scores, evaluated.tie)
        if not evaluated.has_stale(equal):
            return lowest(evaluated.arms, equal), least
        stale = evaluated.stale
        is_fresh = np.ones(len(scores), np.bool_)
        is_fresh[stale] = False
        best = float(scores.max(initial=-np.inf, where=is_fresh))
        reaching = stale[scores[stale] >= max(least_equal(best, evaluated.tie), _LOWEST)]
        evaluated.refresh(reaching[largest(scores[reaching], count)] if len(reaching) > count else reaching)
        scores = _scores(scoring, is_excluded)
        count = 2 * count


def argmax(arms: Indices, scores: Floats, tie: float) -> tuple[int, float]:
    """Return the arm with the largest of `scores` (n,), with the lowest index among equals, and the
    smallest score that counts as equal to it; (−1, −∞) if no score is above −∞."""
    equal, least = equals(scores, tie)
    return lowest(arms, equal), least


def equals(scores: Floats, tie: float) -> tuple[Indices, float]:
    """Return the positions of the largest of `scores` (n,) and of its equals, and the smallest score that
    counts as equal; none and −∞ if no score is above −∞."""
    best = scores.item(scores.argmax()) if len(scores) else -np.inf
    if best == -np.inf:
        return NOTHING, best
    least = least_equal(best, tie)
    return (scores >= least).nonzero()[0], least


def lowest(arms: Indices, positions: Indices) -> int:
    """Return the lowest of the `arms` at these positions; −1 if there are none."""
    if not len(positions):
        return -1
    return int(arms[positions].min()) if len(positions) > 1 else arms.item(positions[0])


def _scores(scoring: Scoring, is_excluded: Flags, positions: Indices | slice = slice(None)) -> Floats:
    """Return the scores of the evaluated arms at these positions, with −∞ for excluded arms."""
    scores = scoring.scores(positions)
    scores[is_excluded[scoring.posterior.arms[positions]]] = -np.inf
    return scores


def least_equal(score: float, tie: float) -> float:
    """Return the smallest score that counts as equal to `score`."""
    return score - tie * max(1.0, abs(score)) if score > -np.inf else score
