"""Damage of a run's folder that SQLite cannot see: a lost campaign file, and a log without its end."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Bbkb = Callable[..., subprocess.CompletedProcess[str]]

CAMPAIGN = """
name: sine
objective: {name: sine}
candidates: {size: 50}
strategy: {name: uniform}
budget: {evaluations: 4}
workers: {executor: inline}
run: sine
"""
RUN = "runs/sine"


@pytest.fixture
def folder(bbkb: Bbkb, tmp_path: Path) -> Path:
    """A folder with a campaign file and a run that has ended."""
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN)
    assert bbkb(tmp_path, "run", "campaign.yaml").returncode == 0
    return tmp_path


def lose_the_last_session(bbkb: Bbkb, folder: Path) -> None:
    """Leave the log as it is if the WAL of the second session is deleted."""
    log = folder / RUN / "campaign.sqlite"
    shutil.copy(log, folder / "before")
    assert bbkb(folder, "resume", RUN, "--set", "budget.evaluations=6").returncode == 0
    shutil.copy(folder / "before", log)


def test_resume_is_rejected_if_the_log_has_lost_a_session(bbkb: Bbkb, folder: Path) -> None:
    lose_the_last_session(bbkb, folder)
    refused = bbkb(folder, "resume", RUN)
    assert refused.returncode == 2
    assert "has lost its end: provenance.json counts 2 sessions, and the log has 1" in refused.stderr
    assert "campaign.sqlite-wal" in refused.stderr
    verified = bbkb(folder, "verify", RUN)
    assert verified.returncode == 1
    assert "has lost its end" in verified.stdout


def test_resume_continues_a_shorter_log_if_the_user_accepts_the_loss(bbkb: Bbkb, folder: Path) -> None:
    lose_the_last_session(bbkb, folder)
    file = folder / RUN / "provenance.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "sessions": 1}))
    assert bbkb(folder, "resume", RUN).returncode == 0


def test_resume_is_rejected_if_a_trial_is_not_in_the_log(bbkb: Bbkb, folder: Path) -> None:
    (folder / RUN / "trials" / "000004").mkdir(parents=True)
    refused = bbkb(folder, "resume", RUN, "--set", "budget.evaluations=6")
    assert refused.returncode == 2
    assert "has files of trial 4, and the log has 4 trials" in refused.stderr
    (folder / RUN / "trials" / "000004").rename(folder / RUN / "trials" / "000003")
    assert bbkb(folder, "resume", RUN, "--set", "budget.evaluations=6").returncode == 0


@pytest.mark.parametrize("content", [None, b"", b"\0" * 500])
def test_resume_and_verify_use_the_settings_of_the_log(bbkb: Bbkb, folder: Path, content: bytes | None) -> None:
    file = folder / RUN / "campaign.yaml"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    verified = bbkb(folder, "verify", RUN)
    assert verified.returncode == 0, verified.stderr
    assert "campaign.yaml is missing or empty: using the settings that the log recorded" in verified.stdout
    assert "sine" in bbkb(folder, "list").stdout
    resumed = bbkb(folder, "resume", RUN, "--set", "budget.evaluations=6")
    assert resumed.returncode == 0, resumed.stderr
    assert "is missing or empty" in resumed.stdout
    assert "6 succeeded" in resumed.stdout
    assert "evaluations: 6" in file.read_text()
