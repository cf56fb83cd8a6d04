"""The binary tree of boxes over the candidates, for strategies made for a continuous domain.

The domain is the smallest box around all arms, from the minimum to the maximum of every feature. A
box is halved across its longest edge, in feature units (for equal edges: the first feature), as in
GP-ThreDS §3.1. Its points are arms: each arm is in exactly one box of every partition, and a point
of the continuous domain is replaced by the nearest arm in its box.

Boxes have unit coordinates, in which halving is exact. The coordinates of arms are rounded to 2⁻⁴⁰
of the domain.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from bbkb.orchestrator.bandit.arrays import Floats, Indices, same

FINEST = 2.0**-40  # an edge this short is not halved, because that cannot separate two arms


@dataclass(frozen=True, slots=True)
class Box:
    """The box [`low`, `high`) in unit coordinates. It includes an upper end of 1."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @staticmethod
    def unit(d: int) -> "Box":
        """Return the whole domain of `d` features."""
        return Box((0.0,) * d, (1.0,) * d)

    def contains(self, points: Floats) -> NDArray[np.bool_]:
        """Return a mask (n,) of the `points` (n, d), in unit coordinates, that are in the box."""
        below = (points < self.high) | (np.asarray(self.high) == 1.0)
        return np.asarray(((points >= np.asarray(self.low)) & below).all(axis=1))


@dataclass(frozen=True, eq=False)
class BoxedArms:
    """The arms (A, d) and their domain."""

    arms: Floats

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @property
    def dimension(self) -> int:
        """d, the number of features."""
        return int(self.arms.shape[1])

    @cached_property
    def spans(self) -> Floats:
        """The domain's edges (d,), in feature units."""
        return np.asarray(self.arms.max(axis=0) - self.arms.min(axis=0))

    @cached_property
    def coordinates(self) -> Floats:
        """The arms in unit coordinates (A, d); 0 along a constant feature."""
        scales = np.where(self.spans > 0, self.spans, 1.0)
        return np.asarray(np.rint((self.arms - self.arms.min(axis=0)) / scales / FINEST) * FINEST)

    def inside(self, box: Box, arms: Indices) -> Indices:
        """Return those of `arms` (n,) that are in the box, in their order."""
        return np.asarray(arms[box.contains(self.coordinates[arms])])

    def can_halve(self, box: Box) -> bool:
        """Return whether the longest edge exceeds the resolution of the arms' coordinates."""
        axis = self._longest(box)
        return box.high[axis] - box.low[axis] > FINEST

    def halves(self, box: Box) -> tuple[Box, Box]:
        """Return the lower and the upper half."""
        axis = self._longest(box)
        middle = (box.low[axis] + box.high[axis]) / 2.0
        lower = Box(box.low, (*box.high[:axis], middle, *box.high[axis + 1 :]))
        return lower, Box((*box.low[:axis], middle, *box.low[axis + 1 :]), box.high)

    def is_point(self, box: Box) -> bool:
        """Return whether all arms of the box have equal coordinates, which no halving separates."""
        inside = self.coordinates[box.contains(self.coordinates)]
        return bool((inside == inside[:1]).all())

    def leaf(self, box: Box, arm: int, generations: int) -> Box:
        """Return the descendant of `box` that contains `arm` after `generations` halvings; boxes of
        one point are not halved."""
        for _ in range(generations):
            if self.is_point(box):
                break
            box = next(half for half in self.halves(box) if half.contains(self.coordinates[[arm]])[0])
        return box

    def nearest(self, box: Box, arms: Indices) -> int:
        """Return the arm of `arms` (n ≥ 1) nearest to the box's center. Ties go to the first."""
        return int(arms[self._snap(np.full((1, self.dimension), 0.5), box, arms)[0]])

    def grid(self, box: Box, points: int, arms: Indices) -> Indices:
        """Return D_g: the `arms` in the box that represent it, ascending (GP-ThreDS §3.2.2).

        These are all arms in the box if there are at most `points`, otherwise the arms nearest to
        the centers of a regular grid of at least `points` cells.
        """
        members = np.sort(self.inside(box, arms))
        if len(members) <= points:
            return members
        cells = self._cells(box, points)
        centers = (np.indices(cells).reshape(self.dimension, -1).T + 0.5) / cells
        return members[np.unique(self._snap(centers, box, members))]

    def _cells(self, box: Box, points: int) -> tuple[int, ...]:
        """Return the number of cells along each feature's edge (d,): as even as possible, with at
        least `points` in total.

        400 cells in five dimensions are 4 · 4 · 3 · 3 · 3. The longest edges have the most cells,
        and an edge of length 0 has one.
        """
        edges = self.half_edges(box)
        cut = np.flatnonzero(edges > 0)
        cells = np.ones(self.dimension, int)
        cells[cut] = int(points ** (1.0 / max(len(cut), 1)) + 1e-9)
        by_length = cut[np.argsort(-edges[cut], kind="stable")]
        for axis in by_length:
            if cells.prod() >= points:
                break
            cells[axis] += 1
        return tuple(cells.tolist())

    def half_edges(self, box: Box) -> Floats:
        """Return the distances from the center to the upper corner (d,), in feature units."""
        return np.asarray(self.spans * (np.asarray(box.high) - box.low) / 2.0)

    def _snap(self, fractions: Floats, box: Box, arms: Indices) -> Indices:
        """Return the positions (n,) of the `arms` nearest to points (n, d), as shares of edges."""
        places = np.asarray(box.low) + fractions * (np.asarray(box.high) - box.low)
        return np.asarray(cdist(places * self.spans, self.coordinates[arms] * self.spans).argmin(axis=1))

    def _longest(self, box: Box) -> int:
        return int(np.argmax(self.half_edges(box)))
