"""The hypervolume of a front: the volume of the region between its points and a reference point
that is worse than all of them.

Exact up to `MOST_EXACT` objectives. The time grows exponentially with their number, so that of more
is estimated from `SAMPLES` points, always the same ones. Two objectives are swept over. More
are cut into slices along the last objective, so that one objective fewer remains in each slice
(While, Hingston, Barone, Huband 2006, "A faster algorithm for calculating hypervolume"). Each slice
reuses the front of the previous one, so the number of steps for three objectives is quadratic in the
number of points.
"""

import math
from collections.abc import Sequence
from operator import ge

Point = tuple[float, ...]

MOST_EXACT = 4  # objectives
SAMPLES = 5_000  # the relative error of the estimate is about √((1 − s)/s/SAMPLES), with s its share of the box


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Return the volume of the region that is worse than one of `points` (n, J) and better than
    `reference` (J,).

    All are rewards to maximize; J >= 1. Points that are not better than the reference in every
    objective do not count.
    """
    inside = {
        tuple(value - least for value, least in zip(point, reference, strict=True))
        for point in points
        if all(value > least for value, least in zip(point, reference, strict=True))
    }
    if len(reference) > MOST_EXACT and inside:
        return _estimate(sorted(inside))
    return _volume(sorted(inside, key=lambda point: point[-1], reverse=True))


def _estimate(points: Sequence[Point]) -> float:
    """Return the estimated volume above the origin of at least one point.

    The samples are a Kronecker sequence, whose steps are the powers of the root of x^(J+1) = x + 1.
    """
    size = len(points[0])
    root = 2.0
    for _ in range(50):
        root = (1.0 + root) ** (1.0 / (size + 1))
    box = [max(point[axis] for point in points) for axis in range(size)]
    steps = [root ** -(axis + 1) for axis in range(size)]
    inside = 0
    for number in range(1, SAMPLES + 1):
        sample = [(number * step % 1.0) * length for step, length in zip(steps, box, strict=True)]
        inside += any(all(map(ge, point, sample)) for point in points)
    return math.prod(box) * inside / SAMPLES


def _volume(points: Sequence[Point]) -> float:
    """Return the volume above the origin of points in descending order of their last objective."""
    if not points:
        return 0.0
    if len(points[0]) == 1:
        return points[0][0]
    if len(points[0]) == 2:
        return _area(points)
    total = 0.0
    front = list[Point]()
    ends = [*(point[-1] for point in points[1:]), 0.0]
    for point, end in zip(points, ends, strict=True):
        front = with_point(front, point[:-1])
        if point[-1] > end:
            total += (point[-1] - end) * _volume(sorted(front, key=lambda member: member[-1], reverse=True))
    return total


def _area(points: Sequence[Point]) -> float:
    total = 0.0
    widest = 0.0
    for width, height in points:
        if width > widest:
            total += (width - widest) * height
            widest = width
    return total


def with_point(front: Sequence[Point], point: Point) -> list[Point]:
    """Return the points of `front` that `point` does not dominate, and `point` unless one of them
    is as good in every objective."""
    if any(is_as_good(other, point) for other in front):
        return list(front)
    return [*(other for other in front if not is_as_good(point, other)), point]


def is_as_good(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether `first` is at least as good as `second` in every objective (rewards)."""
    return all(mine >= theirs for mine, theirs in zip(first, second, strict=True))
