"""The comparison of trials at a rung if there are several objectives or constraints.

A trial is at least as good as another one only if this is certain: a value that it has not reported
is unknown, and may be the best. Trials that violate a constraint at this step come after all others
and are compared by their violations (constrained domination: Deb, Pratap, Agarwal, Meyarivan 2002).
Trials are sorted into fronts (non-dominated sorting, as in the asynchronous successive halving of
Schmucker, Donini, Zafar, Salinas, Archambeau 2021): no trial of a front dominates another trial of
this front or of a later one. A trial continues unless the fronts before its own contain the best
`share` of all trials already, so no trial on the first front is stopped.
"""

import bisect
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

Known = tuple[float | None, ...]  # rewards or margins; None: unknown


@dataclass(frozen=True, slots=True)
class Standing:
    """The best rewards of a trial up to a step, and the largest margins of its constraints."""

    rewards: Known
    margins: Known = ()

    @staticmethod
    def of(numbers: Sequence[float | None], objectives: int) -> "Standing":
        """Return the standing of a reward for each of the `objectives`, and of the margins. NaN is
        the worst number."""
        known = tuple(-math.inf if one is not None and math.isnan(one) else one for one in numbers)
        return Standing(known[:objectives], known[objectives:])

    def after(self, later: "Standing") -> "Standing":
        """Return the best of both, number by number."""
        return Standing(_best(self.rewards, later.rewards), _best(self.margins, later.margins))

    def completed(self, result: "Standing") -> "Standing":
        """Return a copy with the unknown numbers of an ended trial, from its result."""
        return Standing(_known(self.rewards, result.rewards), _known(self.margins, result.margins))

    @property
    def violations(self) -> Known:
        """The margins up to 0, all 0 if no constraint is known to be violated."""
        return tuple(None if margin is None else min(margin, 0.0) for margin in self.margins)

    @property
    def is_infeasible(self) -> bool:
        """Whether a constraint is known to be violated."""
        return any(margin is not None and margin < 0.0 for margin in self.margins)

    def dominates(self, other: "Standing") -> bool:
        """Return whether this trial is certainly better than `other`."""
        if self.is_infeasible != other.is_infeasible:
            return other.is_infeasible
        if self.is_infeasible:
            return _dominates(self.violations, other.violations)
        return _dominates(self.rewards, other.rewards)


def is_among_best(standing: Standing, others: Collection[Standing], survivors: int) -> bool:
    """Return whether fewer than `survivors` of the `others` are in earlier fronts than `standing`,
    which is one of them.

    Its dominators are in earlier fronts, which decides most cases without sorting.
    """
    dominators = sum(other.dominates(standing) for other in others)
    if not dominators or dominators >= survivors:
        return not dominators
    fronts = _fronts(tuple(others))
    own = next(index for index, front in enumerate(fronts) if standing in front)
    return sum(map(len, fronts[:own])) < survivors


@lru_cache(4)  # trials report several times before another one reaches a rung
def _fronts(standings: tuple[Standing, ...]) -> tuple[tuple[Standing, ...], ...]:
    """Sort standings into fronts: each into the first one without a dominator of it.

    Dominance is transitive, so a standing with a dominator in a front has one in each earlier
    front, and its front is found by bisection (Zhang, Tian, Cheng, Jin 2015). Its dominators are
    sorted before it.
    """
    fronts: list[list[Standing]] = []
    for standing in sorted(standings, key=_order):
        index = bisect.bisect_left(fronts, True, key=partial(_is_undominated, standing))
        if index == len(fronts):
            fronts.append([])
        fronts[index].append(standing)
    return tuple(map(tuple, fronts))


def _is_undominated(standing: Standing, front: Sequence[Standing]) -> bool:
    return not any(other.dominates(standing) for other in reversed(front))


def _order(standing: Standing) -> tuple[bool, tuple[float, ...]]:
    """Return a sort key by which each trial comes after its dominators."""
    numbers = standing.violations if standing.is_infeasible else standing.rewards
    return standing.is_infeasible, tuple(-math.inf if one is None else -one for one in numbers)


def _dominates(first: Sequence[float | None], second: Sequence[float | None]) -> bool:
    pairs = list(zip(first, second, strict=True))
    known = [(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
    if len(known) < len(pairs):
        return False
    is_as_good = all(mine >= theirs for mine, theirs in known)
    return is_as_good and any(mine > theirs for mine, theirs in known)


def _best(first: Known, second: Known) -> Known:
    pairs = zip(first, second, strict=True)
    return tuple(max((one for one in pair if one is not None), default=None) for pair in pairs)


def _known(first: Known, second: Known) -> Known:
    pairs = zip(first, second, strict=True)
    return tuple(theirs if mine is None else mine for mine, theirs in pairs)
