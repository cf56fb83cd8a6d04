"""Boxes, and adaptive discretization."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel, Linear, Matern52
from bbkb.orchestrator.bandit.papers.adaptive_discretization import AdaptiveDiscretization, CellState, TreeCell
from bbkb.orchestrator.bandit.papers.boxes import FINEST, Box, BoxedArms
from bbkb.orchestrator.bandit.papers.gp_threds import GPThreDS, Visit
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.sequential_runs import choice, value

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


ARMS = np.random.default_rng(0).random((50, 2))
NOISY = AdaptiveDiscretization(RBF(0.4), norm_bound=1.0, noise_scale=0.05)


def play(strategy: AdaptiveDiscretization, rounds: int, seed: int = 0, failing: float = 0.0) -> Iterator[Any]:
    """Return triples of a state, the arm pulled there and the next state; some evaluations fail."""
    rng = np.random.default_rng(seed)
    state = strategy.init(ARMS, rng)
    for _ in range(rounds):
        decision = choice(strategy.ask(state, (), 3))
        (pick,) = decision.picks
        noisy = float(value(ARMS[[pick.arm]])[0] + 0.1 * rng.standard_normal())
        after = strategy.tell(state, [Observation(pick.arm, None if rng.random() < failing else noisy)], rng)
        yield state, pick, after
        state = after


def variation(strategy: AdaptiveDiscretization, box: Box) -> float:
    """V of a cell: the kernel distance from its center to its upper corner."""
    low, high = (np.array(end) * np.ptp(ARMS, axis=0) for end in (box.low, box.high))
    pair = np.array([(low + high) / 2, high])
    gram = strategy.kernel.cross(pair, pair)
    return strategy.norm_bound * math.sqrt(max(gram[0, 0] + gram[1, 1] - 2 * gram[0, 1], 0.0))


def bounds(strategy: AdaptiveDiscretization, state: CellState) -> tuple[np.ndarray, np.ndarray]:
    """Dense μ + β σ and β σ of every arm."""
    mean, variance = exact_posterior(strategy.kernel, ARMS, state.pulls, strategy.regularization)
    n = state.pulls.total
    gamma = math.sqrt(n) if isinstance(strategy.kernel, Matern52) else math.log(max(n, 1))
    beta = strategy.norm_bound + strategy.noise_scale * math.sqrt(2 * (gamma + 1 + math.log(1 / strategy.delta)))
    deviation = np.sqrt(variance * strategy.regularization)
    return mean + beta * deviation, beta * deviation


def parent_box(state: CellState, cell: TreeCell) -> Box:
    box = Box.unit(2)
    for _ in range(cell.depth - 1):
        box = next(half for half in state.boxed.halves(box) if half.contains(np.array([cell.box.low]))[0])
    return box


def index(strategy: AdaptiveDiscretization, state: CellState, cell: TreeCell, upper: np.ndarray) -> float:
    cell_bound = variation(strategy, cell.box)
    if cell.parent is None:
        return float(upper[cell.arm] + cell_bound)
    return float(min(upper[cell.arm], upper[cell.parent] + variation(strategy, parent_box(state, cell))) + cell_bound)


@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("kernel", [RBF(0.4), Matern52(0.5)])
def test_pick_is_the_brute_force_cell_of_the_formula(kernel: AnyKernel, seed: int) -> None:
    strategy = AdaptiveDiscretization(kernel, norm_bound=1.0, noise_scale=0.05)
    for state, pick, _ in play(strategy, 8, seed):
        upper, half_width = bounds(strategy, state)
        scores = [index(strategy, state, cell, upper) for cell in state.cells]
        np.testing.assert_allclose(strategy.indices(state), scores, atol=1e-8)
        best = state.cells[int(np.argmax(strategy.indices(state)))]
        assert pick.arm == best.arm
        assert max(scores) == pytest.approx(index(strategy, state, best, upper))
        assert half_width[pick.arm] > variation(strategy, best.box) - 1e-9, "it would have been split"
        assert pick.width * math.sqrt(pick.variance) == pytest.approx(half_width[pick.arm])


def test_best_cell_is_split_exactly_when_its_width_is_within_its_variation() -> None:
    splits = 0
    for state, pick, after in play(NOISY, 60):
        reward = float((after.pulls.reward_sums - state.pulls.reward_sums)[pick.arm])
        step = state.observe([Observation(pick.arm, reward)])
        while True:  # the paper's loop: one split at a time
            upper, half_width = bounds(NOISY, step)
            best = int(np.argmax([index(NOISY, step, cell, upper) for cell in step.cells]))
            if half_width[step.cells[best].arm] > variation(NOISY, step.cells[best].box):
                break
            step, splits = step.split([best]), splits + 1
        assert step.cells == after.cells
    assert splits > 10


def test_chaining_constants_are_those_of_the_released_experiment() -> None:
    strategy = AdaptiveDiscretization(RBF(0.2), constants="chaining", horizon=1000)
    corners = np.vstack((ARMS, [[0.0, 0.0], [1.0, 1.0]]))
    state = strategy.init(corners, np.random.default_rng(0))
    assert strategy.width(state) / math.sqrt(strategy.regularization) == pytest.approx(7.17, abs=0.01)
    union = 2 * math.log(2 * 4 * math.pi**2 / 6) + 2 * math.log(1000**2 * math.pi**2 / 6)
    last = 1 + 2.7 * math.sqrt(2 * math.log(2))
    expected = [
        4 * 2 ** (-h / 2) * (math.sqrt(4 + union + h * math.log(2) + 8 * math.log(2 ** (h / 2) / 0.2)) + last)
        for h in range(1 + max(cell.depth for cell in state.cells))
    ]
    np.testing.assert_allclose(strategy.variations(state), expected)


def test_cell_is_at_most_log_t_halvings_deep_with_chaining_constants() -> None:
    strategy = AdaptiveDiscretization(RBF(0.4), constants="chaining", horizon=100)
    depths = {cell.depth for _, _, after in play(strategy, 60) for cell in after.cells}
    assert max(depths) == 6


@given(seed=st.integers(0, 10**6), failing=st.sampled_from([0.0, 0.3]))
def test_cells_partition_the_domain_and_hold_their_arms(seed: int, failing: float) -> None:
    every = np.arange(50)
    *_, (_, _, state) = play(NOISY, 20, seed, failing)
    available = np.setdiff1d(every, state.set_aside)
    arms_of_cells = [arm for cell in state.cells for arm in state.boxed.inside(cell.box, available).tolist()]
    assert sorted(arms_of_cells) == available.tolist()
    points = np.random.default_rng(seed).random((200, 2))
    assert (sum(cell.box.contains(points).astype(int) for cell in state.cells) <= 1).all()
    for cell in state.cells:
        low, high = np.array(cell.box.low), np.array(cell.box.high)
        inside = state.boxed.inside(cell.box, available)
        distances = np.linalg.norm((state.boxed.coordinates[inside] - (low + high) / 2) * state.boxed.spans, axis=1)
        assert distances[inside.tolist().index(cell.arm)] == pytest.approx(distances.min())
        assert np.prod(high - low) == 2.0**-cell.depth


def test_splitting_puts_both_halves_in_the_cells_place_and_drops_an_empty_one() -> None:
    strategy = AdaptiveDiscretization(variation=0.0)
    state = strategy.init(np.array([[0.0, 0.0], [0.1, 0.1], [1.0, 0.2]]), np.random.default_rng(0))
    (root,) = state.cells
    both = state.split([0])
    assert [(cell.depth, cell.arm, cell.parent) for cell in both.cells] == [(1, 1, root.arm), (1, 2, root.arm)]
    alone = both.split([1])
    assert [(cell.depth, cell.arm) for cell in alone.cells] == [(1, 1), (2, 2)]
    assert alone.splits == ((0,), (1,))
    lost = alone.observe([Observation(2, None)])
    assert [cell.arm for cell in lost.cells] == [1]
    assert [cell.arm for cell in both.observe([Observation(1, None)]).cells] == [0, 2]


def test_tree_is_deep_near_the_maximum_and_the_last_pulls_are_good() -> None:
    played = list(play(NOISY, 120))
    _, _, state = played[-1]
    best = int(value(ARMS).argmax())
    (around,) = [cell for cell in state.cells if len(state.boxed.inside(cell.box, np.array([best])))]
    assert around.depth > np.mean([cell.depth for cell in state.cells])
    regrets = value(ARMS).max() - value(ARMS[[pick.arm for _, pick, _ in played]])
    assert regrets[-30:].mean() < 0.3 * (value(ARMS).max() - value(ARMS).mean())


def test_zero_variation_never_splits_and_an_arm_that_is_certain_does_not_split_endlessly() -> None:
    flat = AdaptiveDiscretization(variation=0.0)
    assert [len(state.cells) for _, _, state in play(flat, 5)] == [1] * 5
    certain = AdaptiveDiscretization(Linear()).init(np.zeros((3, 1)), np.random.default_rng(0))  # k(x, x) = 0
    assert len(certain.cells) == 1
    assert certain.cells[0].depth == 40
    assert choice(AdaptiveDiscretization(Linear()).ask(certain, (), 1)).picks[0].arm == 0
