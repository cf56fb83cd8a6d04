"""`bbkb.orchestrator.campaign.results`: The hypervolume of a front: the volume between its points
and a reference point that is worse than all of them.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.results import hypervolume, is_as_good, with_point

small = st.integers(-1, 5).map(float)


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_hypervolume_equals_the_dominated_share_of_random_points(objectives: int) -> None:
    rng = np.random.default_rng(objectives)
    points = rng.random((12, objectives))
    random_points = rng.random((40_000, objectives))
    is_below: np.ndarray = np.all(random_points[:, None, :] < points[None], axis=2)
    covered = is_below.any(axis=1).mean()
    assert hypervolume(points.tolist(), [0.0] * objectives) == pytest.approx(covered, abs=0.01)


@given(st.integers(1, 4).flatmap(lambda size: st.lists(st.tuples(*[small] * size), max_size=5)))
def test_hypervolume_of_whole_points_is_the_number_of_unit_cells_below_them(points: list[tuple[float, ...]]) -> None:
    size = len(points[0]) if points else 2
    cells = itertools.product(range(5), repeat=size)
    below = sum(
        any(all(cell < value for cell, value in zip(corner, point, strict=True)) for point in points)
        for corner in cells
    )
    assert hypervolume(points, [0.0] * size) == pytest.approx(below)


def test_hypervolume_of_many_objectives_is_estimated_and_always_equal() -> None:
    boxes = np.where(np.eye(6) > 0, 1.0, 0.9)  # each is longer along another axis
    exact = 0.9**6 + 6 * 0.1 * 0.9**5
    estimates = {hypervolume(boxes.tolist(), [0.0] * 6) for _ in range(3)}
    assert len(estimates) == 1
    assert estimates.pop() == pytest.approx(exact, rel=0.02)


def test_hypervolume_shifts_with_the_reference() -> None:
    assert hypervolume([(3.0, 2.0), (2.0, 4.0)], (1.0, 1.0)) == pytest.approx(2 * 1 + 1 * 2)
    assert hypervolume([(3.0, 1.0)], (1.0, 1.0)) == 0.0
    assert hypervolume([], (0.0, 0.0)) == 0.0


@given(st.lists(st.tuples(small, small, small), max_size=12))
def test_front_has_the_points_that_no_other_dominates(points: list[tuple[float, ...]]) -> None:
    front: list[tuple[float, ...]] = []
    for point in points:
        front = with_point(front, point)
    best = {point for point in points if not any(is_as_good(other, point) and other != point for other in points)}
    assert set(front) == best
    assert len(front) == len(best)
