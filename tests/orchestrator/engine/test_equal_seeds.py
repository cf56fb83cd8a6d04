"""Equal seeds and equal results in equal order give equal picks: in an inline campaign, in a loop over
`Optimizer`, whatever an evaluation takes."""

import functools
import time
from collections.abc import Mapping
from typing import Any

import pytest

from bbkb import Optimizer, Range, tune
from bbkb.orchestrator.settings.strategies import build_strategy

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own")

SPACE: Mapping[str, Any] = {"x": Range(0.0, 1.0), "n": Range(1, 9, integer=True)}
STEPS, EVALUATIONS = 9, 36
STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "default": {"name": "bbkb"},
    "bbkb, async": {"name": "bbkb", "mode": "async"},
    "bbkb, batch": {"name": "bbkb", "mode": "batch"},
    "bbkb, paper": {"name": "bbkb", "preset": "paper", "warm_start": {"name": "uncertainty", "workers": 1}},
    "gp_bucb": {"name": "gp_bucb"},
    "async_ts": {"name": "async_ts"},
    "gp_ucb": {"name": "gp_ucb"},
    "expected_improvement": {"name": "expected_improvement"},
}
RULES: Mapping[str, Mapping[str, Any]] = {
    "with checkpoints": {"continues": True},
    "without checkpoints": {"continues": "anew"},
    "first trials": {"continues": True, "first_trials": 6, "first_steps": 2},
}


def loss(x: Any, n: Any) -> float:
    return float((x - 0.3) ** 2 + 0.01 * (n - 4) ** 2)


@functools.cache
def campaign_picks(name: str, seconds: float = 0.0) -> list[Any]:
    def objective(x: float, n: int) -> float:
        time.sleep(seconds)
        if x > 0.9:
            raise ValueError("too large")
        return loss(x, n)

    result = tune(
        objective, SPACE, direction="minimize", evaluations=EVALUATIONS, seed=4, executor="inline", progress=False,
        settings={"strategy": dict(STRATEGIES[name])},
    )  # fmt: skip
    return [trial.parameters for trial in result.trials]


def loop_picks(strategy: Mapping[str, Any]) -> list[Any]:
    chosen: Any = build_strategy(strategy)
    optimizer = Optimizer(SPACE, "minimize", strategy=chosen, seed=4)
    is_batch = getattr(chosen, "mode", "batch") == "batch"
    picks: list[Any] = []
    while len(picks) < EVALUATIONS:
        for trial in optimizer.ask(None if is_batch else 1):
            x: Any = trial["x"]
            picks.append(trial.parameters)
            if x > 0.9:
                trial.fail()
            else:
                trial.tell(loss(**trial))
    return picks[:EVALUATIONS]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.thorough if name in ("gp_bucb", "expected_improvement") else [])
        for name in STRATEGIES
    ],
)
def test_inline_campaign_and_optimizer_pick_the_same(name: str) -> None:
    assert campaign_picks(name) == loop_picks(STRATEGIES[name])


@pytest.mark.parametrize("name", ["default", "async_ts"])
def test_duration_of_an_evaluation_changes_no_pick(name: str) -> None:
    assert campaign_picks(name, seconds=0.04) == campaign_picks(name)


def test_picks_of_an_optimizer_do_not_depend_on_how_many_are_asked_for() -> None:
    """A group of picks, of which the caller evaluates one after the other, is that of single calls."""
    single = Optimizer(SPACE, "minimize", seed=4)
    for _ in range(80):
        (trial,) = single.ask()
        trial.tell(loss(**trial))
    expected = [dict(trial) for trial in (single.ask()[0] for _ in range(3))]
    grouped = Optimizer(SPACE, "minimize", seed=4)
    for _ in range(80):
        (trial,) = grouped.ask()
        trial.tell(loss(**trial))
    assert [dict(trial) for trial in grouped.ask(3)] == expected


def error_at(x: Any, n: Any, step: int) -> float:
    return loss(x, n) + 0.2 / step


def trained_campaign(rule: Mapping[str, Any], evaluations: int) -> list[Any]:
    def objective(x: float, n: int, folder: Any, report: Any) -> float:
        made = folder / "made"
        first = int(made.read_text()) if made.exists() and rule["continues"] is True else 0
        for step in range(first + 1, STEPS + 1):
            made.write_text(str(step))
            report(error_at(x, n, step), step)
        return error_at(x, n, STEPS)

    stopping = {"rule": "model", "last_step": STEPS, "first_trials": 0, "after": 3, **rule}
    result = tune(
        objective, SPACE, direction="minimize", evaluations=evaluations, seed=4, executor="inline", progress=False,
        settings={"early_stopping": stopping},
    )  # fmt: skip
    return [trial.parameters for trial in result.trials]


def trained_loop(rule: Mapping[str, Any], evaluations: int) -> list[Any]:
    first_trials = rule.get("first_trials", 0)
    checkpoints = rule["continues"] is True
    optimizer = Optimizer(
        SPACE, "minimize", seed=4, steps=STEPS, first_trials=first_trials, checkpoints=checkpoints
    )  # fmt: skip
    picks: list[Any] = []
    while True:
        (trial,) = optimizer.ask()
        if trial.parameters not in picks:
            picks.append(trial.parameters)
        if len(picks) > evaluations:
            return picks[:evaluations]
        for step in range((trial.last_step if checkpoints else 0) + 1, STEPS + 1):
            if not trial.report(error_at(trial["x"], trial["n"], step), step):
                break
        else:
            trial.tell(error_at(trial["x"], trial["n"], STEPS))


@pytest.mark.parametrize("name", RULES)
def test_inline_campaign_and_optimizer_train_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bbkb.orchestrator.campaign.settings.FINISH", 0)  # a loop has no end of its budget
    assert trained_campaign(RULES[name], 24) == trained_loop(RULES[name], 24)
