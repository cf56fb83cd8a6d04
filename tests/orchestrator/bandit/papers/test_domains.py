"""`papers.domains`: the binary tree of boxes over the candidates, and the state of GP-ThreDS."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.papers.domains import FINEST, Box, BoxedArms, Visit
from bbkb.orchestrator.bandit.papers.gp_threds import GPThreDS
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.strategy import Observation

EVERY_ARM = np.arange(30)


def random_arms(seed: int) -> BoxedArms:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    arms = rng.normal(size=(30, d)) * 10.0 ** rng.integers(-2, 3, size=d)
    arms[3] = arms[7]
    return BoxedArms(arms)


def halve(boxed: BoxedArms, generations: int) -> list[Box]:
    boxes = [Box.unit(boxed.dimension)]
    for _ in range(generations):
        boxes = [half for box in boxes for half in boxed.halves(box)]
    return boxes


@given(seed=st.integers(0, 10**6), generations=st.integers(0, 6))
def test_boxes_of_a_generation_partition_the_domain(seed: int, generations: int) -> None:
    boxed = random_arms(seed)
    boxes = halve(boxed, generations)
    points = np.vstack(
        (np.random.default_rng(seed).random((50, boxed.dimension)), boxed.coordinates, [[1.0] * boxed.dimension])
    )
    assert (np.sum([box.contains(points) for box in boxes], axis=0) == 1).all()
    volumes = [np.prod(np.subtract(box.high, box.low)) for box in boxes]
    assert sum(volumes) == 1.0
    assert sorted(arm for box in boxes for arm in boxed.inside(box, EVERY_ARM)) == list(range(30))
    edges = {tuple(boxed.half_edges(box)) for box in boxes}
    assert len(edges) == 1, "boxes of one generation are congruent, bit for bit"


def test_longest_edge_is_halved_in_the_units_of_the_features() -> None:
    boxed = BoxedArms(np.array([[0.0, 5.0, 1.0], [1.0, 8.0, 1.0]]))
    lower, upper = boxed.halves(Box.unit(3))
    assert (lower.low, lower.high) == ((0, 0, 0), (1, 0.5, 1))
    assert (upper.low, upper.high) == ((0, 0.5, 0), (1, 1, 1))
    third = boxed.halves(boxed.halves(lower)[0])[0]  # edges 3, 1.5, then 0.75: only then the first is the longest
    assert third.high == (0.5, 0.25, 1)


@given(seed=st.integers(0, 10**6), arm=st.integers(0, 29), generations=st.integers(0, 60))
def test_leaf_is_the_descendant_with_the_arm_and_a_point_is_not_halved(seed: int, arm: int, generations: int) -> None:
    boxed = random_arms(seed)
    leaf = boxed.leaf(Box.unit(boxed.dimension), arm, generations)
    assert arm in boxed.inside(leaf, EVERY_ARM)
    assert leaf in halve(boxed, generations) if generations < 4 and not boxed.is_point(leaf) else True
    if generations == 60:
        places = np.unique(boxed.arms[boxed.inside(leaf, EVERY_ARM)], axis=0)
        assert boxed.is_point(leaf)
        assert len(places) == 1


@given(seed=st.integers(0, 10**6), points=st.integers(1, 40))
def test_grid_equals_snapping_its_points_one_by_one(seed: int, points: int) -> None:
    boxed = random_arms(seed)
    box = boxed.leaf(Box.unit(boxed.dimension), 0, 1)
    inside = boxed.inside(box, EVERY_ARM)
    grid = boxed.grid(box, points, EVERY_ARM)
    if len(inside) <= points:
        assert grid.tolist() == inside.tolist()
        return
    d, edges = boxed.dimension, boxed.half_edges(box)
    even = max(n for n in range(1, points + 1) if n**d <= points)
    # the least number of axes, the longest first, that are cut once more
    odd_axes = next(count for count in range(d + 1) if even ** (d - count) * (even + 1) ** count >= points)
    longest = sorted(range(d), key=lambda axis: -edges[axis])[:odd_axes]
    cells = [even + (axis in longest) for axis in range(d)]
    low, high = np.array(box.low), np.array(box.high)
    snapped = set()
    for corner in np.ndindex(*cells):
        center = low + (np.array(corner) + 0.5) / cells * (high - low)
        distances = [np.linalg.norm((boxed.coordinates[arm] - center) * boxed.spans) for arm in inside]
        snapped.add(int(inside[np.argmin(distances)]))
    assert set(grid.tolist()) == snapped


@pytest.mark.parametrize(
    ("top", "points", "cells"),
    [
        ([1.0] * 2, 400, (20, 20)),
        ([1.0] * 2, 441, (21, 21)),
        ([1.0] * 5, 400, (4, 4, 3, 3, 3)),
        ([1.0] * 5, 1536, (5, 5, 4, 4, 4)),
        ([1.0, 0.0, 2.0], 6, (2, 1, 3)),
    ],
)
def test_grid_has_the_requested_cells_as_evenly_as_possible(
    top: list[float], points: int, cells: tuple[int, ...]
) -> None:
    arms = BoxedArms(np.array([[0.0] * len(top), top]))
    assert arms._cells(Box.unit(len(top)), points) == cells


def test_arm_nearest_to_the_center_is_found_and_ties_go_to_the_first() -> None:
    boxed = BoxedArms(np.array([[0.0], [4.0], [6.0], [10.0], [4.0]]))
    root = Box.unit(1)
    assert boxed.nearest(root, np.arange(5)) == 1
    assert boxed.nearest(root, np.array([0, 2, 3])) == 2
    assert boxed.nearest(boxed.halves(root)[1], np.array([2, 3])) == 2


def test_equal_arms_are_one_point() -> None:
    boxed = BoxedArms(np.full((4, 2), 3.0))
    root = Box.unit(2)
    assert boxed.is_point(root)
    assert boxed.leaf(root, 2, 5) == root
    assert boxed.grid(root, 9, np.arange(4)).tolist() == [0, 1, 2, 3]


def test_halving_ends_at_the_resolution_of_the_coordinates() -> None:
    boxed = BoxedArms(np.array([[0.0], [1.0]]))
    box = Box.unit(1)
    while boxed.can_halve(box):
        box = boxed.halves(box)[0]
    assert box.high[0] - box.low[0] == FINEST


ROOT = Box.unit(1)


def visit_of(*arms: int) -> Visit:
    """The beginning of a test on these arms."""
    return Visit(0, (ROOT,), "root", (), ROOT, np.array(arms), Pulls.none(9))


def test_visit_learns_rewards_of_its_grid_alone_and_drops_failed_arms() -> None:
    visit = visit_of(1, 4, 6).observe([4, 4, 2], [1.0, 2.0, 8.0], [6, 7])
    assert visit.grid.tolist() == [1, 4]
    assert visit.pulls.arms.tolist() == [4]
    assert (visit.pulls.total, visit.since) == (2, 2)
    assert visit.pulls.reward_sums[4] == 3.0


def test_visits_and_states_are_equal_when_their_arrays_are() -> None:
    one, other = (visit_of(1, 4) for _ in range(2))
    assert one == other
    assert one != replace(other, since=1)
    states = [GPThreDS().init(np.arange(9.0)[:, None], np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert states[0] == states[1]
    assert states[0] != states[2]


def test_drawn_first_arm_is_on_the_grid_and_varies_from_round_to_round() -> None:
    state = GPThreDS().init(np.arange(9.0)[:, None], np.random.default_rng(0))
    state = state.observe([Observation(3, None)])
    first_arms = [replace(state, round=number).first_arm("random") for number in range(60)]
    assert set(first_arms) == set(range(9)) - {3}
    assert first_arms == [replace(state, round=number).first_arm("random") for number in range(60)]


def test_first_arm_is_the_available_one_nearest_to_the_center() -> None:
    state = GPThreDS().init(np.arange(9.0)[:, None], np.random.default_rng(0))
    assert state.first_arm("centre") == 4
    assert state.observe([Observation(4, None)]).first_arm("centre") == 3
