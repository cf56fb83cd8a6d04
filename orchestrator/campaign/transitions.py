"""The campaign as a pure state machine: `apply` folds events into a state.

`policy.decide` derives the next command from the state alone, so commands that are being carried
out need not be stored: after a crash the log is folded with `apply`, and the next command is the
same. The result of a command returns as an event. Nothing here does I/O, reads a clock or computes
a posterior.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import TypeVar

from orchestrator.bandit.strategy import Observation
from orchestrator.campaign.attempts import Best, RunningAttempt, ended_attempt
from orchestrator.campaign.commands import FinishedTrial, QueuedAttempt
from orchestrator.campaign.events import (
    AttemptEnded,
    BatchChosen,
    CampaignCreated,
    CandidatesGrown,
    CheckpointsRemoved,
    ComputingBegan,
    Event,
    ExistingTaken,
    ModelRefreshed,
    PlacesChanged,
    ReportsArrived,
    SessionClosed,
    SessionOpened,
    StopRequested,
    TrialFailed,
    TrialsContinued,
    TrialsDispatched,
    TrialsReopened,
    TrialStopped,
    TrialSucceeded,
)
from orchestrator.campaign.health import marks_after
from orchestrator.campaign.immutable import ImmutableQueue, replace, with_items, without
from orchestrator.campaign.learned import LearnedModel
from orchestrator.campaign.rules import WORKERS_AN_ARM_MAY_COST, AttemptFailures
from orchestrator.campaign.state import Batch, CampaignState, Computation, Existing, Refresh, Session, idle_cause
from orchestrator.campaign.trainings.curves import PausedTrial, Trainings
from orchestrator.campaign.trainings.reports import StepReport
from orchestrator.errors import BbkbError, StoreError
from orchestrator.wording import moment
from workers.messages import FailureKind

T = TypeVar("T")

_LARGE_BATCH = 2  # times the number of workers; a small budget may be one batch
_RECENT_ATTEMPTS = 8  # kept for display


def apply_recorded(state: CampaignState, event: Event) -> CampaignState:
    """Return the state after `event`, which was read from a log. Raises StoreError for an event
    that cannot follow those before it."""
    try:
        return apply(state, event)
    except (BbkbError, MemoryError):  # of recorded settings, or of this machine
        raise
    except Exception as error:
        raise damage_error(event, error) from error


def damage_error(event: Event, error: Exception) -> StoreError:
    """Return the error of a log in which `event` cannot follow the events before it."""
    trial = f" of trial {event.trial}" if isinstance(event, AttemptEnded) else ""
    return StoreError(
        f"the log is damaged: {type(event).__name__}{trial} at {moment(event.time)} cannot follow the events before it "
        f"({type(error).__name__}: {error}); `bbkb verify` lists all damage"
    )


def apply(state: CampaignState, event: Event) -> CampaignState:
    """Return the state after `event`. Total: every event of a valid log applies."""
    state = _pass_time(state, event)
    match event:
        case CampaignCreated():  # the budget is known before the first session
            return replace(state, rules=event.rules)
        case ExistingTaken():
            return _take_existing(state, event)
        case SessionOpened():
            return _open_session(state, event)
        case PlacesChanged():
            return replace(state, session=replace(state.session, slots=event.slots))
        case ComputingBegan():
            return _compute(state, event)
        case BatchChosen():
            return _choose(state, event)
        case TrialsDispatched():
            return _dispatch(state, event)
        case TrialSucceeded():
            return _record_success(state, event)
        case TrialFailed():
            return _fail(state, event)
        case TrialStopped():
            return _stop_early(state, event)
        case TrialsReopened():
            return _reopen(state, event)
        case TrialsContinued():
            return _continue(state, event)
        case CheckpointsRemoved():
            return _remove_checkpoints(state, event)
        case ReportsArrived():
            return _take_reports(state, event)
        case ModelRefreshed():
            return _refresh(state, event)
        case CandidatesGrown():
            return replace(state, refresh=replace(state.refresh, wants_growth=False), computation=None)
        case StopRequested():
            return replace(state, session=replace(state.session, stop_reason=event.reason))
        case SessionClosed():
            return replace(state, session=replace(state.session, outcome=event.outcome, close_reason=event.reason))


def _compute(state: CampaignState, event: ComputingBegan) -> CampaignState:
    trainings = state.trainings
    if event.what == "refreshing":
        trainings = trainings.start_refresh()
    computation = Computation(event.what, event.time)
    return replace(state, computation=computation, trainings=trainings)


def _take_existing(state: CampaignState, event: ExistingTaken) -> CampaignState:
    best = None
    if event.values:
        first = event.best(state.rules.sign)
        best = Best(None, event.arms[first], event.values[first], event.best_parameters, event.source)
    return replace(state, existing=Existing(event, len(event.arms), event.unmatched, best))


def _pass_time(state: CampaignState, event: Event) -> CampaignState:
    clock = state.clock
    if isinstance(event, SessionOpened) or not state.session.is_open:
        return replace(state, clock=replace(clock, last_time=event.time))
    if event.time <= clock.last_time:
        return state
    return replace(state, clock=clock.advance(event.time, state.session.slots, state.free, idle_cause(state)))


def _choose(state: CampaignState, event: BatchChosen) -> CampaignState:
    attempts = tuple(QueuedAttempt(pick.trial, pick.arm, attempt=1, parameters=pick.parameters) for pick in event.picks)
    seconds = _computing_seconds(state, event)
    return replace(
        state,
        totals=replace(state.totals, chosen=state.totals.chosen + len(attempts)),
        backlog=_as_queue(state.backlog).with_last(attempts),
        batch=_batch_after(state.batch, event),
        remarks=(*state.remarks, *_remark_on_choice(state, event)),
        computation=None,
        durations=state.durations.after_choice(seconds, is_first=state.refresh.is_unused),
        refresh=replace(state.refresh, is_unused=False),
        gains=state.gains.after_choice(len(attempts), event.possible_gain, event.noise, state.rules.stop_when),
    )


def _batch_after(batch: Batch, event: BatchChosen) -> Batch:
    new_trials, count = len(event.picks), len(event.picks) + len(event.continued)
    number, size = batch.number + bool(new_trials), new_trials or batch.size
    if event.is_filler:  # it does not show whether the strategy itself has more
        return replace(batch, number=number, size=size)
    if count < event.limit or not count:
        return Batch(number, size, stalled=event.reason)
    return Batch(number, size, is_open=bool(event.limit) and not event.is_enqueued)


def _remark_on_choice(state: CampaignState, event: BatchChosen) -> list[str]:
    """Return the warning that a user's strategy chose the whole budget before any result."""
    count, rules = len(event.picks), state.rules
    is_everything = state.totals.chosen + count >= rules.evaluations and count > _LARGE_BATCH * state.session.slots
    has_results = state.totals.succeeded or state.existing.count
    if not (rules.strategy.is_users_own and is_everything) or event.is_enqueued or has_results:
        return []
    return [
        f"the strategy chose all of the {count:,} trials before any result, so it learns nothing: `limit` of its ask "
        "is what is left of the budget, and it has to return a batch"
    ]


