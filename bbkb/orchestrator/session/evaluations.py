"""The interface of a session to the executor: attempts, reports, outcomes and their output."""

import contextlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isfinite  # bound here: an objective that runs in this process may replace it in `math`
from pathlib import Path

from bbkb.objectives.parameters import as_given
from bbkb.orchestrator.campaign.events import ReportsArrived, StopCause, TrialsDispatched
from bbkb.orchestrator.campaign.policy import Dispatch, cause_at_limit, step_limit, stop_cause
from bbkb.orchestrator.campaign.state import ends_trial, is_running, place_between
from bbkb.orchestrator.engine.engine import TRIALS
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.session.recorder import Recorder
from bbkb.orchestrator.store.runs import Run
from bbkb.workers.executor import Executor
from bbkb.workers.messages import (
    Attempt,
    FailureKind,
    Outcome,
    Report,
    Trial,
    TrialFailed,
    TrialStopped,
    TrialSucceeded,
)
from bbkb.workers.output import (
    SENT_BYTES,
    OutputFile,
    move_all_outputs,
    move_output,
    output_file,
    read_end,
    running_folder,
    tail_of,
    trial_folder,
)

_LOGGER = logging.getLogger("bbkb.session")
_MOST_REMARKS = 10


def prepare_outputs(run: Run) -> Path | None:
    """Return the run's folder of trials, ready for the output of its attempts.

    Returns None, and logs a warning, if the folder cannot be written.
    """
    try:
        running_folder(run.trials).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        _LOGGER.warning("output of evaluations is not saved: %s", error)
        return None
    return run.trials


def check_trial_folders(run: Run) -> None:
    """Raise RunError if the run's folder of trials is not writable. Without this check, every trial
    would fail."""
    trials = run.trials
    if os.path.islink(trials) and not os.path.exists(trials):
        reason = f"it is a link to {os.readlink(trials)}, which does not exist"
    elif os.path.exists(trials) and not os.path.isdir(trials):
        reason = "it is a file"
    else:
        first = trials if os.path.exists(trials) else run.folder
        if os.access(first, os.W_OK | os.X_OK):
            return
        reason = f"{first} is not writable"
    raise RunError(
        f"{trials} must be a folder in which trials can create their own folders, but {reason}: "
        f"move it away or make it writable, then continue with `{run.resume_command}`"
    )


def remove_outputs(trials: Path | None) -> None:
    """Undo `prepare_outputs` when all workers have ended. The output of attempts remains."""
    if trials is None:
        return
    try:
        move_all_outputs(trials)
    except OSError as error:
        _LOGGER.warning("cannot clean up %s: %s", trials, error)


def with_output(outcome: Outcome, trials: Path | None) -> Outcome:
    """Return the outcome; the message of a failure then includes the end of its attempt's output.

    Output that came with the outcome is written into `trials`, the run's folder of trials. It is
    None if no output is saved.
    """
    if trials is None:
        return outcome
    try:
        if outcome.output:
            with contextlib.closing(OutputFile(trials, outcome.trial, outcome.attempt)) as file:
                file.write(outcome.output.encode())
        if not isinstance(outcome, TrialFailed):
            return outcome
        move_output(trials, outcome.trial, outcome.attempt)  # its process may have been killed
        tail = tail_of(read_end(output_file(trials, outcome.trial, outcome.attempt), SENT_BYTES))
    except OSError as error:
        _LOGGER.warning("output of trial %d is not saved: %s", outcome.trial, error)
        return outcome
    # the failure of a command already quotes its standard error
    if not tail or tail.rpartition("\n")[2] in outcome.message:
        return outcome
    return replace(outcome, message=f"{outcome.message}\nits output ends:\n{tail}")


@dataclass(frozen=True)
class Places:
    """Where trials run: their folders, and their output."""

    folders: Path | None = None  # the parent of the trials' own folders; None if they have none
    outputs: Path | None = None  # the folder for the output of attempts; None if it is not saved


NO_PLACES = Places()


@dataclass(slots=True)
class _Recorded:
    """The reports of a running attempt that are in the log."""

    repeated: int  # the last step that the attempt repeats of those of earlier attempts
    reports: set[tuple[int, float]] = field(default_factory=set)  # step and first number


