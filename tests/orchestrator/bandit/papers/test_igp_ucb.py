"""`papers.igp_ucb`: exact upper bounds on a grid that grows (Chowdhury and Gopalan 2017)."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel, Linear, Matern32, Matern52
from bbkb.orchestrator.bandit.papers.igp_ucb import IGPUCB, InformationSchedule, farthest_first
from bbkb.orchestrator.bandit.strategy import Choose, Observation
from tests.orchestrator.bandit.sequential_runs import choice, run_sequentially, value

ARMS = np.random.default_rng(0).random((60, 2))
NOISY = IGPUCB(kernel=RBF(0.3), regularization=0.04, noise_scale=0.2, delta=0.01, initial_points=10, final_points=40)
play = partial(run_sequentially, ARMS, noise=0.2, fails=lambda arm: arm % 11 == 4)  # every eleventh arm fails


@given(seed=st.integers(0, 10**6), schedule=st.sampled_from(["log", "sqrt"]))
def test_pick_is_the_argmax_over_the_grid_under_a_dense_gaussian_process(
    seed: int, schedule: InformationSchedule
) -> None:
    strategy = replace(NOISY, information=schedule)
    order = farthest_first(ARMS, 40)
    pulled: list[int] = []
    rewards: list[float] = []
    rng = np.random.default_rng(seed)
    state = strategy.init(ARMS, rng)
    for t in range(1, 25):
        (pick,) = choice(strategy.ask(state, (), 3)).picks
        if t > 1:
            cross: np.ndarray = RBF(0.3).cross(ARMS, ARMS[pulled])  # one row a pull, repeated arms included
            weights = np.linalg.solve(cross[pulled] + 0.04 * np.eye(t - 1), cross.T)
            mean, deviation = weights.T @ rewards, np.sqrt(1 - np.einsum("ap,pa->a", cross, weights))
            gamma = math.log(t - 1) if schedule == "log" else math.sqrt(t - 1)
            beta = 0.5 + 0.2 * math.sqrt(2 * (gamma + 1 + math.log(100)))
            grid = order[: min(40, int((math.sqrt(10) + t - 1) ** 2))]
            ucb = mean + beta * deviation
            assert pick.arm in grid
            assert ucb[pick.arm] >= ucb[grid].max() - 1e-9
            assert pick.mean + pick.width * math.sqrt(pick.variance) == pytest.approx(ucb[pick.arm])
            np.testing.assert_allclose(strategy.posterior(state).ucb, ucb, atol=1e-8)
        pulled.append(pick.arm)
        rewards.append(float(value(ARMS[[pick.arm]])[0] + 0.2 * rng.standard_normal()))
        state = strategy.tell(state, [Observation(pick.arm, rewards[-1])], rng)


def test_grids_are_nested_and_grow_without_failed_arms() -> None:
    sizes: list[int] = []
    before: set[int] = set()
    for state, pick in play(NOISY, 40):
        grid = NOISY.grid(state)
        assert grid.tolist() == sorted(grid)
        failed = set(state.set_aside.tolist())
        assert not failed & set(grid.tolist())
        assert before - failed <= set(grid.tolist())
        assert pick.arm in grid or math.isnan(pick.mean)
        sizes.append(len(grid))
        before = set(grid.tolist())
    assert (sizes[0], sizes[-1]) == (10, 40)
    assert len(set(sizes)) > 3
    assert len(failed) > 0


@pytest.mark.parametrize(
    ("growth", "sizes"), [(0.0, [10, 10, 10]), (0.25, [10, 15, 40]), (1.0, [10, 37, 40]), (900.0, [10, 40, 40])]
)
def test_grids_side_grows_with_every_pull(growth: float, sizes: list[int]) -> None:
    strategy, rng = replace(NOISY, grid_growth=growth), np.random.default_rng(0)
    start = strategy.init(ARMS, rng)
    for pulls, size in zip((0, 3, 15), sizes, strict=True):
        state = strategy.tell(start, [Observation(1, 0.5)] * pulls, rng)
        assert len(strategy.grid(state)) == size


def test_default_grid_is_that_of_the_released_experiment() -> None:
    strategy, rng = IGPUCB(), np.random.default_rng(0)
    start = strategy.init(np.random.default_rng(1).random((7000, 2)), rng)
    for pulls in (0, 1, 10, 59, 60, 61, 300):
        state = strategy.tell(start, [Observation(1, 0.5)] * pulls, rng)
        assert len(strategy.grid(state)) == min(20 + pulls, 80) ** 2


def test_grid_has_all_candidates_if_they_are_few() -> None:
    for points in (60, 400):
        strategy = replace(NOISY, initial_points=points, final_points=6400)
        assert strategy.grid(strategy.init(ARMS, np.random.default_rng(0))).tolist() == list(range(60))


def test_next_arms_replace_a_grid_that_failed_entirely() -> None:
    strategy, rng = replace(NOISY, initial_points=5, final_points=5), np.random.default_rng(0)
    state = strategy.init(ARMS, rng)
    failed = [Observation(int(arm), None) for arm in {*strategy.grid(state).tolist(), *state.initial}]
    state = strategy.tell(state, failed, rng)
    assert len(strategy.grid(state)) == 5
    assert isinstance(strategy.ask(state, (), 1), Choose)


def test_information_schedule_follows_the_kernel_unless_it_is_given() -> None:
    rng = np.random.default_rng(0)
    expected: list[tuple[AnyKernel, InformationSchedule]]
    expected = [(RBF(), "log"), (Linear(), "log"), (Matern32(), "sqrt"), (Matern52(), "sqrt")]
    for kernel, schedule in expected:
        by_kernel, given_one = replace(NOISY, kernel=kernel), replace(NOISY, kernel=kernel, information=schedule)
        state = by_kernel.tell(by_kernel.init(ARMS, rng), [Observation(1, 0.5)] * 50, rng)
        assert by_kernel.width_at(state) == given_one.width_at(state)
    assert replace(NOISY, information="sqrt").width_at(state) > replace(NOISY, information="log").width_at(state)


@given(seed=st.integers(0, 10**6))
def test_prefix_continues_with_the_arm_farthest_from_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arms = rng.integers(5, size=(30, 2)) / 4.0  # ties and duplicates
    order = farthest_first(arms, 30)
    assert sorted(order) == list(range(30))
    distances = cdist(arms, arms)
    for size in range(1, 30):
        gap = distances[order[:size]].min(axis=0)
        gap[order[:size]] = -1.0
        assert order[size] == np.argmax(gap), "the lowest index among equals"


def test_prefixes_of_a_regular_grid_are_coarser_grids() -> None:
    side = np.linspace(0, 1, 17)
    arms = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    order = farthest_first(arms, len(arms))
    for coarse in (2, 3, 5, 9):
        corners = np.linspace(0, 1, coarse)
        expected = np.stack(np.meshgrid(corners, corners), axis=-1).reshape(-1, 2)
        assert {tuple(arm) for arm in arms[order[: coarse**2]]} == {tuple(point) for point in expected}


@pytest.mark.parametrize("count", [1, 4, 12, 99])
def test_beyond_the_count_arms_follow_by_index(count: int) -> None:
    arms = np.random.default_rng(0).random((12, 2))
    order, whole = farthest_first(arms, count), farthest_first(arms, 12)
    assert order[:count].tolist() == whole[:count].tolist()
    assert order[count:].tolist() == sorted(whole[count:])
    assert not order.flags.writeable
