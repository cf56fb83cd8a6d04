"""A space with fewer configurations than evaluations: every strategy that may be given an early-stopping
rule repeats, continues stopped trials, or ends."""

import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bbkb import Optimizer, Range, tune
from bbkb.orchestrator.bandit.strategy import ALL_CHOSEN
from bbkb.orchestrator.campaign.events import BatchChosen
from bbkb.orchestrator.engine.replaying import replay_until
from bbkb.orchestrator.history.fold import fold
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.open import create_run, open_session
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.store.runs import open_run
from tests.examples import spread

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own")

MODEL: Mapping[str, Any] = {"rule": "model", "last_step": 4}
RULES: Mapping[str, Mapping[str, Any]] = {
    "model": {"early_stopping": MODEL},
    "none": {},
    "median": {"early_stopping": {"rule": "median", "after": 1}},
    "asha": {"early_stopping": {"rule": "asha", "reduction": 2, "after": 1}},
    "model, anew": {"early_stopping": {**MODEL, "continues": "anew"}},
}  # in an order in which a quick run tries the model's rules with `bkb` and `async_ts`, too
LEARN_CURVES = ("bbkb", "bkb", "async_ts")
OTHERS = ("gp_bucb", "gp_ucb", "expected_improvement", "compressed_ucb", "epsilon_greedy")
CASES = [
    *(("bbkb", rule) for rule in RULES),
    *spread([name for name in LEARN_CURVES if name != "bbkb"], RULES),
    *spread(OTHERS, [rule for rule in RULES if not rule.startswith("model")]),
]
EVALUATIONS = 12


def quality(b: Any, step: int = 4) -> float:
    return float(-((b - 3) ** 2) - 1 / step)


def train(b: int, report: Any) -> float:
    for step in range(1, 5):
        report(quality(b, step), step)
    return quality(b)


def run(strategy: str, rule: str, levels: int, deterministic: bool | None) -> Any:
    return tune(
        train, {"b": Range(1, levels, integer=True)}, direction="maximize", evaluations=EVALUATIONS, seed=25,
        executor="inline", progress=False,
        settings={"strategy": {"name": strategy}, "objective": {"deterministic": deterministic}, **RULES[rule]},
    )  # fmt: skip


@pytest.mark.parametrize(("strategy", "rule"), CASES)
@pytest.mark.parametrize("levels", [2, 5])
def test_budget_that_outlasts_a_finite_space_is_spent_on_repeats(strategy: str, rule: str, levels: int) -> None:
    result = run(strategy, rule, levels, deterministic=False)
    assert len(result.trials) == EVALUATIONS
    assert result.best.parameters == {"b": min(3, levels)}


@pytest.mark.parametrize(("strategy", "rule"), [*CASES, ("uniform", "none"), ("uniform", "median")])
def test_exhausted_deterministic_space_ends_the_campaign(strategy: str, rule: str) -> None:
    result = run(strategy, rule, 5, deterministic=True)
    configurations = [trial.parameters["b"] for trial in result.trials]
    assert sorted(configurations) == [1, 2, 3, 4, 5]
    assert result.best.parameters == {"b": 3}
    reason = fold(open_run(result.folder).events()).campaign.session.close_reason
    assert reason == ALL_CHOSEN


@pytest.mark.parametrize("strategy", [*LEARN_CURVES, "gp_bucb", "gp_ucb", "expected_improvement"])
def test_exhausted_space_ends_the_campaign_once_repeats_were_equal(strategy: str) -> None:
    result = run(strategy, "none", 5, deterministic=None)
    assert {trial.parameters["b"] for trial in result.trials} == {1, 2, 3, 4, 5}
    assert len(result.trials) == 5 + 4  # 2 of 10 pairs have equal values: three equal repeats may be coincidence
    assert result.best == result.best_observed
    campaign = fold(open_run(result.folder).events()).campaign
    assert campaign.session.close_reason == ALL_CHOSEN
    assert "4 repeated evaluations" in str(result)


def rough(x: float, y: float) -> float:
    return (x - 0.3) ** 2 + y + math.sin(1e4 * x * y)


def rough_and_noisy(x: float, y: float) -> float:
    return rough(x, y) + random.gauss(0.0, 0.1)


@pytest.mark.parametrize("objective", [rough, rough_and_noisy])
def test_continuous_space_is_searched_with_one_repeat_and_a_replay_agrees(objective: Callable[..., float]) -> None:
    result = tune(
        objective, {"x": Range(0, 1), "y": Range(0, 1)}, direction="minimize", evaluations=40, seed=2,
        executor="inline", progress=False,
    )  # fmt: skip
    parameters = [tuple(trial.parameters.values()) for trial in result.trials]
    assert len(parameters) - len(set(parameters)) == 1
    run = open_run(result.folder)
    settings = fold(run.events()).settings
    assert replay_until(build(settings).problem, run.events(), None, is_checked=True).differences == ()
    if objective is rough:
        assert result.best == result.best_observed
    assert ("noise: none" in str(result)) == (objective is rough)


def two_values(b: int) -> dict[str, float]:
    return {"near": (b - 2.0) ** 2 + b / 3, "far": (b - 5.0) ** 2 + b / 7}


def test_exhausted_space_of_two_objectives_ends_once_repeats_were_equal() -> None:
    objectives = [{"metric": metric, "direction": "minimize"} for metric in ("near", "far")]
    result = tune(
        two_values, {"b": Range(1, 7, integer=True)}, evaluations=40, seed=1, executor="inline", progress=False,
        settings={"objectives": objectives},
    )  # fmt: skip
    assert len(result.trials) == 7 + 2
    assert {trial.parameters["b"] for trial in result.front} == {2, 3, 4, 5}


def test_resume_may_declare_the_objective_deterministic_and_a_replay_agrees(tmp_path: Path) -> None:
    objective = {"name": "branin", "options": {"noise_std": 20.0}}
    whole: dict[str, Any] = {
        "name": "declared",
        "objective": objective,
        "candidates": {"size": 40},
        "strategy": {"name": "uniform"},
        "budget": {"evaluations": 30},
        "workers": {"executor": "simulated", "count": 3},
        "runs": str(tmp_path),
    }
    settings = from_mapping(whole)
    run = create_run(settings, build(settings))
    open_session(run, settings).run()
    whole["objective"] = {**objective, "deterministic": True}
    declared = from_mapping({**whole, "budget": {"evaluations": 100}})
    open_session(run, declared).run()
    events = run.events()
    chosen = [pick.arm for event in events if isinstance(event, BatchChosen) for pick in event.picks]
    assert set(chosen) == set(range(40))
    assert len(set(chosen[30:])) == len(chosen[30:]) == 40 - len(set(chosen[:30]))
    for problem in (build(settings).problem, build(declared).problem):
        assert replay_until(problem, events, None, is_checked=True).differences == ()


@pytest.mark.parametrize("checkpoints", [True, False])
def test_optimizer_continues_stopped_trainings_when_no_other_is_left(checkpoints: bool) -> None:
    space = {"b": Range(1, 2, integer=True)}
    optimizer = Optimizer(space, "maximize", seed=25, steps=4, checkpoints=checkpoints)
    ended = 0
    for _ in range(10):
        if not (asked := optimizer.ask()):
            break  # enough repeated trainings have returned the same value
        (trial,) = asked
        for step in range((trial.last_step if checkpoints else 0) + 1, 5):
            if not trial.report(quality(trial["b"], step), step):
                break
        else:
            trial.tell(quality(trial["b"]))
            ended += 1
    assert ended > 5
    assert optimizer.best.parameters == {"b": 2}
