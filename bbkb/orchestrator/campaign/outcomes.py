"""Transitions of trials: reports, outcomes of attempts, and trials that are queued again."""

from collections.abc import Mapping, Sequence

from bbkb.orchestrator.bandit.results import Observation
from bbkb.orchestrator.campaign.attempts import Best, RunningAttempt, ended_attempt
from bbkb.orchestrator.campaign.commands import FinishedTrial, QueuedAttempt
from bbkb.orchestrator.campaign.events import (
    AttemptEnded,
    CheckpointsRemoved,
    ReportsArrived,
    TrialFailed,
    TrialsContinued,
    TrialsReopened,
    TrialStopped,
    TrialSucceeded,
)
from bbkb.orchestrator.campaign.failures import with_failure
from bbkb.orchestrator.campaign.health import marks_after
from bbkb.orchestrator.campaign.immutable import ImmutableQueue, as_queue, replace, with_items, without
from bbkb.orchestrator.campaign.rules import WORKERS_AN_ARM_MAY_COST
from bbkb.orchestrator.campaign.state import CampaignState, Failures, Results
from bbkb.orchestrator.campaign.trainings.curves import PausedTrial, Trainings
from bbkb.orchestrator.campaign.trainings.reports import StepReport, StepRewards
from bbkb.workers.messages import FailureKind

_RECENT_ATTEMPTS = 8  # kept for display


def after_success(state: CampaignState, event: TrialSucceeded) -> CampaignState:
    """End a trial with its value."""
    run = state.running[event.trial]
    goals = state.rules.goals
    reward = state.rules.sign * event.value
    further = () if goals.is_single else goals.further(event.value, event.metrics)
    seconds = max(0.0, event.finished - event.started)
    after = _after_attempt(state, event, is_final=True)
    trainings = _with_curves(state, after.trainings, _reports_of(state, event))
    notes = after.notes
    if event.remark:
        notes = replace(notes, remarks=(*notes.remarks, event.remark))
    return replace(
        after,
        finished=_with_finished(state, event.trial, Observation(run.arm, reward, further)),
        totals=replace(state.totals, succeeded=state.totals.succeeded + 1),
        results=_results_after(state, event, run),
        notes=notes,
        trainings=trainings.after_success(event.trial, reward, seconds),
        durations=after.durations.after_success(seconds),
        failures=_without_lost_workers(after.failures, run.arm),
    )


def _results_after(state: CampaignState, event: TrialSucceeded, run: RunningAttempt) -> Results:
    results = state.results
    goals = state.rules.goals
    best = _best_after(state, event, run)
    if goals.is_single:
        reward = state.rules.sign * event.value
        count = state.totals.succeeded + 1
        ended = state.totals.ended + 1
        gains = results.gains.after_result(reward, count, ended, state.rules.stop_when)
        return replace(results, best=best, gains=gains)
    front = results.front.after(goals, event.trial, (event.value, event.metrics), run.parameters)
    return replace(results, best=best, front=front)


def _best_after(state: CampaignState, event: TrialSucceeded, run: RunningAttempt) -> Best | None:
    """Return the best result, including this one: the feasible result with the largest rewards.

    The rewards of several objectives are compared in order, so the best result is on the front.
    """
    best = state.results.best
    goals = state.rules.goals
    result = (event.value, event.metrics)
    is_better = best is None or goals.order(*result) > goals.order(best.value, best.metrics)
    if not is_better or not goals.is_feasible(*result):
        return best
    metrics = {name: event.metrics[name] for name in goals.further_metrics}
    return Best(event.trial, run.arm, event.value, run.parameters, metrics=metrics)


def after_early_stop(state: CampaignState, event: TrialStopped) -> CampaignState:
    """End a trial with its last value.

    The strategy learns it as the value of a completed evaluation, but it is never the best one.
    """
    run = state.running[event.trial]
    rule = state.rules.training
    reward = None if event.value is None else state.rules.sign * event.value
    after = _after_attempt(state, event, is_final=True)
    reports = _reports_of(state, event)  # the last reports may have arrived with the outcome
    trainings = _with_curves(state, after.trainings, reports)
    if rule is not None and rule.continues and reward is not None:
        paused = PausedTrial(run.arm, run.attempt, event.step, run.parameters)
        trainings = replace(
            trainings,
            paused=with_items(trainings.paused, {event.trial: paused}),
            rungs=_at_rungs(state, state.trainings, reports).rungs,
        )
    return replace(
        after,
        trainings=trainings,
        finished=_with_finished(state, event.trial, Observation(run.arm, reward, is_stopped=True)),
        totals=replace(state.totals, stopped=state.totals.stopped + 1),
        failures=_without_lost_workers(after.failures, run.arm),
    )


