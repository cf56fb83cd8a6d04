"""The contract of every strategy with a warm start that begins with existing data instead."""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, cast

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arms import as_arms
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.start.warm_start import DataStart
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Strategy, begin
from tests.orchestrator.bandit.sequential_runs import choice

ARMS = np.random.default_rng(0).random((150, 2))
STARTING = [name for name, cls in STRATEGIES.items() if "warm_start" in {field.name for field in fields(cls)}]

pytestmark = pytest.mark.parametrize("name", STARTING)


def build(name: str) -> Strategy[Any]:
    names = {field.name for field in fields(STRATEGIES[name])}
    options: dict[str, Any] = {"kernel": RBF(0.3), "regularization": 0.01, "warm_start": DataStart()}
    result: Strategy[Any] = STRATEGIES[name](**{key: value for key, value in options.items() if key in names})
    return result


def rng(number: int = 0) -> np.random.Generator:
    return np.random.default_rng([3, number])


def existing(count: int = 200) -> list[Observation]:
    """Pulls of two thirds of the arms, some more than once."""
    arms = rng(9).integers(100, size=count).tolist()
    return [Observation(arm, float(np.sin(4 * ARMS[arm, 0]) + ARMS[arm, 1])) for arm in arms]


def pulls_of(observations: Sequence[Observation]) -> Pulls:
    return Pulls.none(len(ARMS)).add(
        [observation.arm for observation in observations],
        [cast(float, observation.reward) for observation in observations],
    )


def begin_strategy(name: str, observations: Sequence[Observation] | None = None) -> tuple[Any, Any]:
    strategy = build(name)
    return strategy, begin(strategy, strategy.init(as_arms(ARMS), rng()), observations or existing(), rng(1))


def test_counts_and_sums_are_those_of_the_existing_pulls(name: str) -> None:
    _, state = begin_strategy(name)
    assert state.pulls == pulls_of(existing())
    assert state.round == 1
    assert set(state.dictionary.tolist()) <= set(state.pulls.arms.tolist())
    assert state.dictionary.tolist() == sorted(set(state.dictionary.tolist()))


def test_strategy_begun_with_data_chooses_without_a_warm_start(name: str) -> None:
    strategy, state = begin_strategy(name)
    decision = choice(strategy.ask(state, (), 5))
    assert decision.reason != "warm start"


def test_variances_are_within_a_factor_3_of_the_exact_ones_and_means_agree(name: str) -> None:
    strategy, state = begin_strategy(name)
    believed = strategy.posterior(state)
    mean, variance = exact_posterior(RBF(0.3), ARMS, pulls_of(existing()), 0.01)
    assert (believed.variance <= 3 * variance + 1e-9).all()
    assert (variance <= 3 * believed.variance + 1e-9).all()
    np.testing.assert_allclose(believed.mean[:100], mean[:100], atol=0.1)


def test_state_restored_from_its_json_record_equals_the_live_one(name: str) -> None:
    strategy, live = begin_strategy(name)
    record = json.loads(json.dumps(strategy.recorded(live)))
    restored = strategy.restore(strategy.init(as_arms(ARMS), rng()), existing(), record)
    assert restored == live
    assert strategy.ask(restored, (1, 2), 5) == strategy.ask(live, (1, 2), 5)


def test_strategy_begun_with_data_continues_as_after_any_tell(name: str) -> None:
    strategy, state = begin_strategy(name)
    for number in range(4):
        decision = choice(strategy.ask(state, (), 5))
        batch = [Observation(pick.arm, float(ARMS[pick.arm, 1])) for pick in decision.picks]
        before = state.pulls.total
        state = strategy.tell(state, batch, rng(number + 2))
        assert state.pulls.total == before + len(batch)


@pytest.mark.parametrize("pulls", [[Observation(7, 0.5)], [Observation(7, 0.5)] * 100])
def test_strategy_can_begin_with_one_arm(name: str, pulls: list[Observation]) -> None:
    strategy, state = begin_strategy(name, pulls)
    assert state.pulls.total == len(pulls)
    assert np.isfinite(strategy.posterior(state).mean).all()
    assert isinstance(strategy.ask(state, (), 3), Choose)
