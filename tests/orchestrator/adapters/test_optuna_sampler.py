"""Optuna's samplers as a strategy."""

from typing import Any

import numpy as np
import optuna
import pytest

from bbkb.orchestrator.adapters.optuna_sampler import Coding, OptunaSampler, OptunaState
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Wait
from tests.present import of_type

RNG = np.random.default_rng(0)
SQUARE = Arms.of(RNG.random((600, 2)))
LINE = np.linspace(0.0, 1.0, 400)[:, None]
KINDS = np.repeat(np.eye(3) / np.sqrt(2.0), 30, axis=0)
MIXED = Arms.of(np.hstack([np.tile(np.linspace(0, 1, 30), 3)[:, None], KINDS, np.ones((90, 1))]), [0, 1, 1, 1, 2])
NOTED = ("CmaEsSampler", "NSGAIISampler", "QMCSampler")


def play(strategy: OptunaSampler, arms: Arms, pulls: int, at_once: int = 1) -> tuple[OptunaState, list[int]]:
    """The state after `pulls` pulls of −(x − 0.7)², and the arms pulled."""
    state, pulled = strategy.init(arms, np.random.default_rng(1)), list[int]()
    while len(pulled) < pulls:
        decision = of_type(Choose, strategy.ask(state, (), at_once))
        picks = [pick.arm for pick in decision.picks]
        rewards = [-float((arms.features[arm, 0] - 0.7) ** 2) for arm in picks]
        observations = [Observation(arm, reward) for arm, reward in zip(picks, rewards, strict=True)]
        state = strategy.tell(state, observations, np.random.default_rng(len(pulled)))
        pulled += picks
    return state, pulled


@pytest.mark.parametrize(
    ("sampler", "options"),
    [("TPESampler", {}), ("CmaEsSampler", {"popsize": 6}), ("NSGAIISampler", {"population_size": 8})],
)
def test_sampler_moves_to_the_best_part_of_a_square(sampler: str, options: dict[str, Any]) -> None:
    _, pulled = play(OptunaSampler(sampler, options), SQUARE, 60)
    assert distances(pulled[-20:]) < 0.6 * distances(list(range(len(SQUARE))))


def distances(pulled: list[int]) -> float:
    """Mean distance from 0.7 in the first feature."""
    return float(np.abs(SQUARE.features[pulled, 0] - 0.7).mean())


def test_suggestions_equal_those_of_the_sampler_in_a_separate_study() -> None:
    """The first suggestions, which do not depend on results, become the arms nearest to those of
    Optuna."""
    strategy, arms = OptunaSampler("RandomSampler"), Arms.of(LINE)
    state = strategy.init(arms, np.random.default_rng(1))
    decision = of_type(Choose, strategy.ask(state, (), 5))
    for number, pick in enumerate(decision.picks):
        sampler = strategy._make(state.seed, number)
        study = optuna.create_study(sampler=sampler)
        suggested = study.ask({"p0": optuna.distributions.FloatDistribution(0.0, 1.0)}).params["p0"]
        assert pick.arm == np.abs(LINE[:, 0] - suggested).argmin()


@pytest.mark.parametrize("sampler", NOTED)
def test_sampler_records_are_restored_from_the_log(sampler: str) -> None:
    strategy, arms = OptunaSampler(sampler), Arms.of(RNG.random((200, 3)))
    live = restored = strategy.init(arms, np.random.default_rng(1))
    for number in range(12):
        decision = of_type(Choose, strategy.ask(live, (), 2))
        observations = [Observation(pick.arm, float(arms.features[pick.arm].sum())) for pick in decision.picks]
        live = strategy.tell(live, observations, np.random.default_rng(number))
        restored = strategy.restore(restored, observations, strategy.recorded(live))
    assert restored == live
    assert strategy.ask(restored, (), 3) == strategy.ask(live, (), 3)
    assert live.study_notes or any(live.notes)


def test_qmc_does_not_begin_its_sequence_again() -> None:
    _, pulled = play(OptunaSampler("QMCSampler"), Arms.of(LINE), 30)
    assert len(set(pulled)) > 25


def test_running_pulls_change_the_suggestion() -> None:
    strategy = OptunaSampler("TPESampler", {"n_startup_trials": 5})
    state, _ = play(strategy, Arms.of(LINE), 20)
    near = strategy.ask(state, [280] * 12, 1)
    alone = strategy.ask(state, (), 1)
    assert near != alone


def test_arm_is_given_to_the_sampler_as_its_nearest_parameters() -> None:
    coding = Coding(MIXED)
    assert set(coding.columns) == {"p0", "p1"}  # the last parameter does not vary
    for arm in range(len(MIXED)):
        assert coding.nearest(coding.parameters(arm), np.array([], np.intp)) == arm


def test_continuous_parameter_is_a_number_and_one_of_few_values_its_rank() -> None:
    coding = Coding(Arms.of(np.column_stack([RNG.random(300), RNG.integers(0, 5, 300) / 4])))
    assert coding.distributions["p0"].single() is False
    assert isinstance(coding.distributions["p0"], optuna.distributions.FloatDistribution)
    assert coding.distributions["p1"] == optuna.distributions.IntDistribution(0, 4)


def test_arms_that_do_not_repeat_are_pulled_once_each() -> None:
    arms = Arms.of(np.linspace(0, 1, 9)[:, None], repeats=False)
    strategy = OptunaSampler()
    state, pulled = play(strategy, arms, 9)
    assert sorted(pulled) == list(range(9))
    assert isinstance(strategy.ask(state, (), 1), Wait)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampler": "TPSampler"}, r"strategy.sampler must be one of .*TPESampler.*, got 'TPSampler'"),
        ({"options": {"seed": 3}}, r"strategy.options must not hold seed"),
        ({"options": {"speed": 3}}, r"strategy.options must be arguments of TPESampler: .*speed"),
        ({"sampler": "PartialFixedSampler"}, r"strategy.options must be arguments of PartialFixedSampler"),
        ({"mode": "sometimes"}, r"strategy.mode must be one of async, batch, got 'sometimes'"),
        ({"refresh_growth": 0.0}, r"strategy.refresh_growth must be > 0"),
    ],
)
def test_impossible_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OptunaSampler(**settings)
