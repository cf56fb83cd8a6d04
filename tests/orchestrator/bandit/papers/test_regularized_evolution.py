"""`papers.regularized_evolution`: tournaments in a population without its oldest members."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.papers.regularized_evolution import RegularizedEvolution
from bbkb.orchestrator.bandit.strategies.uniform import Uniform
from bbkb.orchestrator.bandit.strategy import Observation, Wait
from tests.orchestrator.bandit.sequential_runs import arms_of

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
