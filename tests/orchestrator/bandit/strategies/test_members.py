"""What all strategies of the table do: begin with existing data, set failures aside, count pending pulls, believe."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.arms import as_arms
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.exact.strategy import ExactStrategy
from bbkb.orchestrator.bandit.kernels import RBF, Matern52
from bbkb.orchestrator.bandit.papers.igp_ucb import IGPUCB
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.start.warm_start import DataStart, UncertaintyStart
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.bkb import BKB
from bbkb.orchestrator.bandit.strategies.gp_ucb import GPUCB, ExpectedImprovement, ProbabilityOfImprovement
from bbkb.orchestrator.bandit.strategy import AnyStrategy, Choose, Observation, Pick, Strategy, Wait, begin
from tests.orchestrator.bandit.sequential_runs import arms_of, choice, run_sequentially, value

ARMS = np.random.default_rng(0).random((150, 2))
STARTING = [name for name, cls in STRATEGIES.items() if "warm_start" in {field.name for field in fields(cls)}]


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


@pytest.mark.parametrize("name", STARTING)
def test_counts_and_sums_are_those_of_the_existing_pulls(name: str) -> None:
    _, state = begin_strategy(name)
    assert state.pulls == pulls_of(existing())
    assert state.round == 1
    assert set(state.dictionary.tolist()) <= set(state.pulls.arms.tolist())
    assert state.dictionary.tolist() == sorted(set(state.dictionary.tolist()))


@pytest.mark.parametrize("name", STARTING)
def test_strategy_begun_with_data_chooses_without_a_warm_start(name: str) -> None:
    strategy, state = begin_strategy(name)
    decision = choice(strategy.ask(state, (), 5))
    assert decision.reason != "warm start"


@pytest.mark.parametrize("name", STARTING)
def test_variances_are_within_a_factor_3_of_the_exact_ones_and_means_agree(name: str) -> None:
    strategy, state = begin_strategy(name)
    believed = strategy.posterior(state)
    mean, variance = exact_posterior(RBF(0.3), ARMS, pulls_of(existing()), 0.01)
    assert (believed.variance <= 3 * variance + 1e-9).all()
    assert (variance <= 3 * believed.variance + 1e-9).all()
    np.testing.assert_allclose(believed.mean[:100], mean[:100], atol=0.1)


@pytest.mark.parametrize("name", STARTING)
def test_state_restored_from_its_json_record_equals_the_live_one(name: str) -> None:
    strategy, live = begin_strategy(name)
    record = json.loads(json.dumps(strategy.recorded(live)))
    restored = strategy.restore(strategy.init(as_arms(ARMS), rng()), existing(), record)
    assert restored == live
    assert strategy.ask(restored, (1, 2), 5) == strategy.ask(live, (1, 2), 5)


@pytest.mark.parametrize("name", STARTING)
def test_strategy_begun_with_data_continues_as_after_any_tell(name: str) -> None:
    strategy, state = begin_strategy(name)
    for number in range(4):
        decision = choice(strategy.ask(state, (), 5))
        batch = [Observation(pick.arm, float(ARMS[pick.arm, 1])) for pick in decision.picks]
        before = state.pulls.total
        state = strategy.tell(state, batch, rng(number + 2))
        assert state.pulls.total == before + len(batch)


@pytest.mark.parametrize("name", STARTING)
@pytest.mark.parametrize("pulls", [[Observation(7, 0.5)], [Observation(7, 0.5)] * 100])
def test_strategy_can_begin_with_one_arm(name: str, pulls: list[Observation]) -> None:
    strategy, state = begin_strategy(name, pulls)
    assert state.pulls.total == len(pulls)
    assert np.isfinite(strategy.posterior(state).mean).all()
    assert isinstance(strategy.ask(state, (), 3), Choose)


FORTY = np.random.default_rng(0).random((40, 2))
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
    return float(np.sin(5 * FORTY[arm, 0]) + FORTY[arm, 1])


def strategy_and_state(name: str, rounds: int) -> tuple[Strategy[Any], Any]:
    strategy = STRATEGIES[name](**CHEAP.get(name, {}))
    state = strategy.init(as_arms(FORTY), np.random.default_rng([7, 0]))
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


SIXTY = np.random.default_rng(0).random((60, 2))
START = UncertaintyStart(max_pulls=3)
BELIEVED: dict[str, Any] = {"kernel": Matern52(0.4), "regularization": 0.01, "warm_start": START}
EXACT: list[ExactStrategy[Any]] = [
    GPUCB(**BELIEVED, noise_variance=0.01, norm_bound=1.0),
    IGPUCB(**BELIEVED, noise_scale=0.1, delta=0.01, initial_points=10, final_points=60),
    ExpectedImprovement(**BELIEVED),
    ProbabilityOfImprovement(**BELIEVED),
]
BKB_ = BKB(kernel=RBF(0.4), regularization=0.01, noise_variance=0.001, norm_bound=0.3, warm_start=START)


def is_broken(arm: int) -> bool:
    """Every seventh arm cannot be evaluated."""
    return arm % 7 == 3


def play(strategy: AnyStrategy, rounds: int, seed: int = 0) -> Iterator[tuple[Any, Pick]]:
    return run_sequentially(SIXTY, strategy, rounds, seed, fails=is_broken)


@pytest.mark.parametrize("strategy", EXACT, ids=lambda strategy: type(strategy).__name__)
@given(seed=st.integers(0, 10**6))
def test_belief_at_every_pick_is_that_of_a_dense_gaussian_process(strategy: Any, seed: int) -> None:
    for state, pick in list(play(strategy, 15, seed))[3:]:
        mean, variance = exact_posterior(strategy.kernel, SIXTY, state.pulls, 0.01)
        np.testing.assert_allclose(state.belief.mean, mean, atol=1e-8)
        np.testing.assert_allclose(state.belief.variance, variance, atol=1e-8)
        assert (pick.mean, pick.variance) == pytest.approx((mean[pick.arm], variance[pick.arm]))
        assert np.isnan(pick.width) == np.isnan(strategy.posterior(state).ucb).all()


@pytest.mark.parametrize("strategy", [*EXACT, BKB_], ids=lambda strategy: type(strategy).__name__)
def test_search_ends_at_the_best_arms_that_can_be_evaluated(strategy: Any) -> None:
    arms = [pick.arm for _, pick in play(strategy, 100)]
    possible = [arm for arm in range(len(SIXTY)) if not is_broken(arm)]
    assert (value(SIXTY[possible]).max() - value(SIXTY[arms[-20:]])).mean() < 0.15
    assert len(set(arms)) < len(SIXTY)


@pytest.mark.parametrize("strategy", [*EXACT, BKB_], ids=lambda strategy: type(strategy).__name__)
def test_prior_decides_if_the_warm_start_failed(strategy: Any) -> None:
    rng = np.random.default_rng(0)
    state = strategy.init(SIXTY, rng)
    failed = strategy.tell(state, [Observation(arm, None) for arm in state.initial], rng)
    (pick,) = choice(strategy.ask(failed, (), 1)).picks
    assert pick.variance == pytest.approx(100.0)
    if not isinstance(strategy, IGPUCB):  # whose grid lacks most arms
        assert pick.arm == min(set(range(60)) - set(state.initial)), "all are equal: the lowest index"


def test_strategies_name_their_classes() -> None:
    assert [STRATEGIES.name_of(cls) for cls in STRATEGIES.values()] == list(STRATEGIES)
    assert STRATEGIES.name_of(dict) is None


def test_settings_of_the_default_strategy_import_no_other_strategy() -> None:
    script = """
import sys
from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy
dump_strategy(build_strategy("bbkb"))
print([name for name in sys.modules if name.endswith((".papers", ".problems", ".adapters"))])
"""
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed == "[]\n"