class Evaluations:
    """The attempts that a session has dispatched. All calls come from the loop's thread."""

    def __init__(self, executor: Executor, recorder: Recorder, places: Places) -> None:
        self._places = places
        self._executor = executor
        self._recorder = recorder
        self._engine = recorder.engine
        self._recorded: dict[tuple[int, int], _Recorded] = {}  # by trial and attempt
        # the attempts of running trials that were asked to stop
        self.stop_causes: dict[int, StopCause] = {}

    def begin(self) -> None:
        """Start to receive reports. Attempts that have been running since an earlier session do not
        repeat theirs."""
        for trial, run in self._engine.state.running.items():
            self._recorded[trial, run.trial.attempt] = _Recorded(self._engine.state.trainings.step(trial))
        self._executor.listen(self._take_reports)

    def dispatch(self, command: Dispatch) -> None:
        """Record the attempts, commit, and submit them to the executor."""
        attempts = tuple((trial.id, trial.attempt) for trial in command.trials)
        self._recorder.record(TrialsDispatched(time=self._executor.now(), attempts=attempts))
        self.commit()
        self._executor.submit([self._attempt(trial) for trial in command.trials])

    def _attempt(self, trial: Trial) -> Attempt:
        """Return the message to a worker. All attempts of a trial have the same seed, so a repeated
        attempt gives the same value."""
        places = self._places
        state = self._engine.state
        workers = state.settings.workers
        parameters = self._engine.pool.candidates.parameters(trial.arm)
        return Attempt(
            trial=trial.id,
            arm=trial.arm,
            parameters=as_given(state.settings.space, parameters),
            seed=int(self._engine.rng(TRIALS, trial.id).integers(2**31)),
            attempt=trial.attempt,
            folder=None if places.folders is None else trial_folder(places.folders, trial.id),
            share=None if workers.gpus_from is None else workers.share_of(parameters),
            trials=places.outputs,
            step_limit=step_limit(state, trial.id),
            can_be_stopped=state.stopping is not None,
            recorded_step=state.trainings.step(trial.id),
            saves_checkpoint=state.saves_checkpoints,
            starts_from=trial.starts_from,
        )

    def receive(self, timeout: float) -> None:
        """Record the outcomes that arrive within `timeout` seconds. Late and duplicate outcomes are
        ignored."""
        for outcome in self._executor.next_outcomes(timeout):
            if is_running(self._engine.state, outcome.trial, outcome.attempt):
                self.record(with_output(outcome, self._places.outputs))

    def record(self, outcome: Outcome) -> None:
        """Record an outcome that the campaign expects. The event is the outcome with its time, without
        what the log has already."""
        campaign = self._engine.state
        now = self._executor.now()
        since = campaign.running[outcome.trial].since
        started, finished = place_between(outcome.started, outcome.finished, since, now)
        outcome = replace(outcome, time=now, started=started, finished=finished, output="")
        cause = self.stop_causes.pop(outcome.trial, None)
        recorded = self._recorded.pop((outcome.trial, outcome.attempt), None)
        match outcome:
            # the objective may have modified the worker process, which makes its check unreliable
            case TrialSucceeded() if not isfinite(outcome.value):
                outcome = TrialFailed(
                    trial=outcome.trial,
                    attempt=outcome.attempt,
                    failure=FailureKind.INVALID_VALUE,
                    message=f"value must be a finite number, got {outcome.value}",
                    started=started,
                    finished=finished,
                    worker=outcome.worker,
                    time=now,
                )
            case TrialSucceeded():
                remarks = campaign.notes.remarks
                remark = "" if outcome.remark in remarks or len(remarks) >= _MOST_REMARKS else outcome.remark
                outcome = replace(outcome, reports=self._missing(outcome.reports, recorded), remark=remark)
            case TrialStopped():
                # without a cause, the worker ended the attempt at its step limit
                why = cause or cause_at_limit(campaign, outcome.trial) or ""
                outcome = replace(outcome, reports=self._missing(outcome.reports, recorded), cause=str(why))
            case TrialFailed():
                outcome = replace(outcome, is_final=ends_trial(campaign, outcome))
        self._recorder.record(outcome)

    def _take_reports(self, reports: Sequence[Report]) -> frozenset[int]:
        """Record the reports of running attempts; return the trials to stop early."""
        campaign = self._engine.state
        current = [each for each in reports if is_running(campaign, each.trial, each.attempt)]
        new: list[Report] = []
        for report in current:
            identity = report.trial, report.attempt
            recorded = self._recorded.get(identity)
            if recorded is None:
                recorded = self._recorded[identity] = _Recorded(self._repeated_by(report))
            if report.step > recorded.repeated:
                recorded.reports.add(_identity(report))
                new.append(report)
        if new:
            self._recorder.record(ReportsArrived(time=self._executor.now(), reports=tuple(new)))
        stopped = frozenset[int]()
        for trial in {report.trial for report in current}:
            if (cause := stop_cause(self._engine.state, trial)) is not None:
                self.stop_causes[trial] = cause
                stopped |= {trial}
        return stopped

    def _missing(self, reports: Sequence[Report], recorded: _Recorded | None) -> tuple[Report, ...]:
        """Return an outcome's reports that are not yet in the log: their messages were lost or
        delayed."""
        if not reports:
            return ()
        recorded = recorded or _Recorded(self._repeated_by(reports[0]))
        return tuple(
            report
            for report in reports
            if report.step > recorded.repeated and _identity(report) not in recorded.reports
        )

    def _repeated_by(self, first: Report) -> int:
        """Return the last step that an earlier attempt has already reported.

        An attempt that continues from a checkpoint repeats steps; its `first` report shows whether
        it continues. The reports of a restarted training are recorded again.
        """
        curve = self._engine.state.trainings.curves.get(first.trial)
        has_checkpoints = self._places.folders is not None
        return curve.step if has_checkpoints and curve is not None and curve.is_continued_at(first.step) else 0

    def commit(self) -> None:
        """Write the recorded events, then acknowledge their outcomes to the executor."""
        ended_attempts = self._recorder.commit()
        if ended_attempts:
            self._executor.acknowledge(ended_attempts)


def _identity(report: Report) -> tuple[int, float]:
    return report.step, next(iter(report.values.values()))
