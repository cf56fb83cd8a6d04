"""Optuna: BBKB as its sampler, and its samplers as a strategy."""

import pickle
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from bbkb.objectives.parameters import Choice, Range
from bbkb.orchestrator.adapters.optuna import BBKBSampler, space_of, to_optuna, to_ours
from bbkb.orchestrator.adapters.optuna_sampler import Coding, OptunaSampler, OptunaState
from bbkb.orchestrator.ask_tell.space import Optimizer
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.results import TrialCurve
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Wait
from tests.orchestrator.ask_tell.searches import curves_of, model_of, view_of
from tests.present import of_type, present

optuna.logging.set_verbosity(optuna.logging.ERROR)
SPACE = {"x": FloatDistribution(0.0, 1.0), "kind": CategoricalDistribution(("a", None, 2.5))}


def study_of(direction: str = "minimize", **options: Any) -> optuna.Study:
    return optuna.create_study(direction=direction, sampler=BBKBSampler(**options))


def objective(trial: optuna.Trial) -> float:
    x = float(trial.suggest_float("x", 0.0, 1.0))
    return (x - 0.3) ** 2 + float(trial.suggest_categorical("kind", ("a", None, 2.5)) == "a")


def optimizer(study: optuna.Study) -> Optimizer:
    held: Optimizer = present(study.sampler._optimizer)
    return held


def space(study: optuna.Study) -> dict[str, BaseDistribution]:
    shared: dict[str, BaseDistribution] = study.sampler._space
    return shared


def curves(study: optuna.Study) -> tuple[TrialCurve, ...]:
    return curves_of(optimizer(study))


@pytest.mark.parametrize(("direction", "sign"), [("minimize", 1.0), ("maximize", -1.0)])
def test_study_moves_to_the_best_parameters(direction: str, sign: float) -> None:
    study = study_of(direction)
    study.optimize(lambda trial: sign * objective(trial), n_trials=40)
    values = [sign * trial.value for trial in study.trials]
    assert np.mean(values[-10:]) < 0.5 * np.mean(values[:10])
    assert study.best_params["x"] == pytest.approx(0.3, abs=0.1)


def test_distributions_become_parameters_and_values_come_back() -> None:
    distributions = {
        "lr": FloatDistribution(1e-4, 1.0, log=True),
        "drop": FloatDistribution(0.0, 0.5, step=0.25),
        "width": IntDistribution(2, 8, step=2),
        "kind": CategoricalDistribution(("a", None, True)),
    }
    assert space_of(distributions) == {
        "p0": Range(1e-4, 1.0, log=True),
        "p1": Range(0.0, 0.5, step=0.25),
        "p2": Range(2, 8, integer=True, step=2),
        "p3": Choice((0, 1, 2)),
    }
    values = {"lr": 0.1, "drop": 0.25, "width": 6, "kind": True}
    assert to_optuna(distributions, to_ours(distributions, values)) == values


def test_running_trials_are_pending_and_learned_once_after_their_end() -> None:
    study = study_of()
    study.tell(study.ask(SPACE), 1.0)
    running = [study.ask(SPACE) for _ in range(4)]
    assert len(optimizer(study).pending) == 4
    for trial in running[:3]:
        study.tell(trial, 0.5)
    last = study.ask(SPACE)
    assert len(optimizer(study).pending) == 2  # the fourth, and this one
    assert len(optimizer(study).trials) == 4
    study.tell(running[3], 0.5)
    study.tell(last, 0.5)
    study.ask(SPACE)
    assert len(optimizer(study).trials) == 6


def test_trials_of_other_processes_are_learned_unchanged() -> None:
    study = study_of()
    study.add_trials([create_trial(params={"x": 0.25, "kind": None}, distributions=SPACE, value=0.1)] * 2)
    study.add_trial(create_trial(state=TrialState.RUNNING, params={"x": 0.9, "kind": "a"}, distributions=SPACE))
    study.ask(SPACE)
    done = optimizer(study).trials
    assert [to_optuna(space(study), trial.parameters) for trial in done] == [{"x": 0.25, "kind": None}] * 2
    assert to_optuna(space(study), optimizer(study).pending[0]) == {"x": 0.9, "kind": "a"}


def test_trial_without_parameters_is_learned_later() -> None:
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage, sampler=BBKBSampler())
    study.tell(study.ask(SPACE), 1.0)
    elsewhere = optuna.samplers.RandomSampler()
    other = optuna.load_study(study_name=study.study_name, storage=storage, sampler=elsewhere)
    begun = other.ask()
    study.ask(SPACE)
    begun.suggest_float("x", 0.0, 1.0)
    begun.suggest_categorical("kind", ("a", None, 2.5))
    other.tell(begun, 0.2)
    study.ask(SPACE)
    assert len(optimizer(study).trials) == 2


def test_processes_that_choose_at_the_same_time_choose_different_parameters() -> None:
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage, sampler=BBKBSampler())
    study.tell(study.ask(SPACE), 1.0)
    other = optuna.load_study(study_name=study.study_name, storage=storage, sampler=BBKBSampler())
    first, second = study.ask(), other.ask()
    assert second.relative_params != first.relative_params  # the first one's are not stored when the second one asks


def test_enqueued_trial_is_learned_with_its_own_values() -> None:
    study = study_of()
    study.optimize(objective, n_trials=4)
    study.enqueue_trial({"x": 0.125})
    study.optimize(objective, n_trials=2)
    enqueued = study.trials[4].params
    assert enqueued["x"] == 0.125
    assert to_optuna(space(study), optimizer(study).trials[4].parameters) == enqueued


