"""Evaluations of a session: attempts, outcomes, checkpoints kept and removed."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner

from bbkb import Result
from bbkb.objectives.parameters import Range
from bbkb.orchestrator.campaign.events import CheckpointsRemoved, Event, ReportsArrived, StopCause, TrialsContinued
from bbkb.orchestrator.campaign.policy import Ask, Dispatch, decide
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.engine.engine import replay
from bbkb.orchestrator.errors import ConfigError, RunError
from bbkb.orchestrator.session.evaluations import Evaluations, Places, check_trial_folders, prepare_outputs, with_output
from bbkb.orchestrator.session.recorder import Recorder
from bbkb.orchestrator.store.runs import Run, open_run
from bbkb.orchestrator.store.verify import verify
from bbkb.workers.executor import TakeReports
from bbkb.workers.messages import FailureKind, Report, TrialFailed, TrialSucceeded
from bbkb.workers.output import HEADER_BYTES, OutputFile, output_file, read_end
from tests.orchestrator.fakes import Campaign
from tests.orchestrator.runs import tune_here
from tests.present import of_type, present
from tests.reported import reported


class Running:
    """A campaign whose first trial is running."""

    def __init__(self, folder: Path, has_folders: bool = False) -> None:
        campaign = Campaign(folder)
        self.executor = campaign.simulated_executor()
        engine = replay(campaign.problem, campaign.events())
        self.recorder = Recorder(engine, campaign.store.claim("c", "test"), lambda: False, lambda reason: None)
        self.recorder.record(campaign.session_event(self.executor))
        ask = of_type(Ask, decide(self.state, 0.0))
        for event in engine.record(engine.compute(ask, engine.state)):
            self.recorder.record(event)
        self.places = Places(folder / "trials" if has_folders else None)
        self.evaluations = Evaluations(self.executor, self.recorder, self.places)
        self.dispatch()
        self.trial = next(iter(self.state.running))
        self.heard: list[Event] = []
        self.recorder.heard = self.heard.append

    @property
    def state(self) -> CampaignState:
        return self.recorder.engine.state

    def dispatch(self) -> None:
        self.evaluations.dispatch(of_type(Dispatch, decide(self.state, self.executor.now())))

    def listen(self) -> TakeReports:
        """Return the function to which the executor passes reports."""
        with mock.patch.object(self.executor, "listen") as heard:
            self.evaluations.begin()
        take: TakeReports = heard.call_args.args[0]
        return take

    def reports(self, steps: Sequence[int]) -> tuple[Report, ...]:
        attempt = self.state.running[self.trial].trial.attempt
        return tuple(reported(step, step / 10, self.trial, attempt) for step in steps)

    def fail(self) -> None:
        """Record a time-out of the attempt."""
        attempt = self.state.running[self.trial].trial.attempt
        lost = TrialFailed(
            trial=self.trial, attempt=attempt, failure=FailureKind.TIMEOUT, message="late", started=0.0, finished=0.0,
            worker="w",
        )  # fmt: skip
        self.evaluations.record(lost)

    def success(self, value: float = 0.5, steps: Sequence[int] = ()) -> TrialSucceeded:
        attempt = self.state.running[self.trial].trial.attempt
        return TrialSucceeded(
            trial=self.trial,
            attempt=attempt,
            value=value,
            started=0.0,
            finished=0.0,
            worker="w",
            reports=self.reports(steps),
            output="printed",
        )


def steps_of(reports: Sequence[Report]) -> list[int]:
    return [report.step for report in reports]


def test_evaluations_forget_the_stop_cause_of_an_attempt_that_fails(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.evaluations.stop_causes[running.trial] = StopCause.PAUSE  # requested, without a response
    running.fail()
    assert running.trial not in running.evaluations.stop_causes
    assert running.trial not in running.state.running


def test_event_is_the_outcome_with_its_time_and_without_its_output(tmp_path: Path) -> None:
    running = Running(tmp_path)
    outcome = running.success()
    running.evaluations.record(outcome)
    assert running.heard == [replace(outcome, time=running.executor.now(), output="")]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_value_that_is_not_finite_is_always_a_failure(tmp_path: Path, value: float) -> None:
    running = Running(tmp_path)
    running.evaluations.record(running.success(value))
    event = of_type(TrialFailed, running.heard[0])
    assert (event.failure, event.is_final) == ("invalid value", True)
    assert str(value) in event.message


@pytest.mark.parametrize(
    ("has_folders", "steps", "expected"),
    [
        (True, (3, 4, 5, 6), [5, 6]),
        (True, (5, 6), [5, 6]),
        (True, (1, 2), [1, 2]),  # its checkpoint was not found
        (False, (1, 2), [1, 2]),
        (False, (3, 5), [3, 5]),
    ],
)
def test_attempt_that_continues_repeats_no_step_in_the_log(
    tmp_path: Path, has_folders: bool, steps: tuple[int, ...], expected: list[int]
) -> None:
    running = Running(tmp_path, has_folders)
    take = running.listen()
    take(running.reports((1, 2, 3, 4)))
    assert steps_of(of_type(ReportsArrived, running.heard[0]).reports) == [1, 2, 3, 4]
    running.fail()
    running.dispatch()
    running.heard.clear()
    take(running.reports(steps))
    assert steps_of(of_type(ReportsArrived, running.heard[0]).reports) == expected


def test_outcome_repeats_no_report_in_the_log_in_this_session_or_the_next(tmp_path: Path) -> None:
    running = Running(tmp_path, has_folders=True)
    running.listen()(running.reports((1, 2, 3)))
    running.evaluations = Evaluations(running.executor, running.recorder, running.places)  # of the next session
    running.listen()(running.reports((4, 5)))
    running.evaluations.record(running.success(steps=(1, 2, 3, 4, 5, 6)))
    assert steps_of(of_type(TrialSucceeded, running.heard[-1]).reports) == [6]


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


def test_failure_quotes_the_end_of_its_output_once_if_there_is_any(tmp_path: Path) -> None:
    assert with_output(FAILURE, tmp_path) == with_output(FAILURE, None) == FAILURE
    print_into(tmp_path, b"epoch 1\nloss nan\n")
    completed = of_type(TrialFailed, with_output(FAILURE, tmp_path))
    assert completed.message == "ValueError: no\nTraceback …\nits output ends:\nepoch 1\nloss nan"
    quoted = replace(FAILURE, message="the command ended with status 1; its standard error ends:\nloss nan")
    assert with_output(quoted, tmp_path) == quoted


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


STEPS = 9
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
    assert status["checkpoints"]["size"] == 6 * begun  # "falls", and a digit
    shown = CliRunner().invoke(app, ["status", str(result.folder)]).output
    assert f"in the folders of {begun} trials" in shown
    assert "restarted at the first step" not in " ".join(shown.split())


def forgetful(lr: float, width: float, folder: Path, report: Any) -> float:
    """Restart at the first step when it is continued."""
    (folder / "epoch.json").unlink(missing_ok=True)
    return train(lr, width, folder, report)


def test_continued_trial_that_restarts_is_named_in_a_warning(tmp_path: Path) -> None:
    result = run(tmp_path, forgetful, trainings=10)
    continued = [event for event in open_run(result.folder).events() if isinstance(event, TrialsContinued)]
    assert continued
    assert max(row["attempts"] for row in result.rows()) <= 3
    shown = CliRunner().invoke(app, ["status", str(result.folder)]).output
    assert "restarted at the first step: the checkpoint" in " ".join(shown.split())
    trial = continued[0].trials[0]
    described = CliRunner().invoke(app, ["status", str(result.folder), "--trial", str(trial)]).output
    assert "it restarted at the first step when it was continued" in " ".join(described.split())


@pytest.mark.thorough
def test_trials_that_restart_are_not_continued_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this budget, two trials took turns as long as the steps that they repeated did not count."""
    monkeypatch.setitem(globals(), "STEPS", 27)
    result = run(tmp_path, forgetful, trainings=10)
    assert max(row["attempts"] for row in result.rows()) < 10


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