def _refresh(state: CampaignState, event: ModelRefreshed) -> CampaignState:
    learned = set(event.trials)
    return replace(
        state,
        refresh=Refresh(
            round=event.round,
            time=event.time,
            dictionary_size=event.dictionary_size,
            learned=LearnedModel.of(event.record),
            recommended=event.recommended,
            wants_growth=event.wants_growth,
            is_unused=True,
        ),
        finished=ImmutableQueue(finished for finished in state.finished if finished.trial not in learned),
        existing=replace(state.existing, not_learned=None),
        batch=Batch(state.batch.number, state.batch.size),
        computation=None,
        durations=replace(state.durations, refreshing=_computing_seconds(state, event)),
        trainings=state.trainings.after_refresh(event.trials, event.forecasts),
    )


def _computing_seconds(state: CampaignState, event: BatchChosen | ModelRefreshed) -> float:
    """Return how long the computation took that ends with this event; 0 where no event says when it
    began."""
    return 0.0 if state.computation is None else max(0.0, event.time - state.computation.since)


def _open_session(state: CampaignState, event: SessionOpened) -> CampaignState:
    """Begin a session: trials that were running are queued first, each with a new attempt, except
    those that a surviving worker holds."""
    adopted = set(event.adopted)
    still_running = {trial: run for trial, run in state.running.items() if trial in adopted}
    lost = tuple(
        QueuedAttempt(trial, run.arm, run.attempt + 1, parameters=run.parameters)
        for trial, run in sorted(state.running.items())
        if trial not in adopted
    )
    return replace(
        state,
        rules=event.rules,
        session=Session(epoch=event.epoch, slots=event.slots, dispatched=len(still_running)),
        backlog=_as_queue(state.backlog).with_first(lost),
        running=MappingProxyType(still_running),
        computation=None,
        batch=replace(state.batch, stalled=""),
    )


