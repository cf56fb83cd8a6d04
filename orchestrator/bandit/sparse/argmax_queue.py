"""The argmax of scores that only fall, looking at few of them (lazy greedy, Minoux 1978).

Every arm has an upper bound on its score that stays valid as scores fall. Arms are looked at in the
order of their bounds, until the best score seen is above the bound of every other arm. Ties go to
the lowest index; scores within the `ScoredArms.tie` of the best are ties.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from orchestrator.bandit.arrays import Flags, Floats, Indices

FIRST_NEAR = 1024  # arms taken at a time, at least: one by one would cost a call each
FIRST_LOOK = 32  # arms looked at in a call, at least
MOST_NUMBERS = 2**22  # that are kept of the arms looked at: 32 MiB
SHARE = 8  # of the most arms that are looked at, this part enters in one call at most
SAMPLE = 4096  # bounds that a quantile is estimated from
MARGIN = 0.25  # arms are taken down to this share of the distance below the best score that bounds reach above it
NOTHING = np.empty(0, np.intp)
_LOWEST = float(np.finfo(np.float64).min)  # −∞ is for arms that may not be taken


@dataclass(frozen=True, eq=False)
class BoundedSet:
    """Arms with upper bounds on their scores."""

    arms: Indices = field(default_factory=lambda: NOTHING)  # (n,), distinct
    bounds: Floats = field(default_factory=lambda: np.empty(0))  # (n,)
    # (n,), whose bounds `tighten` has lowered already
    is_tight: Flags = field(default_factory=lambda: np.empty(0, np.bool_))

    @cached_property
    def top(self) -> float:
        """The largest bound; −∞ without an arm."""
        return float(self.bounds.max(initial=-np.inf))

    def join(self, arms: Indices, bounds: Floats, is_tight: bool) -> "BoundedSet":
        """Return these arms and `arms` (n,)."""
        flags = np.full(len(arms), is_tight)
        return BoundedSet(
            np.concatenate((self.arms, arms)),
            np.concatenate((self.bounds, bounds)),
            np.concatenate((self.is_tight, flags)),
        )

    def tighten(self, best: float, bounds_of: Callable[[Indices], Floats]) -> "BoundedSet":
        """Return the same arms; loose bounds that reach `best` are lowered by `bounds_of`."""
        loose = np.flatnonzero(~self.is_tight & (self.bounds >= best))
        if not len(loose):
            return self
        bounds = self.bounds.copy()
        is_tight = self.is_tight.copy()
        bounds[loose] = np.minimum(bounds[loose], bounds_of(self.arms[loose]))
        is_tight[loose] = True
        return BoundedSet(self.arms, bounds, is_tight)

    def split(self, count: int) -> tuple[Indices, "BoundedSet"]:
        """Return the `count` arms of the largest bounds, and the others."""
        taken = largest(self.bounds, count)
        is_rest = np.ones(len(self.arms), np.bool_)
        is_rest[taken] = False
        return self.arms[taken], self.where(is_rest)

    def where(self, is_member: Flags) -> "BoundedSet":
        """Return the arms that `is_member` (n,) names."""
        return BoundedSet(self.arms[is_member], self.bounds[is_member], self.is_tight[is_member])


class ScoredArms(Protocol):
    """Arms looked at, with present scores."""

    @property
    def arms(self) -> Indices:
        """The arms looked at (n,)."""

    @property
    def tie(self) -> float:
        """How far apart scores of about 1 are equal; 0 where they are the same bits in any call."""

    def scores(self) -> Floats:
        """Return their present scores (n,); upper bounds for those at the positions `stale`."""

    @property
    def stale(self) -> Indices:
        """Positions of the arms whose scores were not brought up to date (k,)."""

    def refresh(self, positions: Indices) -> None:
        """Bring the scores at these positions up to date."""

    @property
    def most(self) -> int:
        """How many arms are looked at, unless more are equally good: their numbers are kept."""

    def enter(self, arms: Indices) -> None:
        """Look at `arms`, distinct ones that are not looked at."""

    def leave(self, positions: Indices) -> Indices:
        """Drop the arms at these positions unless needed; return the dropped positions (k,)."""

    def tighten(self, arms: Indices) -> Floats:
        """Return better upper bounds for `arms` (n,) at a fraction of the price of a look: (n,)."""


def most_arms(numbers: int) -> int:
    """Return `ScoredArms.most`, if so many `numbers` are kept of each arm looked at."""
    return MOST_NUMBERS // numbers


@dataclass(frozen=True)
class TakenArms:
    """Arms taken by their bounds."""

    arms: Indices  # (n,), their positions
    bounds: Floats  # (n,), all at least `threshold`
    top: float  # the largest bound that is left, which is below `threshold`
    threshold: float  # the least bound that was taken


def take(bounds: Floats, below: float, best: float, least: int) -> TakenArms:
    """Of the `bounds` (A,) less than `below`: those that reach `best` and some more; about `least`
    if `best` is −∞.

    Scores fall, so the next ones will be needed soon. A bound of −∞ is never taken. To continue,
    pass the threshold as `below`.
    """
    untaken = bounds if below == np.inf else np.where(bounds < below, bounds, -np.inf)
    top = float(untaken.max(initial=-np.inf))
    threshold = best - MARGIN * (top - best) if best > -np.inf else _quantile(untaken, least)
    threshold = max(threshold, _LOWEST)
    arms = np.flatnonzero(untaken >= threshold)
    return TakenArms(arms, bounds[arms], float(untaken.max(initial=-np.inf, where=untaken < threshold)), threshold)


class RemainingInArray:
    """The arms that were not taken yet, by their `bounds` (A,)."""

    def __init__(self, bounds: Floats) -> None:
        self._bounds = bounds
        self._below = np.inf
        self.top = float(bounds.max(initial=-np.inf))  # the largest bound

    def take(self, best: float, least: int) -> tuple[Indices, Floats, float]:
        """See `take`: arms (n,), bounds (n,), and the largest bound that is left."""
        taken = take(self._bounds, self._below, best, least)
        self._below = taken.threshold
        self.top = taken.top
        return taken.arms, taken.bounds, taken.top


class RemainingArms(Protocol):
    """The arms that were not taken yet, in one array (`RemainingInArray`) or in several blocks."""

    @property
    def top(self) -> float:
        """The largest bound."""

    def take(self, best: float, least: int) -> tuple[Indices, Floats, float]:
        """See `RemainingInArray.take`."""


class ArgmaxQueue(Protocol):
    """Arms ordered by a score that never rises."""

    def top(self) -> int:
        """Return the arm of the largest present score, of equals the lowest; −1: none is left."""

    def block(self, arm: int) -> None:
        """Exclude `arm`, which was evaluated, from later results."""


class LazyQueue:
    """Looks at the arms whose bound reaches the top, and never returns those `blocked`.

    The arms are in three groups: those looked at; those `near`, with the next largest bounds; and
    the remaining ones, of which only the largest bound is used. When more than `ScoredArms.most`
    are looked at, those of the least scores go back to the near ones: a present score is an upper
    bound on later ones.
    """

    def __init__(self, remaining: RemainingArms, scored: ScoredArms, blocked: Indices = NOTHING) -> None:
        self._scored = scored
        self._remaining = remaining
        self._excluded = np.intersect1d(scored.arms, blocked)  # their scores are known all the same
        self._pending = scored.arms  # looked at before
        self._near = BoundedSet()

    def top(self) -> int:
        """See `ArgmaxQueue`."""
        while True:
            arm, best = _best(self._scored, self._excluded)
            # an arm outside with an equal score may have the lower index
            if best <= self._remaining.top > -np.inf:
                self._take_remaining(best)
                self._look_at_more(best)
            elif best <= self._near.top > -np.inf:
                self._look_at_more(best)
            else:
                return arm

    def block(self, arm: int) -> None:
        """See `ArgmaxQueue`."""
        self._excluded = np.append(self._excluded, arm)

    def _take_remaining(self, best: float) -> None:
        """Move the remaining arms that reach `best` to the near ones."""
        arms, bounds, _ = self._remaining.take(best, FIRST_NEAR)
        if len(self._pending):
            is_new = np.isin(arms, self._pending, invert=True)
            arms = arms[is_new]
            bounds = bounds[is_new]
        self._near = self._near.join(arms, bounds, is_tight=False)

    def _look_at_more(self, best: float) -> None:
        """Tighten near bounds that reach `best`; then look at the arms whose bounds still do, and
        as many again.

        At least as many as were looked at so far, so that the number of calls grows with the
        logarithm, but no more at a time than fit into memory.
        """
        near = self._near.tighten(best, self._scored.tighten)
        reaching = int(np.count_nonzero(near.bounds >= best)) if best > -np.inf else 0
        count = max(2 * reaching, len(self._scored.arms), FIRST_LOOK)
        arms, self._near = near.split(min(count, max(self._scored.most // SHARE, 1)))
        self._scored.enter(arms)
        if len(self._scored.arms) > self._scored.most:
            self._send_back()

    def _send_back(self) -> None:
        """Return arms of the least scores to those near, until half of `ScoredArms.most` are left.

        The best ones stay, equal ones too, so each turn of `top` looks at arms that it has not
        looked at yet.
        """
        scores = _scores(self._scored, self._excluded)
        best = least_equal(float(scores.max()), self._scored.tie)
        leaving = largest(-scores, len(scores) - self._scored.most // 2)
        arms = self._scored.arms.copy()  # `leave` may move them
        dropped = self._scored.leave(leaving[scores[leaving] < best])
        self._near = self._near.join(arms[dropped], scores[dropped], is_tight=True)


def _quantile(bounds: Floats, count: int) -> float:
    """Return a value that about the `count` largest bounds reach, out of a sample of them."""
    sample = bounds[:: max(1, len(bounds) // SAMPLE)]
    rank = min(len(sample), max(1, count * len(sample) // len(bounds)))
    return float(np.partition(sample, len(sample) - rank)[len(sample) - rank])


def largest(bounds: Floats, count: int) -> Indices:
    """Return positions of the `count` largest bounds, as far as they are not −∞."""
    order = np.argpartition(-bounds, count)[:count] if count < len(bounds) else np.arange(len(bounds))
    return order[bounds[order] > -np.inf]


def _best(scored: ScoredArms, blocked: Indices) -> tuple[int, float]:
    """Refresh the scores that may be the largest; return `argmax` of arms not `blocked`."""
    scores = _scores(scored, blocked)
    count = FIRST_LOOK
    while len(stale := scored.stale):
        is_fresh = np.ones(len(scores), np.bool_)
        is_fresh[stale] = False
        best = float(scores.max(initial=-np.inf, where=is_fresh))
        reaching = stale[scores[stale] >= max(least_equal(best, scored.tie), _LOWEST)]
        if not len(reaching):
            break
        scored.refresh(reaching[largest(scores[reaching], count)] if len(reaching) > count else reaching)
        scores = _scores(scored, blocked)
        count = 2 * count
    return argmax(scored.arms, scores, scored.tie)


def argmax(arms: Indices, scores: Floats, tie: float) -> tuple[int, float]:
    """Return the arm with the largest of `scores` (n,), the lowest index among equals, and the
    least score that is equal to it; (−1, −∞) if there is none above −∞."""
    best = float(scores.max(initial=-np.inf))
    if best == -np.inf:
        return -1, best
    least = least_equal(best, tie)
    equal = (scores >= least).nonzero()[0]
    return int(arms[equal].min()) if len(equal) > 1 else arms.item(equal[0]), least


def _scores(scored: ScoredArms, blocked: Indices) -> Floats:
    """Return their scores, −∞ for the arms `blocked`."""
    scores = scored.scores()
    if len(blocked):
        scores[np.isin(scored.arms, blocked)] = -np.inf
    return scores


def least_equal(score: float, tie: float) -> float:
    """Return the least score that counts as equal to `score`."""
    return score - tie * max(1.0, abs(score)) if score > -np.inf else score
