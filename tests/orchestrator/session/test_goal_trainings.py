"""Campaigns with early stopping and several objectives or constraints, from function to log."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bbkb import Constraint, Objective, Range
from bbkb.orchestrator.api import Result, tune
from bbkb.orchestrator.campaign.events import ModelRefreshed, TrialStopped
from bbkb.orchestrator.campaign.stops import StopCause
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
@pytest.mark.parametrize("rule", [{"rule": "median"}, {"rule": "asha"}, {"rule": "model", "last_step": STEPS}])
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


def test_trial_is_not_stopped_for_a_metric_that_is_known_at_its_end(tmp_path: Path) -> None:
    assert not causes(run(tmp_path, train_silently, PAIR, rule="median"))


def test_model_forecasts_every_metric(tmp_path: Path) -> None:
    result = run(tmp_path, train, BOUND, rule="model", last_step=STEPS)
    events = list(open_run(result.folder).events())
    forecasts = [forecast for event in events if isinstance(event, ModelRefreshed) for forecast in event.forecasts]
    sizes = {trial.trial: trial.parameters["width"] for trial in result.trials}
    assert forecasts
    held = [one.further[0].low <= 6 - sizes[one.trial] <= one.further[0].high for one in forecasts]
    assert sum(held) >= 0.8 * len(held)
    assert set(causes(result)) <= {*StopCause}