def _dispatch(state: CampaignState, event: TrialsDispatched) -> CampaignState:
    sent, backlog = dict(event.attempts), _as_queue(state.backlog)
    front = list(backlog[: len(sent)])
    passed: list[QueuedAttempt] = []  # these pause, and remain first
    if not all(attempt.trial in sent for attempt in front):
        front = []
        for attempt in backlog:
            if len(front) == len(sent):
                break
            (front if attempt.trial in sent else passed).append(attempt)
    remaining = backlog.without_first(len(front) + len(passed)).with_first(passed)
    started = {
        attempt.trial: RunningAttempt(attempt.arm, sent[attempt.trial], event.time, attempt.parameters)
        for attempt in front
    }
    return replace(
        state,
        backlog=remaining,
        running=with_items(state.running, started),
        session=replace(state.session, dispatched=state.session.dispatched + len(started)),
    )


def _record_success(state: CampaignState, event: TrialSucceeded) -> CampaignState:
    run = state.running[event.trial]
    arm, sign, goals = run.arm, state.rules.sign, state.rules.goals
    front, is_single = state.front, goals.is_single
    further: tuple[float, ...] = ()
    if not is_single:
        further = goals.further(event.value, event.metrics)
        front = front.after(goals, event.trial, (event.value, event.metrics), run.parameters)
    seconds = max(0.0, event.finished - event.started)
    after = _end_attempt(state, event, is_over=True)
    totals = replace(state.totals, succeeded=state.totals.succeeded + 1)
    gains = state.gains
    if is_single:
        gains = gains.after_result(sign * event.value, totals.ended, state.rules.stop_when)
    trainings = _with_curves(state, after.trainings, _reports_of(event))
    return replace(
        after,
        finished=_as_queue(state.finished).with_last(
            (FinishedTrial(event.trial, Observation(arm, sign * event.value, further)),)
        ),
        totals=totals,
        session=replace(after.session, succeeded=after.session.succeeded + 1),
        best=_best_after(state, event, run),
        gains=gains,
        front=front,
        remarks=(*state.remarks, event.remark) if event.remark else state.remarks,
        trainings=trainings.after_success(event.trial, sign * event.value, seconds),
        durations=after.durations.after_success(seconds),
        workers_lost=without(state.workers_lost, arm),
    )


def _best_after(state: CampaignState, event: TrialSucceeded, run: RunningAttempt) -> Best | None:
    """Return the best result, including this one: the feasible result with the largest rewards.

    Rewards of several objectives are compared in their order, so the best result is on the front.
    """
    best, goals = state.best, state.rules.goals
    if best is not None:
        now = goals.rewards(goals.values(event.value, event.metrics))
        if now <= goals.rewards(goals.values(best.value, best.metrics)):
            return best
    if not goals.is_feasible(event.value, event.metrics):
        return best
    metrics = {name: event.metrics[name] for name in goals.further_metrics}
    return Best(event.trial, run.arm, event.value, run.parameters, metrics=metrics)


