"""Campaigns with early stopping and several objectives or constraints, from function to log."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bbkb import Constraint, Objective, Optimizer, Range, Result, UserError, tune
from bbkb.orchestrator.campaign.events import TrialStopped
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.store.runs import open_run
from bbkb.orchestrator.store.verify import verify

STEPS = 16
SPACE = {"lr": Range(0.0, 1.0), "width": Range(1.0, 20.0)}
PAIR: dict[str, Any] = {"objectives": [Objective("accuracy"), Objective("size", "minimize", reference=20)]}
BOUND: dict[str, Any] = {"objectives": [Objective("accuracy")], "constraints": [Constraint("size", at_most=6)]}


def train(lr: float, width: float, folder: Path, report: Any) -> dict[str, float]:
    """The accuracy rises with the steps and the width, which is the size."""
    checkpoint = folder / "step.json"
    first = json.loads(checkpoint.read_text()) + 1 if checkpoint.exists() else 1
    for step in range(first, STEPS + 1):
        accuracy = (1.0 - (lr - 0.5) ** 2) * width / (width + 3.0) * (1.0 - 0.5 / step)
        report({"accuracy": accuracy, "size": width}, step)
        checkpoint.write_text(json.dumps(step))
    return {"accuracy": accuracy, "size": width}


def train_silently(lr: float, width: float, folder: Path, report: Any) -> dict[str, float]:
    """The same training, whose size is known only at its end."""
    return train(lr, width, folder, lambda metrics, step: report(metrics["accuracy"], step))


def run(tmp_path: Path, function: Any, goals: dict[str, Any], **rule: Any) -> Result:
    return tune(
        function,
        SPACE,
        **goals,
        evaluations=100,
        steps=10 * STEPS,
        executor="inline",
        early_stopping=rule,
        progress=False,
        settings={"runs": str(tmp_path / "runs"), "workers": {"trial_folders": True}},
    )


def causes(result: Result) -> list[str]:
    return [event.cause for event in open_run(result.folder).events() if isinstance(event, TrialStopped)]


@pytest.mark.thorough
@pytest.mark.parametrize("goals", [PAIR, BOUND])
@pytest.mark.parametrize("rule", [{"rule": "median"}, {"rule": "asha", "metric": "accuracy"}])
def test_campaign_stops_trials_and_its_log_is_sound(tmp_path: Path, goals: Any, rule: Any) -> None:
    result = run(tmp_path, train, goals, **rule)
    assert causes(result)
    assert result.front
    assert all(trial.status == "succeeded" for trial in result.front)
    if goals is BOUND:
        assert result.best.metrics["size"] <= 6
    with open_run(result.folder).store() as store:
        assert verify(store, result.folder.name).problems == []
    replayed = CliRunner().invoke(app, ["replay", str(result.folder)])
    assert "all results are equal" in " ".join(replayed.output.split())


def test_trials_are_compared_by_the_named_metric(tmp_path: Path) -> None:
    result = run(tmp_path, train, PAIR, rule="median", metric="size")
    stopped = [trial.parameters["width"] for trial in result.trials if trial.status == "stopped"]
    whole = [trial.parameters["width"] for trial in result.trials if trial.status == "succeeded"]
    assert stopped
    assert sorted(stopped)[len(stopped) // 2] > sorted(whole)[len(whole) // 2]


def test_trial_is_not_stopped_for_a_metric_that_is_known_at_its_end(tmp_path: Path) -> None:
    assert not causes(run(tmp_path, train_silently, PAIR, rule="median", metric="size"))


@pytest.mark.parametrize(
    ("goals", "rule", "keys"),
    [
        (PAIR, {"rule": "model"}, "early_stopping.rule must be median or asha"),
        (BOUND, {"rule": "model"}, "early_stopping.rule must be median or asha"),
        (BOUND, {"rule": "median", "metric": "size"}, "early_stopping.metric must be the metric of an objective"),
    ],
)
def test_early_stopping_that_several_goals_exclude_is_refused(tmp_path: Path, goals: Any, rule: Any, keys: str) -> None:
    with pytest.raises(UserError, match=keys):
        run(tmp_path, train, goals, **rule)


def test_optimizer_trains_in_steps_with_a_single_goal_only() -> None:
    with pytest.raises(ValueError, match="steps needs a single objective"):
        Optimizer(SPACE, **PAIR, steps=STEPS)
