"""Tests of orchestrator/cli/commands/output.py: what trials printed."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from objectives.parameters import Range
from orchestrator.api import Result, tune
from orchestrator.cli.main import app
from orchestrator.errors import RunError
from tests.histories import history_of


def loud(x: float) -> float:
    if x > 0.5:
        print("large", x)
    return x


@pytest.fixture
def run(tmp_path: Path) -> Result:
    settings = {"runs": str(tmp_path / "runs"), "workers": {"executor": "inline"}, "strategy": {"name": "uniform"}}
    return tune(
        loud,
        {"x": Range(0.0, 1.0)},
        evaluations=6,
        direction="maximize",
        progress=False,
        settings=settings,
    )


def output_of(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["logs", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_trials_output_is_printed_also_when_following_one_that_has_ended(run: Result) -> None:
    trial = run.best
    assert output_of(run.folder, "--trial", trial.trial) == f"large {trial.parameters['x']}\n"
    assert output_of(run.folder, "--trial", trial.trial, "--follow") == f"large {trial.parameters['x']}\n"


def test_without_a_trial_the_programs_own_log_is_printed(run: Result) -> None:
    assert "claimed the campaign" in output_of(run.folder)


def test_only_trials_that_printed_have_a_folder_and_nothing_else_is_left(run: Result) -> None:
    loud_ones = [f"{row.trial:06d}" for row in history_of(run).trials if (row.value or 0.0) > 0.5]
    assert sorted(entry.name for entry in (run.folder / "trials").iterdir()) == loud_ones


@pytest.mark.parametrize("arguments", [["--trial", "6"], ["--trial", "-1"]])
def test_a_trial_that_does_not_exist_is_refused_by_name_of_those_that_do(run: Result, arguments: list[str]) -> None:
    with pytest.raises(RunError, match=r"must be a trial of .*, 0 to 5"):
        output_of(run.folder, *arguments)


def test_a_trial_or_an_attempt_that_printed_nothing_is_said_to(run: Result) -> None:
    quiet = next(row.trial for row in history_of(run).trials if (row.value or 0.0) <= 0.5)
    with pytest.raises(RunError, match=f"trial {quiet} printed nothing"):
        output_of(run.folder, "--trial", quiet)
    with pytest.raises(RunError, match=r"attempt 2 of trial .* printed nothing.*attempts that did: 1"):
        output_of(run.folder, "--trial", run.best.trial, "--attempt", 2)
