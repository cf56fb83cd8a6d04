"""Failed evaluations teach the calibrated model: a region that fails is left."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.goals import SINGLE, Goals
from bbkb.orchestrator.bandit.start.warm_start import RandomStart
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.decisions import arms_of

POINTS = np.random.default_rng(5).random((300, 2))
Fails = Callable[[int], bool]


def is_in_the_better_half(arm: int) -> bool:
    return bool(POINTS[arm, 0] > 0.5)


def observation(arm: int, fails: Fails, goals: Goals = SINGLE) -> Observation:
    reward = float(np.sin(2.0 * POINTS[arm, 0]) - (POINTS[arm, 1] - 0.4) ** 2)
    return Observation(arm, None if fails(arm) else reward, (reward,) * goals.further)


def search(pulls: int, fails: Fails, goals: Goals = SINGLE, **options: Any) -> tuple[list[int], Any]:
    """Return the arms pulled, four at a time, and the state after them."""
    strategy = BBKB(**with_preset(BBKB, options))
    state = strategy.init(Arms.of(POINTS, repeats=False).with_goals(goals), np.random.default_rng(1))
    pulled: list[int] = []
    while len(pulled) < pulls:
        arms = arms_of(strategy.ask(state, (), 4))
        observations = [observation(arm, fails, goals) for arm in arms]
        after = strategy.tell(state, observations, np.random.default_rng([2, len(pulled)]))
        assert strategy.restore(state, observations, strategy.recorded(after)) == after
        pulled, state = [*pulled, *arms], after
    return pulled, state


@pytest.mark.parametrize("goals", [SINGLE, Goals(2), Goals(1, 1)])
def test_failing_region_is_left_although_rewards_rise_towards_it(goals: Goals) -> None:
    pulled, state = search(64, is_in_the_better_half, goals)
    failed = [is_in_the_better_half(arm) for arm in pulled]
    assert sum(failed[32:]) <= 14  # 16 are expected by chance, and nearly all from a search that does not learn
    assert state.pulls.total == failed.count(False) < state.evidence.total <= len(pulled)


def test_isolated_failures_only_set_their_arms_aside() -> None:
    lonely = set(range(0, 300, 30))
    _, state = search(64, lambda arm: arm in lonely)
    assert state.evidence is state.pulls
    assert set(state.set_aside.tolist()) <= lonely


def test_published_algorithm_learns_from_rewards_only() -> None:
    _, state = search(24, is_in_the_better_half, preset="paper", warm_start=RandomStart(16))
    assert state.evidence is state.pulls


def test_failures_have_no_comparison_while_everything_fails() -> None:
    pulled, state = search(24, lambda arm: True)
    assert state.evidence.total == 0
    assert len(set(pulled)) == len(pulled)


def test_arm_that_failed_and_succeeds_later_counts_as_a_success() -> None:
    strategy = BBKB(**with_preset(BBKB, {}))
    state = strategy.init(Arms.of(POINTS), np.random.default_rng(1))
    failed = np.argsort(((POINTS - POINTS[9]) ** 2).sum(axis=1))[:8].tolist()  # arm 9 and those around it
    others = [arm for arm in range(20) if arm not in failed][:2]
    observations = [
        *(Observation(arm, None) for arm in failed),
        Observation(others[0], 0.5),
        Observation(others[1], 0.25),
    ]
    state = strategy.tell(state, observations, np.random.default_rng(2))
    assert (state.pulls.counts[9], state.evidence.counts[9], state.evidence.reward_sums[9]) == (0, 1, 0.25)
    state = strategy.tell(state, [Observation(9, 2.0)], np.random.default_rng(3))
    assert (state.pulls.counts[9], state.evidence.counts[9], state.evidence.reward_sums[9]) == (1, 1, 2.0)