def test_new_sampler_learns_a_long_study_in_one_refit(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of()
    rng = np.random.default_rng(0)
    points = [{"x": float(x), "kind": "a"} for x in rng.random(300)]
    study.add_trials([create_trial(params=point, distributions=SPACE, value=point["x"]) for point in points])
    study.ask(SPACE)
    assert len(optimizer(study).trials) == 300
    assert view_of(optimizer(study)).round == 1
    looked_at: list[int] = []
    monkeypatch.setattr(type(study.sampler), "_add_pending", lambda self, _, trial: looked_at.append(trial.number))
    for _ in range(3):
        study.tell(study.ask(SPACE), 0.5)
    assert looked_at == []


def test_pruned_trial_is_unfinished_and_a_failed_one_is_not_retried() -> None:
    study = study_of()
    study.tell(study.ask(SPACE), 1.0)
    pruned, failed = study.ask(SPACE), study.ask(SPACE)
    pruned.report(0.7, 1)
    study.tell(pruned, state=TrialState.PRUNED)
    study.tell(failed, state=TrialState.FAIL)
    study.ask(SPACE)
    assert [trial.value for trial in optimizer(study).trials] == [-1.0, None]
    assert len(optimizer(study).pending) == 1
    assert [curve.rewards for curve in curves(study)] == [(-0.7,)]


@pytest.mark.parametrize("first", [0, 1])
def test_values_of_running_pruned_and_complete_trials_are_learned(first: int) -> None:
    study = study_of()
    study.tell(study.ask(SPACE), 1.0)
    running, pruned, complete = (study.ask(SPACE) for _ in range(3))
    for step in range(3):
        running.report(0.5 - 0.1 * step, first + step)
        complete.report(0.4 - 0.1 * step, first + step)
    pruned.report(0.9, first)
    study.tell(pruned, state=TrialState.PRUNED)
    study.tell(complete, 0.15)
    study.ask(SPACE)
    running.report(0.25, first + 3)  # a report alone is learned before the next suggestion, too
    study.ask(SPACE)
    known = model_of(optimizer(study)).curve_state.known.trials
    learned = {curve.trial: (curve.steps, curve.rewards, curve.is_finished) for curve in known}
    assert learned == {
        1: ((1, 2, 4), pytest.approx((-0.5, -0.4, -0.25)), False),
        2: ((1,), (-0.9,), False),
        3: ((1, 2, 3), pytest.approx((-0.4, -0.3, -0.15)), True),
    }


def test_parameters_of_only_some_trials_are_drawn_independently() -> None:
    def evaluate_branches(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        return float(x + (trial.suggest_int("depth", 1, 3) if x > 0.5 else 0))

    study = study_of()
    study.optimize(evaluate_branches, n_trials=12)
    assert set(space(study)) == {"x"}


def test_study_with_several_objectives_is_rejected() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=BBKBSampler())
    with pytest.raises(ValueError, match="BBKBSampler is for one objective, the study has 2"):
        study.ask(SPACE)


def test_pickled_sampler_continues_as_the_original() -> None:
    study = study_of()
    study.optimize(objective, n_trials=15)
    copy = pickle.loads(pickle.dumps(study.sampler))
    suggested = study.ask(SPACE).params
    assert copy.sample_relative(study, study.trials[-1], SPACE) == suggested


def test_sampler_learns_trials_of_all_hyperband_brackets() -> None:
    def evaluate_steps(trial: optuna.Trial) -> float:
        value = objective(trial)
        for step in range(9):
            trial.report(value + 1 / (step + 1), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=9)
    study = optuna.create_study(sampler=BBKBSampler(), pruner=pruner)
    study.optimize(evaluate_steps, n_trials=12)
    finished = [trial for trial in study.trials[:-1] if trial.state == TrialState.COMPLETE]
    assert len(optimizer(study).trials) == len(finished)  # the last one has ended after the last proposal
    assert len(curves(study)) == 11
    assert sum(curve.is_finished for curve in curves(study)) == len(finished)
    assert 1 < len(finished) < 11


@pytest.mark.parametrize(
    "pruner",
    [
        pytest.param(optuna.pruners.HyperbandPruner(1, 27, 3), id="hyperband"),
        pytest.param(optuna.pruners.SuccessiveHalvingPruner(1, 3), id="successive halving"),
    ],
)
def test_search_learns_expected_final_values_of_pruned_trials(pruner: optuna.pruners.BasePruner) -> None:
    """Good trials begin slowly here, so their values at early steps mislead a search that takes
    them for final ones."""

    def evaluate_steps(trial: optuna.Trial) -> float:
        x = float(trial.suggest_float("x", 0.0, 1.0))
        value = 0.0
        for step in range(1, 28):
            value = (x - 0.3) ** 2 + 1.0 / step
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    study = optuna.create_study(sampler=BBKBSampler(), pruner=pruner, study_name="pruned")
    study.optimize(evaluate_steps, n_trials=30)
    assert {trial.state for trial in study.trials} == {TrialState.PRUNED, TrialState.COMPLETE}
    assert study.best_params["x"] == pytest.approx(0.3, abs=0.1)
    assert model_of(optimizer(study)).knowledge.learns_curves


def test_sampler_starts_over_with_a_second_study() -> None:
    sampler = BBKBSampler()
    first, second = optuna.create_study(sampler=sampler), optuna.create_study(sampler=sampler)
    first.optimize(objective, n_trials=6)
    second.optimize(objective, n_trials=3)
    assert len(optimizer(second).trials) == 2
    first.optimize(objective, n_trials=1)
    assert len(optimizer(first).trials) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "bbbkb"}, "did you mean 'bbkb'"),
        ({"constraints_func": len}, "constraints_func is not an argument of BBKBSampler"),
        ({"seed": None}, "seed must be a whole number"),
    ],
)
def test_wrong_option_is_rejected_before_the_first_trial(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BBKBSampler(**options)


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