def _stop_early(state: CampaignState, event: TrialStopped) -> CampaignState:
    """End the trial with its last value, which the strategy learns as if the evaluation had ended
    so; it is never the best one."""
    run, rule = state.running[event.trial], state.rules.training
    arm = run.arm
    reward = None if event.value is None else state.rules.sign * event.value
    after = _end_attempt(state, event, is_over=True)
    reports = _reports_of(event)  # the last ones may have come with the outcome alone
    trainings = _with_curves(state, after.trainings, reports)
    if rule is not None and rule.continues and reward is not None:
        paused = PausedTrial(arm, run.attempt, event.step, run.parameters)
        trainings = trainings.after_pause(event.trial, paused)
        at_rungs = state.trainings.at_rungs(state.rules.stopping, reports, state.rules.sign)
        trainings = replace(trainings, rungs=at_rungs.rungs)
    return replace(
        after,
        trainings=trainings,
        finished=_as_queue(state.finished).with_last(
            (FinishedTrial(event.trial, Observation(arm, reward, is_stopped=True)),)
        ),
        totals=replace(state.totals, stopped=state.totals.stopped + 1),
        session=replace(after.session, succeeded=after.session.succeeded + 1),
        workers_lost=without(state.workers_lost, arm),
    )


def _reports_of(event: TrialSucceeded | TrialStopped) -> tuple[StepReport, ...]:
    """Return the reports that came with the outcome."""
    return tuple(StepReport(event.trial, event.attempt, *report) for report in event.reports)


def _with_curves(
    state: CampaignState, trainings: Trainings, reports: Sequence[StepReport]
) -> Trainings:  # fmt: skip
    """Return `trainings` with the reports of trials that run in `state`."""
    if not reports:
        return trainings
    running = state.running
    arms = {report.trial: running[report.trial].arm for report in reports if report.trial in running}
    return trainings.after_reports(reports, arms, state.rules.sign)


def _continue(state: CampaignState, event: TrialsContinued) -> CampaignState:
    """Queue the next attempts of stopped trials, which do not count as stopped any more."""
    trials = {continued.trial for continued in event.trials}
    steps, rule = state.trainings.steps, state.rules.training
    if state.rules.steps is not None and rule is not None and rule.has_checkpoints:
        for trial in sorted(trials):
            steps = steps.after_continuing(trial, state.trainings.paused[trial].step)
    trainings = state.trainings.after_continuing(sorted(trials), event.reason == "finish")
    return replace(
        state,
        backlog=_as_queue(state.backlog).with_last(_next_attempts(event)),
        finished=ImmutableQueue(finished for finished in state.finished if finished.trial not in trials),
        totals=replace(state.totals, stopped=state.totals.stopped - len(trials)),
        trainings=replace(trainings, steps=steps),
    )


def _remove_checkpoints(state: CampaignState, event: CheckpointsRemoved) -> CampaignState:
    """End these stopped trials for good."""
    return replace(state, trainings=state.trainings.after_removal(event.trials))


def _take_reports(state: CampaignState, event: ReportsArrived) -> CampaignState:
    trainings = _with_curves(state, state.trainings, event.reports)
    trainings = trainings.at_rungs(state.rules.stopping, event.reports, state.rules.sign)
    if state.rules.steps is not None:
        steps = trainings.steps.after_reports((trial, step) for trial, _, step, _ in event.reports)
        trainings = replace(trainings, steps=steps)
    return replace(state, trainings=trainings)


