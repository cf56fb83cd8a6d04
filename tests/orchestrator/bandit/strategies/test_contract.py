"""The contract of every strategy in the table."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.arms import as_arms
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Sequential, Strategy, Wait
from tests.examples import examples
from tests.orchestrator.bandit.sequential_runs import arms_of

ARMS = np.random.default_rng(0).random((40, 2))
CHEAP: dict[str, dict[str, Any]] = {
    "bbkb": {"regularization": 0.01, "noise_variance": 0.01},
    "igp_ucb": {"initial_points": 10, "final_points": 30},
}

# a population has no further pick after its members, unless they pause: `test_population` replays it
# Optuna's samplers are slow, and are Optuna's
pytestmark = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.thorough] if name == "optuna" else [])
        for name in STRATEGIES
        if name != "pbt"
    ],
)


def build(name: str) -> Strategy[Any]:
    result: Strategy[Any] = STRATEGIES[name](**CHEAP.get(name, {}))
    return result


def stream(*key: int) -> np.random.Generator:
    return np.random.default_rng([7, *key])


def reward(arm: int, pull: int) -> float | None:
    """A deterministic noisy reward; every ninth arm cannot be evaluated."""
    if arm % 9 == 4:
        return None
    return float(np.sin(5 * ARMS[arm, 0]) + ARMS[arm, 1] + 0.05 * np.random.default_rng([arm, pull]).standard_normal())


def observe(arms: Sequence[int], first: int) -> list[Observation]:
    return [Observation(arm, reward(arm, first + position)) for position, arm in enumerate(arms)]


def campaign(name: str, rounds: int = 8, limit: int = 5) -> tuple[Strategy[Any], list[Any], list[list[Observation]]]:
    """States, and the observations that led from each to the next."""
    strategy = build(name)
    states, batches, count = [strategy.init(as_arms(ARMS), stream(0))], [], 0
    for number in range(rounds):
        arms = arms_of(strategy.ask(states[-1], (), limit))
        batches.append(observe(arms, count))
        count += len(arms)
        states.append(strategy.tell(states[-1], batches[-1], stream(1, number)))
    return strategy, states, batches


def test_decision_depends_on_state_and_pending_pulls_only(name: str) -> None:
    strategy, states, _ = game(name)
    for state in states:
        for pending in ((), (3,), (3, 17, 3)):
            recorded = strategy.recorded(state)
            assert strategy.ask(state, pending, 4) == strategy.ask(state, pending, 4)
            assert strategy.recorded(state) == recorded


def test_asking_changes_nothing(name: str) -> None:
    _, asked, batches = game(name)
    strategy, state = build(name), build(name).init(as_arms(ARMS), stream(0))
    for number, observations in enumerate(batches):  # the same tells without a single ask
        state = strategy.tell(state, observations, stream(1, number))
    assert state == asked[-1]


class Course:
    """Picks one by one at one state, until there are enough or none is allowed."""

    def __init__(self, strategy: Strategy[Any], state: Any) -> None:
        self.strategy, self.state = strategy, state
        self.picks: list[int] = []
        self.last: object = None

    def step(self) -> None:
        if len(self.picks) < 8 and not isinstance(self.last, Wait):
            self.last = self.strategy.ask(self.state, tuple(self.picks), 1)
            self.picks += arms_of(self.last) if isinstance(self.last, Choose) else []


@settings(max_examples=examples(8))
@given(turns=st.lists(st.integers(0, 4), min_size=20, max_size=60))
def test_alternating_asks_of_several_states_choose_as_separate_ones(name: str, turns: list[int]) -> None:
    strategy, states, _ = game(name)
    courses = [Course(strategy, state) for state in states[-5:]]
    for turn in turns:
        courses[turn].step()
    for number, course in enumerate(courses):
        assert course.picks == picks_alone(name, number - 5)[: len(course.picks)]


@cache
def game(name: str) -> tuple[Strategy[Any], list[Any], list[list[Observation]]]:
    return campaign(name)


@cache
def picks_alone(name: str, number: int) -> list[int]:
    """Eight picks of a strategy that was asked at no other state, and whose candidates no other
    state shares."""
    _, states, batches = game(name)
    strategy, state = build(name), build(name).init(as_arms(ARMS), stream(0))
    for observations, live in zip(batches[: len(states) + number], states[1:], strict=False):
        state = strategy.restore(state, observations, strategy.recorded(live))
    course = Course(strategy, state)
    for _ in range(8):
        course.step()
    return course.picks


def test_limit_is_respected(name: str) -> None:
    strategy, states, _ = game(name)
    for state in states:
        for limit in (1, 2, 7):
            decision = strategy.ask(state, (), limit)
            assert 1 <= len(arms_of(decision)) <= limit
        if isinstance(strategy, Sequential):
            assert len(arms_of(strategy.ask(state, (), 5))) == 1
            assert isinstance(strategy.ask(state, (3,), 5), Wait)
    with pytest.raises(ValueError, match="limit must be >= 1, got 0"):
        strategy.ask(states[0], (), 0)


def test_asking_in_pieces_with_growing_pending_pulls_picks_the_same_as_asking_once(name: str) -> None:
    strategy, states, _ = game(name)
    for state in states:
        once = arms_of(strategy.ask(state, (), 6))
        pieces: list[int] = []
        while len(pieces) < len(once):
            pieces += arms_of(strategy.ask(state, tuple(pieces), 2))
        assert pieces[: len(once)] == once


def test_arm_that_failed_is_never_chosen_again(name: str) -> None:
    strategy, states, batches = campaign(name, rounds=30)
    failed: set[int] = set()
    for number, (state, observations) in enumerate(zip(states, batches, strict=False)):
        if number % 5 == 0:
            assert not failed & set(arms_of(strategy.ask(state, (), 40)))
        failed |= {observation.arm for observation in observations if observation.reward is None}
    assert failed or name != "uniform"


def test_strategy_reports_that_every_arm_failed(name: str) -> None:
    strategy = build(name)
    state = strategy.init(as_arms(ARMS), stream(0))
    for arm in range(len(ARMS)):
        assert isinstance(strategy.ask(state, (), 1), Choose)
        state = strategy.tell(state, [Observation(arm, None)], stream(1, arm))
    decision = strategy.ask(state, (), 1)
    assert isinstance(decision, Wait)


def test_failures_do_not_poison_the_state(name: str) -> None:
    strategy = build(name)
    state, number = strategy.init(as_arms(ARMS), stream(0)), 0
    while state.round < 12:  # the first half of all evaluations fails
        arms = arms_of(strategy.ask(state, (), 3))
        rewards = [None if state.round < 6 else 0.5] * len(arms)
        state = strategy.tell(state, list(map(Observation, arms, rewards)), stream(1, number))
        number += 1
    assert state.pulls.total > 0
    believed = strategy.posterior(state)
    assert np.isfinite(believed.mean[state.pulls.arms]).all()


def test_telling_nothing_is_a_round_like_any_other(name: str) -> None:
    strategy, states, _ = game(name)
    for state in (states[0], states[-1]):
        after = strategy.tell(state, [], stream(9))
        assert after.round == state.round + 1
        assert after.pulls == state.pulls
        assert after.dictionary.tolist() == state.dictionary.tolist()
        assert isinstance(strategy.ask(after, (), 3), Choose)


def test_states_restored_from_json_records_equal_the_live_ones(name: str) -> None:
    strategy, states, batches = campaign(name, rounds=12)
    restored = strategy.init(as_arms(ARMS), stream(0))
    for observations, live in zip(batches, states[1:], strict=True):
        record = json.loads(json.dumps(strategy.recorded(live)))
        restored = strategy.restore(restored, observations, record)
        assert restored == live
        assert strategy.ask(restored, (1, 2), 5) == strategy.ask(live, (1, 2), 5)


def test_pick_is_an_arm_and_arrays_are_read_only(name: str) -> None:
    strategy, states, _ = game(name)
    picks = arms_of(strategy.ask(states[-1], (), 9))
    assert all(type(arm) is int and 0 <= arm < len(ARMS) for arm in picks)
    believed = strategy.posterior(states[-1])
    for array in (states[-1].dictionary, believed.mean, believed.variance, believed.ucb):
        assert not array.flags.writeable
    assert believed.mean.shape == believed.variance.shape == believed.ucb.shape == (40,)


def test_invalid_candidate_set_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="candidates must be"):
        build(name).init(as_arms(np.zeros(4)), stream(0))


def test_deviation_of_the_prior_is_that_of_the_kernel_in_the_unit_of_the_posterior(name: str) -> None:
    strategy = build(name)
    believed = strategy.posterior(strategy.init(as_arms(ARMS), stream(0)))
    kernel = getattr(strategy, "kernel", None)
    if kernel is not None and getattr(strategy, "model", None) is None:
        np.testing.assert_allclose(believed.unit * believed.variance, kernel.diagonal(ARMS))
