"""Reports of trainings, and their checkpoints."""

import math
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers import messages
from bbkb.workers.evaluate import evaluate
from bbkb.workers.messages import Attempt, TrialFailed, TrialSucceeded
from bbkb.workers.output import (
    KEPT_REPORTS,
    Checkpoints,
    begin_with_copy,
    checkpoints_in,
    remove_checkpoints,
    remove_saved,
    save_checkpoint,
)
from tests.workers.evaluations import UNLIMITED, Doing, Published


def attempt_of(
    folder: Path,
    steps: range,
    recorded_step: int = 0,
    is_killed: bool = False,
) -> tuple[list[messages.Report], object]:
    """Return the published reports and the outcome of an attempt that reports these steps."""

    def trains(_: Parameters, _seed: int, report: Report) -> Evaluation:
        for step in steps:
            report(math.nan if step == 4 else step / 10, step, loss=1.0)
        if is_killed:
            raise SystemExit
        return Evaluation(1.0)

    published = Published()
    attempt = Attempt(0, 0, {}, 0, folder=folder, recorded_step=recorded_step)
    outcome = evaluate(Doing(trains), attempt, UNLIMITED, publish=published)
    return [reported for reported in published if reported], outcome


def steps_of(reports: list[messages.Report]) -> list[int]:
    return [reported.step for reported in reports]


def test_attempt_reports_the_steps_of_a_killed_one_that_the_log_lacks(tmp_path: Path) -> None:
    killed, failure = attempt_of(tmp_path, range(1, 7), is_killed=True)
    assert isinstance(failure, TrialFailed)
    published, success = attempt_of(tmp_path, range(6, 9), recorded_step=2)
    assert steps_of(published) == [3, 4, 5, 6, 7, 8]
    assert str(published[:3]) == str(killed[2:5])  # with NaN and the metrics
    assert isinstance(success, TrialSucceeded)
    assert steps_of(list(success.reports)) == [3, 4, 5, 6, 7, 8]


def test_attempt_that_was_killed_again_leaves_its_reports_and_those_before(tmp_path: Path) -> None:
    attempt_of(tmp_path, range(1, 5), is_killed=True)
    attempt_of(tmp_path, range(4, 7), recorded_step=1, is_killed=True)
    published, _ = attempt_of(tmp_path, range(7, 8), recorded_step=1)
    assert steps_of(published) == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(("steps", "expected"), [(range(1, 3), [1, 2]), (range(0), [])])
def test_attempt_that_restarts_reports_only_its_own_steps(tmp_path: Path, steps: range, expected: list[int]) -> None:
    attempt_of(tmp_path, range(1, 6), is_killed=True)
    published, _ = attempt_of(tmp_path, steps, recorded_step=1)
    assert steps_of(published) == expected


def test_training_that_has_no_step_left_gives_the_missing_reports_with_its_result(tmp_path: Path) -> None:
    attempt_of(tmp_path, range(1, 6), is_killed=True)
    _, success = attempt_of(tmp_path, range(0), recorded_step=3)
    assert isinstance(success, TrialSucceeded)
    assert steps_of(list(success.reports)) == [4, 5]


@pytest.mark.parametrize("end", ["[4, 0.4, [", "[4]\n", "[]\nnull\n", "\x00\n", '{"a": 1}\n', '["x", 1, []]'])
def test_damaged_line_costs_one_report(tmp_path: Path, end: str) -> None:
    attempt_of(tmp_path, range(1, 4), is_killed=True)
    with (tmp_path / KEPT_REPORTS).open("a") as file:
        file.write(end)
    assert steps_of(attempt_of(tmp_path, range(6, 7), recorded_step=1)[0]) == [2, 3, 6]


def test_unusable_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / KEPT_REPORTS).mkdir()
    published, success = attempt_of(tmp_path, range(1, 4))
    assert isinstance(success, TrialSucceeded)
    assert steps_of(published) == [1, 2, 3]


