"""The base of the callbacks: reports, also as lines of a command, and complete checkpoints in the
trial's folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bbkb.objectives.machines import Machine, folder_of
from bbkb.objectives.objective import NAME_CHARACTERS, EvaluationStopped
from bbkb.objectives.report_lines import ReportLines
from bbkb.objectives.trial import Trial
from bbkb.workers.messages import Report
from bbkb.workers.reporting import Reports
from tests.reported import reported


def writes(text: str) -> Callable[[str], int]:
    return lambda path: Path(path).write_text(text)


def own_report(value: object, step: int | None = None, **metrics: float) -> None: ...


def test_trial_reports_and_learns_that_the_campaign_stops_it(tmp_path: Path) -> None:
    reports = Reports(lambda reported: reported is not None and reported.step == 2)
    trial = Trial(reports, tmp_path)
    assert not trial.report({"loss": 0.5}, "loss", 1)
    assert trial.report(
        {"loss": 0.25, "rate": 3, "step": 9, "name": "none", "n" * (NAME_CHARACTERS + 1): 1.0, "": 1.0, "self": 2},
        "loss",
        2,
    )
    assert reports.points() == (reported(1, 0.5), reported(2, 0.25, rate=3.0, self=2.0))


@pytest.mark.parametrize("rank", [0, 1])
def test_trial_on_several_machines_reports_only_on_the_first(rank: int) -> None:
    machine = Machine(rank, 2, ("10.0.0.1", "10.0.0.2"), 29500)
    assert Trial(Reports(machine=machine)).is_first == (rank == 0)


def test_missing_metric_is_rejected_with_the_existing_ones() -> None:
    with pytest.raises(KeyError, match=r"metric 'acuracy' must be one that the training computes: loss, accuracy"):
        Trial(Reports()).report({"loss": 0.5, "accuracy": 0.1}, "acuracy", 1)


def test_trial_without_a_report_prints_lines_of_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Trial().report({"loss": 0.5}, "loss", 1)
    assert capsys.readouterr().out == "BBKB_REPORT 1 0.5\n"
    monkeypatch.setenv("BBKB_RESULT", "result.json")
    print("a progress bar", end="")
    Trial().report({"loss": 0.1 + 0.2, "val accuracy": 0.5, "k=1": 2.0}, "loss", 7)
    reports = Reports()
    ReportLines(reports, 0).take(capsys.readouterr().out.encode())
    assert reports.points() == (Report(0, 1, 7, {"value": 0.1 + 0.2, "val_accuracy": 0.5, "k=1": 2.0}),)


def test_folder_comes_from_the_argument_the_report_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BBKB_FOLDER", raising=False)
    assert Trial().folder is None
    monkeypatch.setenv("BBKB_FOLDER", str(tmp_path / "environment"))
    assert Trial().folder == tmp_path / "environment"
    assert Trial(Reports()).folder is None  # that of an outer command is not this trial's
    assert Trial(Reports(folder=tmp_path / "report"), tmp_path / "argument").folder == tmp_path / "argument"
    monkeypatch.setattr(own_report, "folder", tmp_path / "report", raising=False)  # its only attribute
    for report in (Reports(folder=tmp_path / "report"), own_report):
        assert Trial(report).folder == folder_of(report) == tmp_path / "report"


def test_newest_complete_checkpoint_is_found_and_the_previous_one_removed(tmp_path: Path) -> None:
    trial = Trial(folder=tmp_path)
    assert (trial.checkpoint, trial.step) == (None, 0)
    for step in (9, 10):
        trial.save(writes(str(step)), step, ".json")
    (tmp_path / "draft-11.json").write_text("incomplete")
    (tmp_path / "output-1.txt").write_text("printed")
    reopened = Trial(folder=tmp_path)
    assert (reopened.checkpoint, reopened.step) == (tmp_path / "step-10.json", 10)
    assert (tmp_path / "step-10.json").read_text() == "10"
    assert {path.name for path in tmp_path.iterdir()} == {"step-10.json", "draft-11.json", "output-1.txt"}


def test_drafts_of_an_attempt_that_was_killed_are_removed_with_the_next_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "draft-4.json").write_text("incomplete")
    (tmp_path / "draft-5").mkdir()
    (tmp_path / "draft-5" / "weights").write_text("incomplete")
    Trial(folder=tmp_path).save(writes("complete"), 6, ".json")
    assert [path.name for path in tmp_path.iterdir()] == ["step-6.json"]


def test_checkpoint_may_be_a_folder_and_replaces_one_of_the_same_step(tmp_path: Path) -> None:
    trial = Trial(folder=tmp_path)
    for content in ("first", "second"):
        draft = tmp_path / "saved"
        draft.mkdir()
        (draft / "weights").write_text(content)
        trial.keep(draft, 1)
        trial = Trial(folder=tmp_path)
    assert (tmp_path / "step-1" / "weights").read_text() == "second"
    trial.save(writes("third"), 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-2"]


def test_trial_without_a_folder_saves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BBKB_FOLDER", raising=False)

    def fail(path: str) -> None:
        raise AssertionError(path)

    Trial().save(fail, 1)


def test_exception_of_another_kind_is_not_a_stop() -> None:
    def stop(reported: Report | None) -> bool:
        raise EvaluationStopped

    assert Trial(Reports(stop)).report({"loss": 0.0}, "loss", 1)
    with pytest.raises(ValueError, match="could not convert"):
        Trial(Reports()).report({"loss": "none"}, "loss", 1)