def after_failure(state: CampaignState, event: TrialFailed) -> CampaignState:
    """End an attempt with a failure, and its trial if the failure is final."""
    run = state.running[event.trial]
    kind = FailureKind(event.failure)
    after = _after_attempt(state, event, is_final=event.is_final)
    failures = after.failures
    if kind is FailureKind.WORKER_LOST:
        lost = {run.arm: failures.workers_lost.get(run.arm, 0) + 1}
        failures = replace(failures, workers_lost=with_items(failures.workers_lost, lost))
    causes = with_failure(after.notes.failures, event.trial, event.failure, event.message)
    after = replace(after, failures=failures, notes=replace(after.notes, failures=causes))
    if not event.is_final:
        return _queue_retry(after, event, run)
    is_dangerous = failures.workers_lost.get(run.arm, 0) >= WORKERS_AN_ARM_MAY_COST
    if is_dangerous and run.arm not in failures.quarantined:
        failures = replace(failures, quarantined=(*failures.quarantined, run.arm))
    session = after.session
    return replace(
        after,
        finished=_with_finished(state, event.trial, Observation(run.arm, None)),
        trainings=after.trainings.after_failure(event.trial),
        totals=replace(state.totals, failed=state.totals.failed + 1),
        session=replace(
            session,
            failed=session.failed + 1,
            first_failure=session.first_failure or f"{event.failure}: {event.message}",
        ),
        failures=failures,
    )


def _queue_retry(state: CampaignState, event: TrialFailed, run: RunningAttempt) -> CampaignState:
    """Queue the next attempt of a failed trial before all others."""
    failures = state.failures
    of_trial = failures.of_trial(event.trial).after(FailureKind(event.failure))
    pause = of_trial.pause_seconds
    retry = QueuedAttempt(
        event.trial,
        run.arm,
        run.attempt + 1,
        not_before=event.time + pause if pause else 0.0,
        parameters=run.parameters,
        starts_from=run.starts_from,
    )
    return replace(
        state,
        backlog=as_queue(state.backlog).with_first((retry,)),
        failures=replace(failures, by_trial=with_items(failures.by_trial, {event.trial: of_trial})),
    )


def after_reports(state: CampaignState, event: ReportsArrived) -> CampaignState:
    """Add reported values to the curves and the rungs, and count their steps."""
    metrics = {(trial, step): numbers for trial, step, numbers in event.metrics}
    reports = _rewards_of(state, event.reports, metrics)
    trainings = _with_curves(state, state.trainings, reports)
    trainings = _at_rungs(state, trainings, reports)
    if state.rules.steps is not None:
        steps = trainings.steps.after_reports((trial, step) for trial, _, step, _ in event.reports)
        trainings = replace(trainings, steps=steps)
    return replace(state, trainings=trainings)


def after_continuing(state: CampaignState, event: TrialsContinued) -> CampaignState:
    """Queue the next attempts of stopped trials, which then no longer count as stopped."""
    trials = {continued.trial for continued in event.trials}
    steps = state.trainings.steps
    paused = state.trainings.paused
    if state.rules.steps is not None and state.rules.has_checkpoints:
        steps = steps.after_continuing({trial: paused[trial].step for trial in sorted(trials)})
    trainings = state.trainings.after_continuing(sorted(trials), event.reason == "finish")
    return replace(
        state,
        backlog=as_queue(state.backlog).with_last(_next_attempts(event)),
        finished=ImmutableQueue(ended for ended in state.finished if ended.trial not in trials),
        totals=replace(state.totals, stopped=state.totals.stopped - len(trials)),
        trainings=replace(trainings, steps=steps),
    )


def after_removal(state: CampaignState, event: CheckpointsRemoved) -> CampaignState:
    """End stopped trials for good: their checkpoints were removed."""
    unlearned = {ended.trial for ended in state.finished}
    return replace(state, trainings=state.trainings.after_removal(event.trials, unlearned))


