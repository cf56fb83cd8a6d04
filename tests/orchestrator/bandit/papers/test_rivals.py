"""The rivals in the papers: IGP-UCB, epsilon-greedy, regularized evolution."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel, Linear, Matern32, Matern52
from bbkb.orchestrator.bandit.papers.epsilon_greedy import EpsilonGreedy
from bbkb.orchestrator.bandit.papers.igp_ucb import IGPUCB, InformationSchedule, farthest_first
from bbkb.orchestrator.bandit.papers.regularized_evolution import RegularizedEvolution
from bbkb.orchestrator.bandit.strategies.uniform import Uniform
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Wait
from tests.orchestrator.bandit.sequential_runs import arms_of, choice, run_sequentially, value

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


TWENTY = np.random.default_rng(0).random((20, 2))
CURIOUS = EpsilonGreedy(kernel=RBF(0.4), regularization=0.01, exploration=0.3, batch_size=10_000)


def after(strategy: EpsilonGreedy, arms: Sequence[int], seed: int = 0, failed: Sequence[int] = ()) -> Any:
    rng = np.random.default_rng(seed)
    rows = [Observation(arm, float(reward)) for arm, reward in zip(arms, value(TWENTY[arms]), strict=True)]
    rows += [Observation(arm, None) for arm in failed]
    return strategy.tell(strategy.init(TWENTY, rng), rows, rng)


@given(seed=st.integers(0, 10**6))
def test_pick_is_the_argmax_of_the_refitted_mean_without_exploration(seed: int) -> None:
    greedy = replace(CURIOUS, exploration=0.0)
    learned = np.random.default_rng(seed).integers(20, size=12).tolist()
    state = after(greedy, learned, seed)
    mean, variance = exact_posterior(greedy.kernel, TWENTY, state.pulls, 0.01)
    decision = greedy.ask(state, (3,), 5)
    assert arms_of(decision) == [int(np.argmax(mean))] * 5
    np.testing.assert_allclose(greedy.posterior(state).mean, mean, atol=1e-8)
    np.testing.assert_allclose(greedy.posterior(state).variance, variance, atol=1e-8)
    assert np.isnan(greedy.posterior(state).ucb).all()


@given(seed=st.integers(0, 10**6))
def test_greedy_pick_without_a_bound_is_the_best_arm_not_pending(seed: int) -> None:
    greedy = replace(CURIOUS, exploration=0.0, batch_size=None, mode="async")
    state = after(greedy, np.random.default_rng(seed).integers(20, size=12).tolist(), seed, failed=[7])
    order = np.argsort(-exact_posterior(greedy.kernel, TWENTY, state.pulls, 0.01)[0], kind="stable")
    best = [arm for arm in order.tolist() if arm != 7]
    assert arms_of(greedy.ask(state, (best[1],), 5)) == [best[0], *best[2:6]]
    # with every arm pending the best one is pulled again
    assert arms_of(greedy.ask(state, tuple(best), 2)) == [best[0]] * 2


def test_pull_is_uniform_with_probability_epsilon_and_greedy_otherwise() -> None:
    state = after(CURIOUS, [1, 5, 9, 13], failed=[7])
    greedy = int(state.available[np.argmax(state.belief.mean[state.available])])
    counts = np.bincount(arms_of(CURIOUS.ask(state, (), 2000)), minlength=20)
    assert counts[7] == 0
    others = np.delete(counts, [7, greedy])
    # a uniform arm: 2000 · 0.3 / 19 ≈ 32; five standard deviations are below 28
    assert abs(others - 2000 * 0.3 / 19).max() < 28
    # 2000 · (0.7 + 0.3 / 19) ≈ 1432; five standard deviations are below 101
    assert abs(counts[greedy] - 2000 * (0.7 + 0.3 / 19)) < 101


def test_pull_is_uniform_before_any_reward() -> None:
    greedy = replace(CURIOUS, exploration=0.0)
    for state in (greedy.init(TWENTY, np.random.default_rng(0)), after(greedy, [], failed=[3])):
        assert len(set(arms_of(greedy.ask(state, (), 200)))) == 20 - len(state.set_aside)


def test_finished_and_pending_pulls_advance_the_sequence_alike() -> None:
    uniform = replace(CURIOUS, exploration=1.0)
    state = uniform.init(TWENTY, np.random.default_rng(0))
    learned = uniform.tell(state, [Observation(1, 0.5), Observation(1, 0.5)], np.random.default_rng(0))
    assert arms_of(uniform.ask(learned, (), 9)) == arms_of(uniform.ask(state, (1, 1), 9))
    assert arms_of(uniform.ask(learned, (), 9)) != arms_of(uniform.ask(state, (), 9))


GRID = np.array(list(itertools.product(range(6), range(6))), float) * 0.1


def state_after(
    strategy: RegularizedEvolution, rows: Iterable[tuple[int, float | None]], arms: np.ndarray = GRID
) -> Any:
    rng = np.random.default_rng(0)
    return strategy.tell(strategy.init(arms, rng), [Observation(*row) for row in rows], rng)


def picks_of(strategy: RegularizedEvolution, state: Any, limit: int, pending: Sequence[int] = ()) -> list[int]:
    return arms_of(strategy.ask(state, pending, limit))


def steps(one: int, other: int) -> int:
    return int(abs(np.rint((GRID[one] - GRID[other]) * 10)).sum())


def test_first_population_is_random_and_their_children_are_not() -> None:
    strategy = RegularizedEvolution(batch_size=10_000, population=400, tournament=1)
    state = state_after(strategy, [(14, 0.5)] * 7)
    arms = picks_of(strategy, state, 600)
    assert len(set(arms[:393])) == 36  # P − 7 more
    assert {steps(14, arm) for arm in arms[393:]} == {1, 2}
    assert picks_of(strategy, state, 600, pending=[3] * 100)[:293] == arms[100:393]


def test_one_step_changes_of_the_winner_on_a_grid_are_equally_likely() -> None:
    strategy = RegularizedEvolution(batch_size=10_000, population=1, neighbours=1)
    children = picks_of(strategy, state_after(strategy, [(14, 1.0)]), 2000)
    counts = np.bincount(children, minlength=36)
    assert np.flatnonzero(counts).tolist() == [arm for arm in range(36) if steps(14, arm) == 1]
    # five standard deviations of a count with mean 500 are below 100
    assert abs(counts[counts > 0] - 500).max() < 100


@given(seed=st.integers(0, 10**6))
def test_child_is_among_the_nearest_candidates_that_may_be_chosen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arms, parent, count = rng.normal(size=(12, 3)), int(rng.integers(12)), int(rng.integers(1, 15))
    failed = rng.choice(np.delete(np.arange(12), parent), size=rng.integers(11), replace=False).tolist()
    strategy = RegularizedEvolution(batch_size=10_000, population=1, neighbours=count)
    state = state_after(strategy, [(parent, 0.0), *((arm, None) for arm in failed)], arms)
    order = sorted(set(range(12)) - {parent, *failed}, key=lambda arm: np.linalg.norm(arms[arm] - arms[parent]))
    assert set(picks_of(strategy, state, 200)) == set(order[:count])


def test_winner_of_a_tournament_has_the_largest_reward_drawn() -> None:
    # two distant arms with one neighbour each: the child identifies its parent
    arms = np.array([[0.0], [0.1], [9.0], [9.1]])
    strategy = RegularizedEvolution(batch_size=10_000, population=4, tournament=2, neighbours=1)
    children = picks_of(strategy, state_after(strategy, [(0, 1.0), (2, 0.0), (2, 0.0), (2, 0.0)], arms), 4000)
    better = children.count(1) / 4000
    # the best of four is drawn at least once in two draws with replacement: 1 − (3/4)² = 0.4375
    assert better == pytest.approx(0.4375, abs=0.04)
    assert set(children) == {1, 3}


def test_oldest_member_is_removed_whatever_its_reward() -> None:
    strategy = RegularizedEvolution(batch_size=10_000, population=3, tournament=50)
    state = state_after(strategy, [(0, 9.0), (1, 1.0), (2, None), (3, 2.0), (4, 3.0)])
    assert state.alive == ((1, 1.0), (3, 2.0), (4, 3.0))
    assert state.pulls.total == 4


def test_failed_pull_is_replaced_by_a_random_one_in_the_first_population() -> None:
    strategy = RegularizedEvolution(batch_size=10_000, population=50, neighbours=1)
    state = state_after(strategy, [(14, 1.0)] * 40 + [(35, None)] * 60)
    far = [arm for arm in picks_of(strategy, state, 10) if steps(14, arm) > 1]
    assert far  # all ten at one step from arm 14 would have probability (4/35)^10
    assert {steps(14, arm) for arm in picks_of(strategy, state, 200, pending=[0] * 10)} == {1}


def test_last_candidate_is_its_own_child() -> None:
    strategy = RegularizedEvolution(batch_size=10_000, population=1)
    state = state_after(strategy, [(0, 1.0), (1, None)], np.zeros((2, 1)))
    assert picks_of(strategy, state, 3) == [0, 0, 0]


def test_evolution_beats_random_pulls_on_a_smooth_problem() -> None:
    def mean_reward(strategy: Any) -> float:
        state, rng = strategy.init(GRID, np.random.default_rng(5)), np.random.default_rng(0)
        for _ in range(60):
            arms = picks_of(strategy, state, 4)
            state = strategy.tell(state, [Observation(arm, float(GRID[arm].sum())) for arm in arms], rng)
        return float(state.pulls.reward_sums.sum() / state.pulls.total)

    evolved = mean_reward(RegularizedEvolution(batch_size=10_000, population=20, tournament=10, neighbours=4))
    # uniform arms earn 0.5 ± 0.016; the best arm 1
    assert evolved > mean_reward(Uniform()) + 0.2


def test_beyond_the_first_population_no_more_than_a_batch_is_pending() -> None:
    strategy = RegularizedEvolution(population=5, batch_size=3)
    state = strategy.init(GRID, np.random.default_rng(0))
    assert len(picks_of(strategy, state, 99)) == 5
    assert isinstance(strategy.ask(state, (0,) * 5, 9), Wait)
    state = state_after(strategy, [(arm, 0.1 * arm) for arm in range(5)])
    assert len(picks_of(strategy, state, 99)) == 3
    assert len(picks_of(strategy, state, 99, pending=[7])) == 2
    assert isinstance(strategy.ask(state, (7, 8, 9), 9), Wait)


def test_component_mutation_changes_one_edge_or_one_operation() -> None:
    """Cells with two features of one scale and two of another, of which one candidate has no relative."""
    cells = np.array([row for row in itertools.product((0.0, 1.0), repeat=4) if row != (1.0, 1.0, 0.0, 0.0)])
    cells = cells * (1 / 3, 1 / 3, 1 / 2, 1 / 2)
    strategy = RegularizedEvolution(batch_size=10_000, population=1, mutation="component")
    children = picks_of(strategy, state_after(strategy, [(0, 1.0)], cells), 400)
    assert set(children) == {arm for arm in range(15) if np.count_nonzero(cells[arm] != cells[0]) == 1}
    alone = np.vstack((cells, np.full((1, 4), 7.0)))
    assert picks_of(strategy, state_after(strategy, [(15, 1.0)], alone), 1)[0] != 15
