"""Tests of the output of attempts in the process that runs the campaign."""

from dataclasses import replace
from pathlib import Path

import pytest

from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.session.evaluations import check_trial_folders, prepare_outputs, with_output
from bbkb.orchestrator.store.runs import Run
from bbkb.workers.messages import FailureKind, TrialFailed, TrialSucceeded
from bbkb.workers.output_files import HEADER_BYTES, OutputFile, output_file, read_end
from tests.present import of_type, present

FAILURE = TrialFailed(
    trial=3,
    attempt=1,
    failure=FailureKind.ERROR,
    message="ValueError: no\nTraceback …",
    started=0.0,
    finished=1.0,
    worker="w",
)


def print_into(trials: Path, text: bytes) -> None:
    file = OutputFile(trials, 3, 1)
    file.write(text)
    file.close()


def test_failure_quotes_the_end_of_its_output(tmp_path: Path) -> None:
    print_into(tmp_path, b"epoch 1\nloss nan\n")
    completed = of_type(TrialFailed, with_output(FAILURE, tmp_path))
    assert completed.message == "ValueError: no\nTraceback …\nits output ends:\nepoch 1\nloss nan"


def test_failure_does_not_quote_its_output_twice(tmp_path: Path) -> None:
    print_into(tmp_path, b"disk full\n")
    failure = replace(FAILURE, message="the command ended with status 1; its standard error ends:\ndisk full")
    assert with_output(failure, tmp_path) == failure


def test_failure_without_output_is_unchanged(tmp_path: Path) -> None:
    assert with_output(FAILURE, tmp_path) == FAILURE
    assert with_output(FAILURE, None) == FAILURE


def test_output_that_came_with_the_outcome_is_saved_in_the_runs_folder(tmp_path: Path) -> None:
    success = TrialSucceeded(
        trial=3, attempt=2, value=0.5, started=0.0, finished=1.0, worker="elsewhere", output="epoch 1\n"
    )
    assert with_output(success, tmp_path) == success
    assert read_end(output_file(tmp_path, 3, 2), 100) == b"epoch 1\n"


def test_message_of_a_lost_worker_quotes_its_output(tmp_path: Path) -> None:
    trials = present(prepare_outputs(Run(tmp_path, "sqlite://", "demo")))
    OutputFile(trials, 3, 1).write(b"Segmentation fault\n")  # its process does not close it
    lost = replace(FAILURE, failure=FailureKind.WORKER_LOST, message="its process died")
    completed = of_type(TrialFailed, with_output(lost, trials))
    assert completed.message.endswith("its output ends:\nSegmentation fault")
    assert output_file(trials, 3, 1).stat().st_size == HEADER_BYTES + len("Segmentation fault\n")


def test_missing_output_folder_disables_output_without_an_error(tmp_path: Path) -> None:
    (tmp_path / "trials").write_text("a file in the way")
    assert prepare_outputs(Run(tmp_path, "sqlite://", "demo")) is None


def test_trial_folders_are_rejected_if_none_can_be_created(tmp_path: Path) -> None:
    run = Run(tmp_path, "sqlite://", "demo")
    check_trial_folders(run)
    run.trials.touch()
    with pytest.raises(RunError, match=r"trials must be a folder .*, but it is a file: .*bbkb resume"):
        check_trial_folders(run)
    run.trials.unlink()
    run.trials.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"it is a link to .*elsewhere, which does not exist"):
        check_trial_folders(run)
    (tmp_path / "elsewhere").mkdir()
    check_trial_folders(run)