def after_reopening(state: CampaignState, event: TrialsReopened) -> CampaignState:
    """Queue failed trials again, and reset the count of lost workers of their arms."""
    trials = {reopened.trial for reopened in event.trials}
    arms = {reopened.arm for reopened in event.trials}
    trainings = state.trainings
    if state.rules.steps is not None:
        counted = {again.trial: again.step for again in event.trials if again.step}
        trainings = replace(trainings, steps=trainings.steps.after_continuing(counted))
    return replace(
        state,
        trainings=trainings,
        backlog=as_queue(state.backlog).with_first(_next_attempts(event)),
        finished=ImmutableQueue(ended for ended in state.finished if ended.trial not in trials),
        totals=replace(state.totals, failed=state.totals.failed - len(trials)),
        failures=replace(
            state.failures,
            workers_lost=without(state.failures.workers_lost, *arms),
            quarantined=tuple(arm for arm in state.failures.quarantined if arm not in arms),
        ),
    )


def _next_attempts(event: TrialsContinued | TrialsReopened) -> list[QueuedAttempt]:
    return [
        QueuedAttempt(again.trial, again.arm, again.attempt + 1, parameters=again.parameters)
        for again in event.trials
    ]  # fmt: skip


def _after_attempt(state: CampaignState, event: AttemptEnded, is_final: bool) -> CampaignState:
    """End an attempt, and its trial if `is_final`."""
    # Durations are measured from the arrival of an outcome, not from its end: they predict when the
    # next free worker needs a trial.
    last_outcome = state.session.last_outcome
    since = None if last_outcome is None else max(0.0, event.time - last_outcome)
    waited_from = state.running[event.trial].since
    if state.session.slots == 1 and last_outcome is not None:  # it waited for the previous attempt
        waited_from = max(waited_from, last_outcome)
    clock = state.clock.after_attempt(waited_from, event.started, event.finished)
    ended = ended_attempt(event, state.running[event.trial].parameters)
    recent = (*state.notes.recent[1 - _RECENT_ATTEMPTS :], ended)
    trainings = state.trainings
    failures = state.failures
    if is_final:
        trainings = _after_end(state, event)
        failures = replace(failures, by_trial=without(failures.by_trial, event.trial))
    after = replace(
        state,
        running=without(state.running, event.trial),
        trainings=trainings,
        failures=failures,
        clock=clock,
        durations=state.durations.after_outcome(since),
        notes=replace(state.notes, recent=recent),
    )
    session = after.session
    succeeded = session.succeeded + (not isinstance(event, TrialFailed))
    marks = marks_after(after)
    return replace(
        after,
        session=replace(session, last_outcome=event.time, marks=marks, succeeded=succeeded),
    )


def _after_end(state: CampaignState, event: AttemptEnded) -> Trainings:
    """Return the trainings after the end of a trial: it leaves the rungs; its steps are counted."""
    trainings = state.trainings
    rungs = trainings.rungs.without(event.trial)
    if state.rules.steps is None:
        return trainings if rungs is trainings.rungs else replace(trainings, rungs=rungs)
    reports = () if isinstance(event, TrialFailed) else event.reports
    return replace(trainings, rungs=rungs, steps=trainings.steps.after_end(event.trial, reports))


def _without_lost_workers(failures: Failures, arm: int) -> Failures:
    return replace(failures, workers_lost=without(failures.workers_lost, arm))


def _with_finished(state: CampaignState, trial: int, ended: Observation) -> Sequence[FinishedTrial]:
    return as_queue(state.finished).with_last((FinishedTrial(trial, ended),))


def _reports_of(state: CampaignState, event: TrialSucceeded | TrialStopped) -> list[StepRewards]:
    metrics = {(event.trial, step): numbers for step, numbers in event.report_metrics}
    reports = [StepReport(event.trial, event.attempt, *report) for report in event.reports]
    return _rewards_of(state, reports, metrics)


def _rewards_of(
    state: CampaignState,
    reports: Sequence[StepReport],
    metrics: Mapping[tuple[int, int], Mapping[str, float]],
) -> list[StepRewards]:
    """Return the rewards of `reports`. `metrics`: further numbers by trial and step."""
    goals = state.rules.goals
    metric = None if state.rules.stopping is None else state.rules.stopping.metric
    return [
        StepRewards(
            trial, step, state.rules.sign * value, goals.reward_of(metric, value, metrics.get((trial, step), {}))
        )
        for trial, _, step, value in reports
    ]


def _with_curves(state: CampaignState, before: Trainings, reports: list[StepRewards]) -> Trainings:
    """Return the trainings with the reports of trials that are running in `state`."""
    running = state.running
    arms = {report.trial: running[report.trial].arm for report in reports if report.trial in running}
    return before.after_reports(reports, arms)


def _at_rungs(state: CampaignState, trainings: Trainings, reports: list[StepRewards]) -> Trainings:
    return trainings.at_rungs(state.rules.stopping, reports)
