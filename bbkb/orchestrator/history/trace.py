"""A sample of a campaign's results, in the order of arrival, for figures.

Each bucket covers consecutive results and contains the best and the worst of them. If there are too
many buckets, neighboring buckets are merged. So adding a result takes constant time on average, and
no outlier or improvement is lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_BUCKETS = 1000
_REWARD = attrgetter("reward")


@dataclass(frozen=True, slots=True)
class Point(Generic[T]):
    """A result in the order of arrival."""

    place: int  # its index in the order of arrival, from 1
    reward: float  # higher is better
    item: T  # the result itself
    steps: int = 0  # the steps that all trials had reported at that time


@dataclass(slots=True)
class Trace(Generic[T]):
    """A sample of `count` results: at most 2 · `MOST_BUCKETS`, and every improvement."""

    count: int = 0
    steps: int = 0  # the steps that all trials have reported
    width: int = 1  # results per bucket
    improvements: list[Point[T]] = field(default_factory=list)
    # the worst and the best result in each bucket
    _buckets: list[tuple[Point[T], ...]] = field(default_factory=list)

    def add(self, reward: float, item: T, is_feasible: bool = True) -> None:
        """Add the next result. An infeasible result is not an improvement."""
        self.count += 1
        is_better = is_feasible and (not self.improvements or reward > self.improvements[-1].reward)
        is_in_last = len(self._buckets) * self.width >= self.count
        if not is_better and is_in_last and len(self._buckets[-1]) > 1 and _is_between(reward, *self._buckets[-1]):
            return  # most results of a long campaign are neither the worst nor the best of a bucket
        point = Point(self.count, reward, item, self.steps)
        if is_better:
            self.improvements.append(point)
        if not is_in_last:
            self._buckets.append((point,))
        else:
            self._buckets[-1] = _extremes((*self._buckets[-1], point))
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets = [
                _extremes(self._buckets[first] + self._buckets[first + 1])
                if first + 1 < len(self._buckets)
                else self._buckets[first]
                for first in range(0, len(self._buckets), 2)
            ]
            self.width *= 2

    def copy(self) -> "Trace[T]":
        """Return an independent copy."""
        return Trace(self.count, self.steps, self.width, self.improvements[:], self._buckets[:])

    def points(self) -> Iterator[Point[T]]:
        """Yield the sampled points in the order of arrival."""
        for bucket in self._buckets:
            yield from bucket


def _is_between(reward: float, first: Point[T], second: Point[T]) -> bool:
    return first.reward <= reward <= second.reward or second.reward <= reward <= first.reward


def _extremes(points: tuple[Point[T], ...]) -> tuple[Point[T], ...]:
    worst = min(points, key=_REWARD)
    best = max(points, key=_REWARD)
    if worst is best:
        return (worst,)
    return (worst, best) if worst.place < best.place else (best, worst)
