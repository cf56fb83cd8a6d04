"""The examples of docs/guide/distributed.md run as they are printed, on this machine."""

import re
from pathlib import Path

import pytest

from bbkb import load
from tests.processes import REPOSITORY, run_python

PAGE = (REPOSITORY / "docs" / "guide" / "distributed.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The code blocks of the page in this language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["torch"])
def test_example_trains_on_two_machines(tmp_path: Path, library: str) -> None:
    pytest.importorskip(library)
    (code,) = (block for block in blocks("python") if f"import {library}\n" in block)
    (campaign,) = blocks("yaml")
    (tmp_path / "train.py").write_text(code)
    (tmp_path / "campaign.yaml").write_text(campaign)
    options = ("--set", "workers.spread=soft", "--set", "run=one")
    done = run_python("-m", "bbkb", "run", "campaign.yaml", *options, cwd=tmp_path, seconds=290)
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [trial.value for trial in load(tmp_path / "runs" / "one").trials]
    assert len(losses) == 4
    assert all(loss is not None and 0.0 < loss < 10.0 for loss in losses)
