"""`bbkb logs`: the output of trials."""

from pathlib import Path

import pytest

from bbkb import Result
from bbkb.orchestrator.errors import RunError
from tests.orchestrator.runs import bbkb, history_of, tune_here


def loud(x: float) -> float:
    if x > 0.5:
        print("large", x)
    return x


@pytest.fixture
def run(tmp_path: Path) -> Result:
    return tune_here(tmp_path / "runs", loud, evaluations=6)


def output_of(*arguments: object) -> str:
    return bbkb("logs", *arguments).output


def test_logs_print_the_output_of_a_trial_that_has_ended(run: Result) -> None:
    trial = run.best
    assert output_of(run.folder, "--trial", trial.trial) == f"large {trial.parameters['x']}\n"
    assert output_of(run.folder, "--trial", trial.trial, "--follow") == f"large {trial.parameters['x']}\n"


def test_logs_without_a_trial_print_the_programs_log(run: Result) -> None:
    assert "claimed the campaign" in output_of(run.folder)


def test_output_creates_folders_only_for_trials_that_printed(run: Result) -> None:
    loud_ones = [f"{row.trial:06d}" for row in history_of(run).trials if (row.value or 0.0) > 0.5]
    assert sorted(entry.name for entry in (run.folder / "trials").iterdir()) == loud_ones


@pytest.mark.parametrize("arguments", [["--trial", "6"], ["--trial", "-1"]])
def test_logs_reject_an_unknown_trial_and_list_the_range(run: Result, arguments: list[str]) -> None:
    with pytest.raises(RunError, match=r"must be a trial of .*, 0 to 5"):
        output_of(run.folder, *arguments)


def test_logs_report_a_trial_or_attempt_without_output(run: Result) -> None:
    quiet = next(row.trial for row in history_of(run).trials if (row.value or 0.0) <= 0.5)
    with pytest.raises(RunError, match=f"trial {quiet} has no output"):
        output_of(run.folder, "--trial", quiet)
    with pytest.raises(RunError, match=r"attempt 2 of trial .* has no output.*attempts with output: 1"):
        output_of(run.folder, "--trial", run.best.trial, "--attempt", 2)
