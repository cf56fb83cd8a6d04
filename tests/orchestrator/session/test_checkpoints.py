"""Checkpoints of campaigns: which are removed, and warnings about trials that restart."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bbkb import Result
from bbkb.objectives.parameters import Range
from bbkb.orchestrator.campaign.events import CheckpointsRemoved, TrialsContinued
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.store.runs import open_run
from bbkb.orchestrator.store.verify import verify
from tests.orchestrator.runs import tune_here

STEPS = 27
SPACE = {"lr": Range(1e-4, 1.0, log=True), "width": Range(0.0, 1.0)}


def train(lr: float, width: float, folder: Path, report: Any) -> float:
    """A curve that rises; it prints, keeps a checkpoint and a picture, and continues from the
    checkpoint."""
    end = 1.0 - 0.2 * (math.log10(lr) + 2.0) ** 2 - (width - 0.6) ** 2
    checkpoint, value = folder / "epoch.json", 0.0
    first = json.loads(checkpoint.read_text()) + 1 if checkpoint.exists() else 1
    print(f"from step {first}")
    (folder / "pictures").mkdir(exist_ok=True)
    (folder / "pictures" / "loss.txt").write_text("falls")
    for epoch in range(first, STEPS + 1):
        value = end - 0.5 / epoch
        (folder / "draft.json").write_text(json.dumps(epoch))
        (folder / "draft.json").rename(checkpoint)
        report(value, epoch)
    return value


def run(
    tmp_path: Path,
    trains: Any = train,
    trainings: int = 20,
    resume: Path | None = None,
    **rule: Any,
) -> Result:
    settings = {
        "strategy": {"name": "bbkb"},
        "early_stopping": {"rule": "model", "last_step": STEPS, **rule},
        "budget": {"steps": trainings * STEPS},
    }
    resumed = {} if resume is None else {"resume": resume}
    return tune_here(tmp_path / "runs", trains, SPACE, settings, evaluations=400, **resumed)


def test_checkpoints_are_kept_of_the_most_promising_stopped_trials_also_after_a_kill(tmp_path: Path) -> None:
    result = run(tmp_path, keep_checkpoints=5)
    opened = open_run(result.folder)
    events = list(opened.events())
    removed = [trial for event in events if isinstance(event, CheckpointsRemoved) for trial in event.trials]
    assert len(removed) == len(set(removed)) >= 5
    later: set[int] = set()
    for event in events:
        if isinstance(event, CheckpointsRemoved):
            later.update(event.trials)
        if isinstance(event, TrialsContinued):
            assert not later & set(event.trials)
    rows = {row["trial"]: row for row in result.rows() if row["status"] != "queued"}
    for trial, row in rows.items():
        files = {path.name for path in (result.folder / "trials" / f"{trial:06d}").iterdir()}
        assert "output-1.txt" in files
        assert ("epoch.json" in files) == (trial not in removed), row["status"]
        assert trial not in removed or row["status"] == "stopped"
    assert max(row["value"] for row in rows.values() if row["status"] == "succeeded") > 0.9
    with opened.store() as store:
        assert verify(store, result.folder.name).problems == []
    leftover = result.folder / "trials" / f"{removed[0]:06d}" / "epoch.json"
    leftover.write_text("5")  # as after a kill between the event and the removal
    run(tmp_path, trainings=21, resume=result.folder, keep_checkpoints=5)
    assert not leftover.exists()


@pytest.mark.thorough
def test_checkpoints_are_all_kept_unless_a_number_is_given_and_continue_without_a_warning(tmp_path: Path) -> None:
    result = run(tmp_path)
    events = open_run(result.folder).events()
    assert not any(isinstance(event, CheckpointsRemoved) for event in events)
    assert any(isinstance(event, TrialsContinued) for event in events)
    begun = sum(row["attempts"] > 0 for row in result.rows())  # also of trials chosen too late
    status = json.loads(CliRunner().invoke(app, ["status", str(result.folder), "--json"]).output)
    assert status["checkpoints"]["trials"] == begun
    assert 6 * begun <= status["checkpoints"]["size"] <= 7 * begun  # "falls", and a number of one or two digits
    shown = CliRunner().invoke(app, ["status", str(result.folder)]).output
    assert f"in the folders of {begun} trials" in shown
    assert "restarted at the first step" not in " ".join(shown.split())


def test_continued_trial_that_restarts_is_named_in_a_warning(tmp_path: Path) -> None:
    def forgetful(lr: float, width: float, folder: Path, report: Any) -> float:
        (folder / "epoch.json").unlink(missing_ok=True)
        return train(lr, width, folder, report)

    result = run(tmp_path, forgetful)
    continued = [event for event in open_run(result.folder).events() if isinstance(event, TrialsContinued)]
    assert continued
    shown = CliRunner().invoke(app, ["status", str(result.folder)]).output
    assert "restarted at the first step: the checkpoint" in " ".join(shown.split())
    trial = continued[0].trials[0]
    described = CliRunner().invoke(app, ["status", str(result.folder), "--trial", str(trial)]).output
    assert "it restarted at the first step when it was continued" in " ".join(described.split())


@pytest.mark.parametrize("failing", [0, 1, 4])
def test_campaign_without_a_last_step_completes_a_trial(tmp_path: Path, failing: int) -> None:
    """Of five trials, `failing` cannot go beyond step 5; the campaign is interrupted and
    resumed."""

    def fails(lr: float, width: float, folder: Path, report: Any) -> float:
        def checked(value: float, step: int) -> None:
            report(value, step)
            if step > 5 and int(folder.name) % 5 < failing:
                raise OSError(28, "No space left on device")

        return train(lr, width, folder, checked)

    begun = run(tmp_path, fails, trainings=1, last_step=None)
    result = run(tmp_path, fails, trainings=3, last_step=None, resume=begun.folder)
    assert "succeeded" in {row["status"] for row in result.rows()}


def test_fewer_checkpoints_than_trials_to_finish_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"early_stopping.keep_checkpoints must be >= 3, the trials .* got 2"):
        run(tmp_path, keep_checkpoints=2)
