"""Tests of orchestrator/cli/commands/init.py: the written files run unchanged."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Bbkb = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("template", ["function", "command", "table"])
def test_init_writes_a_file_that_runs(bbkb: Bbkb, tmp_path: Path, template: str) -> None:
    done = bbkb(tmp_path, "init", "my_campaign.yaml", "--template", template, "--evaluations", "4", "--workers", "1")
    assert done.returncode == 0, done.stderr
    executor = "simulated" if template == "table" else "inline"
    done = bbkb(tmp_path, "run", "my_campaign.yaml", "--set", f"workers.executor={executor}")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "campaign.schema.json").read_text())["title"] == "bbkb campaign file"


def test_init_writes_a_valid_file_for_any_name(bbkb: Bbkb, tmp_path: Path) -> None:
    done = bbkb(tmp_path, "init", "2026 §.yaml", "--template", "function")
    assert "bbkb run '2026 §.yaml'" in done.stdout
    checked = bbkb(tmp_path, "validate", "2026 §.yaml")
    assert checked.returncode == 0, checked.stderr


def test_init_without_a_terminal_chooses_a_function(bbkb: Bbkb, tmp_path: Path) -> None:
    done = bbkb(tmp_path, "init", text="")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "objective.py").is_file()
    assert done.stdout.count("command") == 1  # of the choices, which the question lists


def test_init_asks_for_the_template(bbkb: Bbkb, tmp_path: Path) -> None:
    done = bbkb(tmp_path, "init", text="command\n")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "train.py").is_file()
    assert "command:" in (tmp_path / "campaign.yaml").read_text()


def test_init_overwrites_nothing(bbkb: Bbkb, tmp_path: Path) -> None:
    (tmp_path / "objective.py").write_text("mine")
    bbkb(tmp_path, "init", "--template", "function")
    assert (tmp_path / "objective.py").read_text() == "mine"
    again = bbkb(tmp_path, "init", "--template", "function")
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_validate_mentions_a_budget_above_the_number_of_rows(bbkb: Bbkb, tmp_path: Path) -> None:
    bbkb(tmp_path, "init", "--template", "table")
    done = bbkb(tmp_path, "run", "campaign.yaml", "--set", "workers.executor=simulated")
    assert (
        "the budget of 100 evaluations is above the number of candidates, 9: candidates are evaluated again"
        in done.stdout
    )
    once = bbkb(tmp_path, "validate", "campaign.yaml", "--set", "objective.deterministic=true")
    assert "number of candidates, 9: the campaign ends when each has been evaluated" in once.stdout
    assert "above the number" not in bbkb(tmp_path, "validate", "campaign.yaml", "--set", "budget.evaluations=9").stdout
