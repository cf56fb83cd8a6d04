"""Contract rules for every strategy in the table that compare two runs of one campaign."""

from typing import Any

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arms import as_arms
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Strategy, Wait
from tests.orchestrator.bandit.sequential_runs import arms_of, choice

ARMS = np.random.default_rng(0).random((40, 2))
BATCHED = [name for name, strategy in STRATEGIES.items() if not getattr(strategy, "is_sequential", False)]
# batches longer than one, early
CHEAP: dict[str, dict[str, Any]] = {
    "bbkb": {"regularization": 1.0},
    "gp_bucb": {"regularization": 1.0},
    "epsilon_greedy": {"batch_size": 6},
    "igp_ucb": {"initial_points": 10, "final_points": 30},
    "pbt": {"population": 40},
}


def reward(arm: int) -> float:
    return float(np.sin(5 * ARMS[arm, 0]) + ARMS[arm, 1])


def strategy_and_state(name: str, rounds: int) -> tuple[Strategy[Any], Any]:
    strategy = STRATEGIES[name](**CHEAP.get(name, {}))
    state = strategy.init(as_arms(ARMS), np.random.default_rng([7, 0]))
    for number in range(rounds):
        decision = choice(strategy.ask(state, (), 4))
        observations = [Observation(pick.arm, reward(pick.arm)) for pick in decision.picks]
        state = strategy.tell(state, observations, np.random.default_rng([7, 1, number]))
    return strategy, state


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_failures_learned_along_with_rewards_only_set_their_arms_aside(name: str) -> None:
    strategy, state = strategy_and_state(name, 6)
    arms = arms_of(strategy.ask(state, (), 4))
    failed = [arm for arm in range(40) if arm not in arms][:3]
    good = [Observation(arm, reward(arm)) for arm in arms]
    clean = strategy.tell(state, good, np.random.default_rng(8))
    mixed = strategy.tell(state, [*(Observation(arm, None) for arm in failed), *good], np.random.default_rng(8))
    assert mixed.pulls == clean.pulls
    assert mixed.dictionary.tolist() == clean.dictionary.tolist()
    np.testing.assert_array_equal(strategy.posterior(mixed).mean, strategy.posterior(clean).mean)
    np.testing.assert_array_equal(strategy.posterior(mixed).variance, strategy.posterior(clean).variance)
    following = choice(strategy.ask(mixed, (), 9))
    assert not {pick.arm for pick in following.picks} & set(failed)


@pytest.mark.parametrize("name", BATCHED)
def test_batched_strategy_keeps_several_workers_busy_at_some_time(name: str) -> None:
    assert any(
        len(choice(strategy.ask(state, (), 5)).picks) > 1
        for strategy, state in (strategy_and_state(name, rounds) for rounds in (0, 6))
    )


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_reward_of_an_arm_that_had_failed_before_is_learned_like_any_other(name: str) -> None:
    strategy, state = strategy_and_state(name, 6)
    arms = arms_of(strategy.ask(state, (), 4))
    state = strategy.tell(state, [Observation(arm, None) for arm in arms], np.random.default_rng(8))
    observations = [Observation(arm, reward(arm)) for arm in arms]
    assert isinstance(strategy.ask(state, arms, 4), Choose | Wait)
    after = strategy.tell(state, observations, np.random.default_rng(9))
    assert after.pulls == state.pulls.add(arms, [reward(arm) for arm in arms])
    restored = strategy.restore(state, observations, strategy.recorded(after))
    assert strategy.ask(restored, (), 3) == strategy.ask(after, (), 3)