def _fail(state: CampaignState, event: TrialFailed) -> CampaignState:
    run, kind = state.running[event.trial], FailureKind(event.failure)
    after = _end_attempt(state, event, is_over=event.is_final)
    if kind is FailureKind.WORKER_LOST:
        lost = {run.arm: state.workers_lost.get(run.arm, 0) + 1}
        after = replace(after, workers_lost=with_items(state.workers_lost, lost))
    if not event.is_final:
        attempt_failures = state.attempt_failures.get(event.trial, AttemptFailures()).after(kind)
        pause = attempt_failures.pause_seconds
        return replace(
            after,
            backlog=_as_queue(state.backlog).with_first(
                (
                    QueuedAttempt(
                        event.trial,
                        run.arm,
                        run.attempt + 1,
                        not_before=event.time + pause if pause else 0.0,
                        parameters=run.parameters,
                    ),
                )
            ),
            attempt_failures=with_items(state.attempt_failures, {event.trial: attempt_failures}),
        )
    is_quarantined = after.workers_lost.get(run.arm, 0) >= WORKERS_AN_ARM_MAY_COST and run.arm not in state.quarantined
    return replace(
        after,
        finished=_as_queue(state.finished).with_last((FinishedTrial(event.trial, Observation(run.arm, None)),)),
        trainings=after.trainings.after_failure(event.trial),
        totals=replace(state.totals, failed=state.totals.failed + 1),
        session=replace(
            after.session,
            failed=after.session.failed + 1,
            first_failure=after.session.first_failure or f"{event.failure}: {event.message}",
        ),
        quarantined=(*state.quarantined, run.arm) if is_quarantined else state.quarantined,
    )


def _reopen(state: CampaignState, event: TrialsReopened) -> CampaignState:
    """Queue failed trials again, and count the workers that their arms cost from 0 again."""
    trials, arms = {reopened.trial for reopened in event.trials}, {reopened.arm for reopened in event.trials}
    return replace(
        state,
        backlog=_as_queue(state.backlog).with_first(_next_attempts(event)),
        finished=ImmutableQueue(finished for finished in state.finished if finished.trial not in trials),
        totals=replace(state.totals, failed=state.totals.failed - len(trials)),
        workers_lost=MappingProxyType({arm: lost for arm, lost in state.workers_lost.items() if arm not in arms}),
        quarantined=tuple(arm for arm in state.quarantined if arm not in arms),
    )


def _next_attempts(event: TrialsContinued | TrialsReopened) -> list[QueuedAttempt]:
    return [
        QueuedAttempt(again.trial, again.arm, again.attempt + 1, parameters=again.parameters) for again in event.trials
    ]


def _end_attempt(state: CampaignState, event: AttemptEnded, is_over: bool) -> CampaignState:
    # By the time when it arrived, not when it finished: the durations predict when the next free
    # worker needs a trial.
    last_outcome = state.session.last_outcome
    since = None if last_outcome is None else max(0.0, event.time - last_outcome)
    busy_seconds = state.clock.busy_seconds + max(0.0, event.finished - event.started)
    after = replace(
        state,
        running=without(state.running, event.trial),
        trainings=_after_end(state, event) if is_over else state.trainings,
        attempt_failures=without(state.attempt_failures, event.trial) if is_over else state.attempt_failures,
        clock=replace(state.clock, busy_seconds=busy_seconds),
        durations=state.durations.after_outcome(since),
        recent=(*state.recent[1 - _RECENT_ATTEMPTS :], ended_attempt(event, state.running[event.trial].parameters)),
    )
    return replace(after, session=replace(after.session, last_outcome=event.time, marks=marks_after(after)))


def _after_end(state: CampaignState, event: AttemptEnded) -> Trainings:
    """Return the trainings after the end of a trial: it leaves the rungs, and its steps count."""
    trainings = state.trainings
    rungs = trainings.rungs.without(event.trial)
    if state.rules.steps is None:
        return trainings if rungs is trainings.rungs else replace(trainings, rungs=rungs)
    reports = () if isinstance(event, TrialFailed) else event.reports
    return replace(trainings, rungs=rungs, steps=trainings.steps.after_end(event.trial, reports))


def _as_queue(items: Sequence[T]) -> ImmutableQueue[T]:
    """Convert to an `ImmutableQueue`; a state that was read from a snapshot has tuples."""
    return items if isinstance(items, ImmutableQueue) else ImmutableQueue(items)
