"""`papers.shrinking`: the state of GP-ThreDS."""

from dataclasses import replace

import numpy as np

from bbkb.orchestrator.bandit.papers.domains import Box, Epoch, Visit
from bbkb.orchestrator.bandit.papers.gp_threds import GPThreDS
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.strategy import Observation

ROOT = Box.unit(1)


def visit_of(*arms: int) -> Visit:
    """The beginning of a test on these arms."""
    return Visit(0, (ROOT,), "root", (), ROOT, np.array(arms), Pulls.none(9))


def test_threshold_is_the_middle_of_the_interval() -> None:
    assert Epoch(1, 0.5, 1.5, 1, (ROOT,)).threshold == 1.0


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
