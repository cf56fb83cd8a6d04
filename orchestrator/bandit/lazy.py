"""The argmax of scores that only fall, touching few of them (lazy greedy, Minoux 1978).

An old score is an upper bound on the present one, so an arm needs to be scored again only while its old score is not
below the best present one. Ties go to the lowest index. Both queues return the same arms; the eager one is the oracle.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from orchestrator.bandit.arrays import Floats, Indices

Score = Callable[[Indices], Floats]


class ArgmaxQueue(Protocol):
    """Arms ordered by a score that never rises."""

    def top(self, score: Score) -> int:
        """The arm with the largest present score; `score` gives it for (n,) distinct arms. Ties: the lowest index."""


class EagerQueue:
    """Scores every arm at every call. `bounds` (A,): upper bounds; −∞ keeps an arm out for ever."""

    def __init__(self, bounds: Floats) -> None:
        self._bounds = bounds

    def top(self, score: Score) -> int:
        """See `ArgmaxQueue`."""
        return int(np.argmax(np.minimum(self._bounds, score(np.arange(len(self._bounds))))))


class LazyQueue:
    """Scores the arms whose bound reaches the top. `bounds` (A,): upper bounds; −∞ keeps an arm out for ever.

    Only a pool of the arms with the largest bounds is looked at; it doubles when the arms outside could win.
    """

    def __init__(self, bounds: Floats, pool_size: int = 256) -> None:
        self._bounds = bounds.copy()
        self._select(pool_size)

    def top(self, score: Score) -> int:
        """See `ArgmaxQueue`."""
        is_fresh = np.zeros(len(self._pool), bool)
        chunk = 8
        while True:
            best = int(np.argmax(self._tops))  # the pool ascends, so this is the lowest index among equals
            if len(self._pool) < len(self._bounds) and self._tops[best] <= self._outside:
                self._bounds[self._pool] = self._tops
                self._select(2 * len(self._pool))
                is_fresh = np.zeros(len(self._pool), bool)
            elif is_fresh[best]:
                return int(self._pool[best])
            else:
                stale = self._challengers(is_fresh, chunk)
                self._tops[stale] = np.minimum(self._tops[stale], score(self._pool[stale]))
                is_fresh[stale] = True
                chunk = min(2 * chunk, 4096)

    def _challengers(self, is_fresh: NDArray[np.bool_], most: int) -> Indices:
        """Positions in the pool of up to `most` stale arms that may beat every fresh one, the likeliest ones."""
        best_fresh = self._tops[is_fresh].max(initial=-np.inf)
        stale = np.flatnonzero(~is_fresh & (self._tops >= best_fresh))
        return stale if len(stale) <= most else stale[np.argpartition(-self._tops[stale], most - 1)[:most]]

    def _select(self, size: int) -> None:
        """Make the pool the `size` arms with the largest bounds, by ascending index."""
        if size >= len(self._bounds):
            self._pool, self._outside = np.arange(len(self._bounds)), -np.inf
        else:
            order = np.argpartition(-self._bounds, size)
            self._pool, self._outside = np.sort(order[:size]), float(self._bounds[order[size]])
        self._tops = self._bounds[self._pool]
