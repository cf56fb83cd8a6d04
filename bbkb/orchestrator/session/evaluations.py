"""The interface of a session to the executor: attempts, intermediate values, outcomes."""

from collections.abc import Sequence

from bbkb.objectives.objective import Candidates
from bbkb.orchestrator.campaign.commands import Dispatch, GiveUp, QueuedAttempt
from bbkb.orchestrator.campaign.events import TrialsDispatched
from bbkb.orchestrator.campaign.state import is_running
from bbkb.orchestrator.campaign.stops import StopCause, cause_at_limit, step_limit, stop_cause
from bbkb.orchestrator.engine.engine import TRIALS
from bbkb.orchestrator.session.outcome_events import event_of
from bbkb.orchestrator.session.outputs import with_output
from bbkb.orchestrator.session.problem import Problem
from bbkb.orchestrator.session.recorder import Recorder
from bbkb.orchestrator.session.reports import RecordedReports
from bbkb.workers.executor import Executor
from bbkb.workers.messages import Attempt, Failure, FailureKind, IntermediateValue, Outcome, Stopped
from bbkb.workers.output_files import trial_folder


class Evaluations:
    """The attempts that a session has dispatched. All calls come from the loop's thread."""

    def __init__(self, problem: Problem, executor: Executor, recorder: Recorder) -> None:
        self._problem = problem
        self._executor = executor
        self._recorder = recorder
        self._reports = RecordedReports(problem.trial_folders is not None)
        # the attempts of running trials that were asked to stop
        self.stop_causes: dict[int, StopCause] = {}

    def begin(self) -> None:
        """Start to receive intermediate values."""
        self._reports.begin(self._recorder.campaign)
        self._executor.listen(self._take_reports)

    def dispatch(self, command: Dispatch, candidates: Candidates) -> None:
        """Record the attempts, commit, and submit them to the executor."""
        attempts = tuple((queued.trial, queued.attempt) for queued in command.assignments)
        self._recorder.record(TrialsDispatched(time=self._executor.now(), attempts=attempts))
        self.commit()
        self._executor.submit([self._attempt(queued, candidates) for queued in command.assignments])

    def _attempt(self, queued: QueuedAttempt, candidates: Candidates) -> Attempt:
        """Return the message to a worker. All attempts of a trial have the same seed, so a repeated
        attempt gives the same value."""
        problem = self._problem
        state = self._recorder.campaign
        trial = queued.trial
        parameters = candidates.parameters(queued.arm)
        return Attempt(
            trial=trial,
            arm=queued.arm,
            parameters=parameters,
            seed=int(self._recorder.engine.rng(TRIALS, trial).integers(2**31)),
            attempt=queued.attempt,
            memory_factor=state.memory_factor(trial),
            folder=None if problem.trial_folders is None else trial_folder(problem.trial_folders, trial),
            share=None if problem.resources is None else problem.resources.workers.share_of(parameters),
            trials=problem.outputs,
            step_limit=step_limit(state, trial),
            can_be_stopped=state.rules.stopping is not None,
            recorded_step=state.trainings.step(trial),
            saves_checkpoint=state.saves_checkpoints,
            starts_from=queued.starts_from,
        )

    def receive(self, timeout: float) -> None:
        """Record the outcomes that arrive within `timeout` seconds. Late and duplicate outcomes are
        ignored."""
        for outcome in self._executor.next_outcomes(timeout):
            if is_running(self._recorder.campaign, outcome.trial, outcome.attempt):
                self._record(with_output(outcome, self._problem.outputs))

    def _record(self, outcome: Outcome) -> None:
        campaign = self._recorder.campaign
        cause = self.stop_causes.pop(outcome.trial, "")
        # the worker ended the attempt at its step limit
        if isinstance(outcome, Stopped) and not cause:
            cause = cause_at_limit(campaign, outcome.trial) or ""
        self._recorder.record(event_of(outcome, campaign, self._reports, self._executor.now(), cause))

    def _take_reports(self, values: Sequence[IntermediateValue]) -> frozenset[int]:
        """Record the intermediate values of running attempts; return the trials to stop early."""
        campaign = self._recorder.campaign
        current = [value for value in values if is_running(campaign, value.trial, value.attempt)]
        new = self._reports.new(current, campaign.trainings)
        if new:
            self._recorder.record(self._reports.take(new, self._executor.now()))
        campaign = self._recorder.campaign
        causes = {trial: stop_cause(campaign, trial) for trial in {value.trial for value in current}}
        stopped = {trial: cause for trial, cause in causes.items() if cause is not None}
        self.stop_causes.update(stopped)
        return frozenset(stopped)

    def give_up(self, command: GiveUp) -> None:
        """Record these attempts as timed out and cancel them.

        The outcomes are recorded here because the workers may never respond. Later outcomes of
        these attempts are ignored.
        """
        now = self._executor.now()
        for trial in command.trials:
            run = self._recorder.campaign.running[trial]
            # so that the outcome belongs to this attempt and not to the next one
            self.stop_causes.pop(trial, None)
            failure = Failure(
                trial=trial,
                attempt=run.attempt,
                kind=FailureKind.TIMEOUT,
                message=command.reason,
                started=min(run.since, now),
                finished=now,
                worker="",
            )
            self._recorder.record(event_of(failure, self._recorder.campaign, self._reports, now))
        self.commit()
        self._executor.cancel(command.trials)

    def commit(self) -> None:
        """Write the recorded events, then acknowledge their outcomes to the executor."""
        ended_attempts = self._recorder.commit()
        if ended_attempts:
            self._executor.acknowledge(ended_attempts)
