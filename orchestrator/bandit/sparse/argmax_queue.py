"""The argmax of scores that only fall, looking at few of them (lazy greedy, Minoux 1978).

Every arm has an upper bound on its score that stays valid as scores fall. Arms are looked at in the
order of their bounds, until the best score seen is above the bound of every other arm. Ties go to
the lowest index; scores within the `ScoredArms.tie` of the best are ties. Both ways return the same
arms; the eager one is the oracle.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices

# Arms taken at a time, at least: one by one would cost a call each
FIRST_NEAR, FIRST_LOOK = 1024, 32
MOST_NUMBERS = 2**22  # that are kept of the arms looked at: 32 MiB
SHARE = 8  # of the most arms that are looked at, this part enters in one call at most
SAMPLE = 4096  # bounds that a quantile is estimated from
MARGIN = 0.25  # arms are taken down to this share of the distance below the best score that bounds reach above it
NOTHING = np.empty(0, np.intp)
_LOWEST = float(np.finfo(np.float64).min)  # −∞ is for arms that may not be taken


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
        """How many arms are looked at, except when more are equally good: numbers are kept of
        each."""

    def enter(self, arms: Indices) -> None:
        """Look at `arms`, distinct ones that are not looked at."""

    def leave(self, positions: Indices) -> Indices:
        """Look no more at the arms at these positions, except those that are needed; positions (k,)
        of those that left."""

    def tighten(self, arms: Indices) -> Floats:
        """Return better upper bounds for `arms` (n,) at a fraction of the price of a look: (n,)."""


def most_arms(numbers: int) -> int:
    """Return how many arms may be looked at (`ScoredArms.most`) when so many `numbers` are kept of
    each."""
    return MOST_NUMBERS // numbers


@dataclass(frozen=True)
class TakenArms:
    """Arms taken by their bounds: positions `arms` (n,), their `bounds` (n,), all of them at least
    `threshold`.

    `top`: the largest bound that is left, which is below `threshold`.
    """

    arms: Indices
    bounds: Floats
    top: float
    threshold: float


def take(bounds: Floats, below: float, best: float, least: int) -> TakenArms:
    """Of the `bounds` (A,) less than `below`: those that reach `best` and some more; about `least`
    if `best` is −∞.

    Scores fall, so the next ones will be needed soon. A bound of −∞ is never taken. To continue,
    pass the threshold as `below`.
    """
    left = bounds if below == np.inf else np.where(bounds < below, bounds, -np.inf)
    top = float(left.max(initial=-np.inf))
    threshold = best - MARGIN * (top - best) if best > -np.inf else _quantile(left, least)
    threshold = max(threshold, _LOWEST)
    arms = np.flatnonzero(left >= threshold)
    return TakenArms(arms, bounds[arms], float(left.max(initial=-np.inf, where=left < threshold)), threshold)


class RemainingInArray:
    """The arms that were not taken yet, by their `bounds` (A,)."""

    def __init__(self, bounds: Floats) -> None:
        self._bounds, self._below = bounds, np.inf
        self.top = float(bounds.max(initial=-np.inf))  # the largest bound

    def take(self, best: float, least: int) -> tuple[Indices, Floats, float]:
        """See `take`: arms (n,), bounds (n,), and the largest bound that is left."""
        taken = take(self._bounds, self._below, best, least)
        self._below, self.top = taken.threshold, taken.top
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
        """Return the arm with the largest present score. Ties: the lowest index. −1 when no arm is
        left."""

    def block(self, arm: int) -> None:
        """Exclude `arm`, which was evaluated, from later results."""


class EagerQueue:
    """Evaluates every arm from the start. `blocked`: arms that are never returned although they are
    evaluated."""

    def __init__(self, remaining: RemainingArms, scored: ScoredArms, blocked: Indices = NOTHING) -> None:
        self._scored, self._excluded = scored, _excluded(scored, blocked)
        while remaining.top > -np.inf:
            arms, _, _ = remaining.take(-np.inf, FIRST_NEAR)
            scored.enter(arms[np.isin(arms, scored.arms, invert=True)])

    def top(self) -> int:
        """See `ArgmaxQueue`."""
        return _best(self._scored, self._excluded)[0]

    def block(self, arm: int) -> None:
        """See `ArgmaxQueue`."""
        self._excluded = np.append(self._excluded, arm)


class LazyQueue:
    """Looks at the arms whose bound reaches the top. `blocked`: see `EagerQueue`.

    The arms are in three groups: those looked at; those `near`, with the next largest bounds; and
    the remaining ones, of which only the largest bound is used. When more than `ScoredArms.most`
    are looked at, those of the least scores go back to the near ones: a present score is an upper
    bound on later ones.
    """

    def __init__(self, remaining: RemainingArms, scored: ScoredArms, blocked: Indices = NOTHING) -> None:
        self._scored, self._remaining = scored, remaining
        self._excluded, self._before = _excluded(scored, blocked), scored.arms
        self._near, self._near_bounds = NOTHING, np.empty(0)
        self._is_tight = np.empty(0, bool)
        self._near_top = -np.inf

    def top(self) -> int:
        """See `ArgmaxQueue`."""
        while True:
            arm, best = _best(self._scored, self._excluded)
            # an arm outside with an equal score may have the lower index
            if best <= self._remaining.top > -np.inf:
                self._fetch_near(best)
            elif best <= self._near_top > -np.inf:
                self._look_at_more(best)
            else:
                return arm

    def block(self, arm: int) -> None:
        """See `ArgmaxQueue`."""
        self._excluded = np.append(self._excluded, arm)

    def _fetch_near(self, best: float) -> None:
        """Take from the remaining arms those that reach `best`."""
        arms, bounds, _ = self._remaining.take(best, FIRST_NEAR)
        if len(self._before):  # pending pulls were looked at before
            is_new = np.isin(arms, self._before, invert=True)
            arms, bounds = arms[is_new], bounds[is_new]
        self._near = np.concatenate((self._near, arms))
        self._near_bounds = np.concatenate((self._near_bounds, bounds))
        self._is_tight = np.concatenate((self._is_tight, np.zeros(len(arms), bool)))
        self._look_at_more(best)

    def _look_at_more(self, best: float) -> None:
        """Tighten near bounds that reach `best`; then look at the arms whose bounds still do, and
        as many again.

        At least as many as were looked at so far, so that the number of calls grows with the
        logarithm, but no more at a time than fit into memory.
        """
        loose = np.flatnonzero(~self._is_tight & (self._near_bounds >= best))
        self._near_bounds[loose] = np.minimum(self._near_bounds[loose], self._scored.tighten(self._near[loose]))
        self._is_tight[loose] = True
        reaching = int(np.count_nonzero(self._near_bounds >= best)) if best > -np.inf else 0
        wanted = max(2 * reaching, len(self._scored.arms), FIRST_LOOK)
        entering = largest(self._near_bounds, min(wanted, max(self._scored.most // SHARE, 1)))
        self._scored.enter(self._near[entering])
        staying = np.ones(len(self._near), bool)
        staying[entering] = False
        self._near, self._near_bounds = self._near[staying], self._near_bounds[staying]
        self._is_tight = self._is_tight[staying]
        if len(self._scored.arms) > self._scored.most:
            self._send_back()
        self._near_top = float(self._near_bounds.max(initial=-np.inf))

    def _send_back(self) -> None:
        """Return arms of the least scores to those near, until half of `ScoredArms.most` are left.

        The best ones stay, equal ones too, so each turn of `top` looks at arms that it has not
        looked at yet.
        """
        scores = _scores(self._scored, self._excluded)
        best = least_equal(float(scores.max()), self._scored.tie)
        leaving = largest(-scores, len(scores) - self._scored.most // 2)
        leaving = leaving[scores[leaving] < best]
        arms = self._scored.arms.copy()  # `leave` may move them
        left = self._scored.leave(leaving)
        self._near = np.concatenate((self._near, arms[left]))
        self._near_bounds = np.concatenate((self._near_bounds, scores[left]))
        self._is_tight = np.concatenate((self._is_tight, np.ones(len(left), bool)))


def _quantile(bounds: Floats, count: int) -> float:
    """Return a value that about the `count` largest bounds reach, out of a sample of them."""
    sample = bounds[:: max(1, len(bounds) // SAMPLE)]
    rank = min(len(sample), max(1, count * len(sample) // len(bounds)))
    return float(np.partition(sample, len(sample) - rank)[len(sample) - rank])


def largest(bounds: Floats, count: int) -> Indices:
    """Return positions of the `count` largest bounds, as far as they are not −∞."""
    order = np.argpartition(-bounds, count)[:count] if count < len(bounds) else np.arange(len(bounds))
    return order[bounds[order] > -np.inf]


def _excluded(scored: ScoredArms, blocked: Indices) -> Indices:
    """Return the evaluated arms that are never returned: those evaluated for another reason than
    their bound."""
    return np.intersect1d(scored.arms, blocked)


def _best(scored: ScoredArms, blocked: Indices) -> tuple[int, float]:
    """Return the arm looked at with the largest score, the lowest index among equals, and the least
    score that is equal to it; (−1, −∞) if there is none."""
    scores, count = _scores(scored, blocked), FIRST_LOOK
    while len(stale := scored.stale):
        bounds = scores[stale]
        scores[stale] = -np.inf
        reaching = stale[bounds >= max(least_equal(float(scores.max()), scored.tie), _LOWEST)]
        scores[stale] = bounds
        if not len(reaching):
            break
        scored.refresh(reaching[largest(scores[reaching], count)] if len(reaching) > count else reaching)
        scores, count = _scores(scored, blocked), 2 * count
    best = float(scores.max(initial=-np.inf))
    if best == -np.inf:
        return -1, -np.inf
    least = least_equal(best, scored.tie)
    equal = (scores >= least).nonzero()[0]
    return int(scored.arms[equal].min()) if len(equal) > 1 else scored.arms.item(equal[0]), least


def _scores(scored: ScoredArms, blocked: Indices) -> Floats:
    """Return their scores, −∞ for the arms `blocked`."""
    scores = scored.scores()
    if len(blocked):
        scores[np.isin(scored.arms, blocked)] = -np.inf
    return scores


def least_equal(score: float, tie: float) -> float:
    """Return the least score that counts as equal to `score`."""
    return score - tie * max(1.0, abs(score)) if score > -np.inf else score