def fill(folder: Path, **files: str) -> None:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_cleanup_removes_everything_but_the_output_of_attempts(tmp_path: Path) -> None:
    fill(tmp_path / "000003", weights_pt="1", deep__er__weights_pt="2")
    for name in ("output-1.txt", "output-12.txt", "output-x.txt"):
        (tmp_path / "000003" / name).write_text("printed")
    (tmp_path / "outside").write_text("kept")
    (tmp_path / "000003" / "link").symlink_to(tmp_path / "outside")
    fill(tmp_path / "000004", weights_pt="1")
    for _ in range(2):
        remove_checkpoints(tmp_path, [3, 99])
        assert {path.name for path in (tmp_path / "000003").iterdir()} == {"output-1.txt", "output-12.txt"}
    assert (tmp_path / "outside").read_text() == "kept"
    assert (tmp_path / "000004" / "weights.pt").exists()
    remove_checkpoints(None, [4])


def test_sizes_count_the_files_to_be_removed(tmp_path: Path) -> None:
    assert checkpoints_in(tmp_path / "missing") == Checkpoints(0, 0)
    fill(tmp_path / "000000", weights_pt="12345", deep__weights_pt="123")
    (tmp_path / "000000" / "output-1.txt").write_text("printed")
    fill(tmp_path / "000001", weights_pt="12")
    (tmp_path / "000002").mkdir()
    fill(tmp_path / "other", weights_pt="1")
    checkpoints = checkpoints_in(tmp_path)
    assert checkpoints == Checkpoints(trials=2, size=10)


def test_folder_behind_a_link_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path / "shared", weights_pt="1")
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "000003").symlink_to(tmp_path / "shared")
    remove_checkpoints(tmp_path / "trials", [3])
    assert "checkpoint of trial 3" in caplog.text
    fill(tmp_path / "trials" / "000002", step_txt="8")
    save_checkpoint(tmp_path / "trials" / "000002", 8)
    begin_with_copy(tmp_path / "trials" / "000003", (2, 8))
    assert {path.name for path in (tmp_path / "shared").iterdir()} == {"weights.pt", "step.txt", ".copied"}


def test_size_omits_a_file_that_is_renamed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As running trials do with the draft of a checkpoint."""
    fill(tmp_path / "000000", weights_pt="12345", draft_pt="12")
    scan = os.scandir

    def renaming(path: str) -> Any:
        items = list(scan(path))
        for entry in items:
            if entry.name == "draft.pt":
                Path(entry.path).unlink()
        return nullcontext(items)

    monkeypatch.setattr(os, "scandir", renaming)
    assert checkpoints_in(tmp_path) == Checkpoints(trials=1, size=5)


def test_copied_checkpoint_is_whole_after_kills_and_is_not_copied_again(tmp_path: Path) -> None:
    parent, child = tmp_path / "000012", tmp_path / "000034"
    (parent / "layers").mkdir(parents=True)
    (parent / "layers" / "weights").write_text("whole")
    (parent / "output-1.txt").write_text("printed")
    (parent / ".reports").write_text("[1, 0.5, []]")
    (tmp_path / ".saved" / "000012-20.draft").mkdir(parents=True)  # of a killed worker
    save_checkpoint(parent, 20)
    (parent / "layers" / "weights").write_text("trained on")
    (child / "layers").mkdir(parents=True)
    (child / "layers" / "weights").write_text("who")  # the worker was killed while it copied
    (child / "old").touch()
    begin_with_copy(child, (12, 20))
    assert sorted(path.name for path in child.rglob("*")) == [".copied", "layers", "weights"]
    assert (child / "layers" / "weights").read_text() == "whole"
    (child / "layers" / "weights").write_text("trained")
    begin_with_copy(child, (12, 20))
    begin_with_copy(child, (12, 20), copies=False)  # another rank
    assert (child / "layers" / "weights").read_text() == "trained"
    save_checkpoint(parent, 30)
    remove_saved(tmp_path, {12: 30})
    assert [path.name for path in (tmp_path / ".saved").iterdir()] == ["000012-30"]
    (tmp_path / "000035").mkdir()
    with pytest.raises(OSError, match=r"the checkpoint of trial 12 at step 20 is missing: .*000012-20"):
        begin_with_copy(tmp_path / "000035", (12, 20))
