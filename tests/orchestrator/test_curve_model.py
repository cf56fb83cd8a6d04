"""Campaigns with the rule `model`: short first trainings, stops, continuations from checkpoints,
kills."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bbkb import Result, load
from bbkb.objectives.parameters import Range
from bbkb.orchestrator.api.campaign import Space
from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    CampaignCreated,
    ModelRefreshed,
    ReportsArrived,
    StopCause,
    TrialsContinued,
    TrialStopped,
    TrialSucceeded,
)
from bbkb.orchestrator.campaign.policy import stop_cause
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.engine.engine import Problem
from bbkb.orchestrator.engine.replaying import replay_until
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.store.runs import Run, open_run
from bbkb.orchestrator.store.verify import verify
from tests.orchestrator.runs import tune_here

STEPS = 27
RULE = {"rule": "model", "last_step": STEPS}


def train(lr: float, width: float, folder: Path, report: Any) -> float:
    """A curve that rises to an end that is best at lr = 0.01 and width = 0.6; continues from a
    checkpoint."""
    end = 1.0 - 0.2 * (math.log10(lr) + 2.0) ** 2 - (width - 0.6) ** 2
    checkpoint, value = folder / "epoch.json", 0.0
    first = json.loads(checkpoint.read_text()) + 1 if checkpoint.exists() else 1
    for epoch in range(first, STEPS + 1):
        value = end - 0.5 / epoch
        draft = folder / "draft.json"
        draft.write_text(json.dumps(epoch))
        draft.rename(checkpoint)
        with (folder / "epochs.txt").open("a") as log:
            log.write(f"{epoch}\n")
        report(value, epoch)
    return value


SPACE: Space = {"lr": Range(1e-4, 1.0, log=True), "width": Range(0.0, 1.0)}


def run(
    tmp_path: Path,
    function: Any = train,
    space: Space = SPACE,
    evaluations: int = 400,
    **sections: Any,
) -> Result:
    """Run a campaign with `RULE` and a budget of 20 trainings unless `sections` differ."""
    sections = {"early_stopping": RULE, "budget": {"steps": 20 * STEPS}, **sections}
    settings = {"strategy": {"name": "bbkb"}, **sections}
    return tune_here(tmp_path / "runs", function, space, settings, evaluations=evaluations)


def problem_of(opened: Run) -> Problem:
    created = opened.events()[0]
    assert isinstance(created, CampaignCreated)
    return build(created.settings).problem


def picks_of(result: Result) -> list[int]:
    batches = (event for event in open_run(result.folder).events() if isinstance(event, BatchChosen))
    return [pick.arm for batch in batches for pick in batch.picks]


def test_campaign_pauses_many_trials_and_finishes_the_best_from_their_checkpoints(tmp_path: Path) -> None:
    result = run(tmp_path)
    events = list(open_run(result.folder).events())
    stops = [event for event in events if isinstance(event, TrialStopped)]
    assert sum(event.cause == "short first training" for event in stops) >= 15
    continued = {trial for event in events if isinstance(event, TrialsContinued) for trial in event.trials}
    assert continued
    finished = [row for row in result.rows() if row["status"] == "succeeded"]
    assert continued & {row["trial"] for row in finished}
    assert result.best.value == max(row["value"] for row in finished) > 0.9
    for folder in (result.folder / "trials").iterdir():
        epochs = Counter((folder / "epochs.txt").read_text().split())
        assert set(epochs.values()) == {1}  # no step was trained twice
    with open_run(result.folder).store() as store:
        assert verify(store, result.folder.name).problems == []


@pytest.mark.parametrize("budget", [{"hours": 10.0}, {"steps": 100 * STEPS}])
def test_paused_trials_are_completed_after_the_last_of_few_evaluations(tmp_path: Path, budget: dict[str, Any]) -> None:
    result = run(tmp_path, evaluations=12, budget=budget)
    ends = Counter(row["status"] for row in result.rows())
    assert ends["succeeded"] >= 1
    assert result.best.value is not None
    assert result.best.value > 0.5


def test_first_trainings_and_pauses_end_in_the_worker_although_the_stop_comes_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_limits = {StopCause.FIRST_TRAINING, StopCause.PAUSE}

    def stops_nothing_at_a_limit(state: CampaignState, trial: int) -> StopCause | None:
        cause = stop_cause(state, trial)
        return None if cause in at_limits else cause

    monkeypatch.setattr("bbkb.orchestrator.session.evaluations.stop_cause", stops_nothing_at_a_limit)
    monkeypatch.setattr("bbkb.orchestrator.campaign.settings.FINISH", 0)
    rule = {**RULE, "first_trials": 12, "first_steps": 3}
    result = run(tmp_path, early_stopping=rule, budget={"steps": 8 * STEPS})
    events = open_run(result.folder).events()
    stops = [event for event in events if isinstance(event, TrialStopped)]
    first = [(event.step, event.cause) for event in stops if event.trial < 12 and event.attempt == 1]
    assert set(first) == {(3, "short first training")}
    assert len(first) > 3  # of 12; the number depends on the time of refits
    paused = {event.step for event in stops if event.cause == StopCause.PAUSE}
    assert paused <= {4, 7, 14}  # ⅛, ¼ and ½ of 27 steps, rounded up
    assert {4, 7} <= paused


@pytest.mark.thorough
def test_replay_repeats_every_choice_and_fit(tmp_path: Path) -> None:
    opened = open_run(run(tmp_path).folder)
    problem = problem_of(opened)
    replayed = replay_until(problem, list(opened.events()), None, is_checked=True)
    assert replayed.repeated > 10
    assert replayed.differences == ()


def test_refresh_records_forecasts_that_cover_most_final_values(tmp_path: Path) -> None:
    result = run(tmp_path, early_stopping={**RULE, "first_trials": 0, "after": STEPS - 1})
    final = {row["trial"]: row["value"] for row in result.rows() if row["status"] == "succeeded"}
    forecasts = {}
    for event in open_run(result.folder).events():
        if isinstance(event, ModelRefreshed):
            forecasts.update({forecast.trial: forecast for forecast in event.forecasts})
    ended = [(one, final[trial]) for trial, one in forecasts.items() if trial in final]
    inside = [one.low <= value <= one.high for one, value in ended]
    assert not ended or sum(inside) >= 0.8 * len(inside)


def test_recommended_noisy_training_has_an_estimate_and_forecasts_contain_reported_values(tmp_path: Path) -> None:
    def train_noisy(lr: float, width: float, folder: Path, report: Any) -> float:
        luck = np.random.default_rng(int(lr * 1e9)).normal(0.0, 0.05, STEPS + 1)
        last = 0.0

        def with_luck(value: float, epoch: int) -> None:
            nonlocal last
            last = value + luck[epoch]
            report(last, epoch)

        train(lr, width, folder, with_luck)
        return last

    result = run(tmp_path, train_noisy, workers={"executor": "simulated"}, budget={"steps": 12 * STEPS})
    best = result.best
    quiet = train(best.parameters["lr"], best.parameters["width"], tmp_path, lambda value, epoch: None)
    assert best.estimate is not None
    assert best.deviation is not None
    assert abs(best.estimate - quiet) < 3.0 * best.deviation < 0.2
    reported: dict[int, float] = {}
    for event in open_run(result.folder).events():
        values: list[tuple[int, float]] = []
        if isinstance(event, ReportsArrived):
            values = [(report.trial, report.values["value"]) for report in event.reports]
        if isinstance(event, TrialStopped | TrialSucceeded):  # the last reports arrive with the outcome
            values = [(event.trial, report.values["value"]) for report in event.reports]
        for trial, value in values:
            reported[trial] = max(value, reported.get(trial, value))
        if isinstance(event, ModelRefreshed):
            assert all(forecast.low <= reported[forecast.trial] + 1e-9 for forecast in event.forecasts)


@pytest.mark.parametrize("continues", [False, None])
def test_stopped_trial_without_a_folder_restarts_or_ends(tmp_path: Path, continues: bool | None) -> None:
    def short(lr: float, report: Any) -> float:
        distance = abs(math.log10(lr) + 2.0)
        for epoch in range(1, STEPS + 1):  # poor ones catch up with the others
            report(-distance * (1.0 - 0.5 * epoch / STEPS) - 0.5 / epoch, epoch)
        return -0.5 * distance

    rule = {**RULE, "continue": continues}
    sections: dict[str, Any] = {"workers": {"executor": "simulated"}, "early_stopping": rule, "seed": 1}
    result = run(tmp_path, short, {"lr": SPACE["lr"]}, 40, budget={}, **sections)
    events = list(open_run(result.folder).events())
    assert any(isinstance(event, TrialStopped) for event in events)
    reasons = {event.reason for event in events if isinstance(event, TrialsContinued)}
    assert reasons == ({"finish"} if continues is None else set())  # after the last start only
    reports = [report for event in events if isinstance(event, ReportsArrived) for report in event.reports]
    again = [step for _, attempt, step, _ in reports if attempt > 1]
    assert (1 in again) is (continues is None)
    assert not (result.folder / "trials").exists()


def test_curves_reach_the_model_without_early_stopping_too(tmp_path: Path) -> None:
    workers = {"executor": "inline", "trial_folders": True}
    result = run(tmp_path, early_stopping=None, workers=workers, budget={"steps": 6 * STEPS})
    records = [event.record["model"] for event in open_run(result.folder).events() if isinstance(event, ModelRefreshed)]
    assert "curve" in records[-1]


def test_trials_that_report_nothing_give_the_picks_of_a_model_without_steps(tmp_path: Path) -> None:
    def plain(lr: float, report: Any) -> float:
        return -abs(math.log10(lr) + 2.0)

    sections: dict[str, Any] = {"workers": {"executor": "simulated"}, "budget": {}}
    space = {"lr": SPACE["lr"]}
    runs = [run(tmp_path, plain, space, 24, **sections, early_stopping=rule) for rule in (None, RULE)]
    assert picks_of(runs[0]) == picks_of(runs[1])


PATHS = [str(Path(__file__).parent), str(Path(__file__).parents[2])]  # of this module, and of `tests`


@pytest.mark.thorough
def test_killed_campaign_continues_with_its_paused_trials(tmp_path: Path) -> None:
    (tmp_path / "killing.py").write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path[:0] = {PATHS!r}
            import os, signal
            from pathlib import Path
            import test_curve_model as module

            def killed(lr, width, folder, report):
                def watched(value, epoch):
                    report(value, epoch)
                    if folder.name == "000025" and epoch == 2:
                        os.kill(os.getpid(), signal.SIGKILL)
                return module.train(lr, width, folder, watched)

            """
        )
    )
    script = tmp_path / "campaign.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import killing
            from bbkb import tune
            tune(killing.killed, killing.module.SPACE, direction="maximize", evaluations=400, progress=False,
                 name="killed", settings={{"workers": {{"executor": "inline"}}, "runs": {str(tmp_path / "runs")!r},
                                          "early_stopping": killing.module.RULE, "budget": {{"steps": 540}}}})
            """
        )
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    folder = next((tmp_path / "runs").glob("killed*"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *PATHS])}
    again = [sys.executable, "-m", "bbkb", "resume", str(folder), "--set", "budget.steps=600"]
    resumed = subprocess.run(again, capture_output=True, text=True, timeout=300, env=environment)
    assert resumed.returncode in (0, -signal.SIGKILL), resumed.stderr
    with open_run(folder).store() as store:
        assert verify(store, folder.name).problems == []
    assert len(load(folder).rows()) > 25
