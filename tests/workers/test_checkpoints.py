"""Checkpoints in the folders of trials: which are removed, and that the output of attempts
stays."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from bbkb.workers.output import (
    Checkpoints,
    begin_with_copy,
    checkpoints_in,
    remove_checkpoints,
    remove_saved,
    save_checkpoint,
)


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
