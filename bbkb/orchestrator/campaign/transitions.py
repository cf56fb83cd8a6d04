"""The campaign as a pure state machine: `apply` folds events into a state.

`policy.decide` derives the next command from the state alone, so commands in progress need not be
stored. After a crash the log is folded with `apply`, and the next command is the same. The result
of a command returns as an event. Nothing here does I/O, reads a clock or computes a posterior.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bbkb.orchestrator.bandit.results import Observation
from bbkb.orchestrator.campaign import events
from bbkb.orchestrator.campaign.draft import Queue, Section, without
from bbkb.orchestrator.campaign.events import AttemptEnded, TrialFailed, TrialStopped, TrialSucceeded
from bbkb.orchestrator.campaign.failures import (
    LONGEST_PAUSE_SECONDS,
    AttemptFailures,
    costs_too_many_workers,
    with_failure,
)
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.campaign.state import (
    Batch,
    Best,
    CampaignState,
    Clock,
    Durations,
    Existing,
    Failures,
    FinishedTrial,
    LearnedModel,
    Notes,
    Refresh,
    Results,
    Run,
    Session,
    Totals,
    ended_attempt,
    idle_cause,
)
from bbkb.orchestrator.campaign.status import marks_after
from bbkb.orchestrator.campaign.trainings import Paused, Trainings
from bbkb.orchestrator.errors import StoreError, UserError
from bbkb.orchestrator.wording import moment
from bbkb.workers.messages import FailureKind, Trial

_LARGE_BATCH = 2  # a multiple of the number of workers; a small budget may be a single batch
_BURST_DECAY = 0.95  # of the largest burst, at each choice
_RECENT_ATTEMPTS = 8  # kept for display


def apply_recorded(state: CampaignState, event: events.Event) -> CampaignState:
    """Return the state after `event`, which was read from a log.

    Raises:
        StoreError: if the event cannot follow the events before it.
    """
    try:
        return apply(state, event)
    except (UserError, MemoryError):  # caused by recorded settings, or by this machine
        raise
    except Exception as error:
        raise damage_error(event, error) from error


def damage_error(event: events.Event, error: Exception) -> StoreError:
    """Return the error of a log in which `event` cannot follow the events before it."""
    trial = f" of trial {event.trial}" if isinstance(event, events.AttemptEnded) else ""
    return StoreError(
        f"the log is damaged: {type(event).__name__}{trial} at {moment(event.time)} cannot follow "
        f"the events before it ({type(error).__name__}: {error}); `bbkb verify` lists all damage"
    )


class Draft:
    """The state during one event. A section that is read here is a copy, which may be changed;
    unchanged parts are read from `before`."""

    if TYPE_CHECKING:
        settings: Settings
        totals: Totals
        session: Session
        clock: Clock
        durations: Durations
        batch: Batch
        refresh: Refresh
        computation: events.Computed | None
        backlog: Queue[Trial]
        running: Mapping[int, Run]
        finished: Queue[FinishedTrial]
        failures: Failures
        trainings: Trainings
        results: Results
        notes: Notes

    def __init__(self, before: CampaignState) -> None:
        self.before = before

    def __getattr__(self, name: str) -> Any:
        """Copy the section `name` when it is first read."""
        value = self.before.__dict__[name]
        if isinstance(value, Section):
            value = value.draft()
        elif name in ("backlog", "finished"):
            value = Queue.of(value)
        self.__dict__[name] = value
        return value

    def frozen(self) -> CampaignState:
        """Return the state after the event."""
        state = object.__new__(CampaignState)
        fields = state.__dict__
        changed = self.__dict__
        fields.update(changed.pop("before").__dict__)
        fields.pop("end_of_budget", None)  # a cached property
        fields.update(changed)
        for value in changed.values():
            if isinstance(value, Section):
                value.freeze()
        return state


def apply(state: CampaignState, event: events.Event) -> CampaignState:
    """Return the state after `event`. Every event of a valid log can be applied."""
    draft = Draft(state)
    if isinstance(event, events.SessionOpened):
        draft.clock.last_time = draft.clock.opened = event.time
        draft.clock.computing_seconds = 0.0 if event.settings.workers.traits.one_at_a_time else None
    elif not state.session.is_open:
        draft.clock.last_time = event.time
    elif event.time > state.clock.last_time:
        free = state.free
        cause = idle_cause(state) if free else "dispatch"
        draft.clock.advance(event.time, state.session.slots, free, cause, state.computation is not None)
    match event:
        case events.ReportsArrived():
            settings = state.settings
            running = state.running
            arms = {each.trial: running[each.trial].trial.arm for each in event.reports if each.trial in running}
            draft.trainings.report(
                event.reports, arms, settings.goals, state.stopping, settings.budget.steps is not None
            )
        case TrialSucceeded() | TrialFailed() | TrialStopped():
            _end_attempt(draft, event)
        case events.TrialsDispatched():
            _dispatch(draft, event)
        case events.BatchChosen():
            _choose(draft, event)
        case events.ComputingBegan():
            draft.computation = event.what
            if event.what == "refreshing":
                draft.trainings.learned_curves = tuple(state.trainings.curves.values())
                draft.trainings.learned_paused = tuple(sorted(state.trainings.paused))
        case events.ModelRefreshed():
            _refresh(draft, event)
        case events.CandidatesGrown():
            draft.refresh.wants_growth = False
            draft.computation = None
        case events.TrialsContinued():
            _continue(draft, event)
        case events.TrialsWithdrawn():
            draft.running = without(draft.running, event.trials)
            draft.trainings.rungs.remove(event.trials)
            draft.trainings.curves = without(draft.trainings.curves, event.trials)
        case events.CheckpointsRemoved():
            draft.trainings.remove_checkpoints(event.trials, {ended.trial for ended in state.finished})
        case events.TrialsReopened():
            _reopen(draft, event)
        case events.PlacesChanged():
            draft.session.slots = event.slots
        case events.StopRequested():
            draft.session.stop_reason = event.reason
        case events.SessionOpened():
            _open_session(draft, event)
        case events.SessionClosed():
            draft.session.outcome = event.outcome
            draft.session.close_reason = event.reason
        case events.CampaignCreated():
            draft.settings = event.settings  # the budget is known before the first session
            draft.clock.created = event.time
        case events.ExistingTaken():
            best = None
            if values := event.inside_values:
                first = max(range(len(values)), key=lambda index: state.settings.goals.reward(values[index]))
                best = Best(None, event.arms[first], event.values[first], event.best_parameters, event.source)
            counts = len(event.arms), event.outside_count, len(event.left_out)
            draft.results.existing = Existing(event, *counts, best)
    return draft.frozen()


def _end_attempt(draft: Draft, event: AttemptEnded) -> None:
    settings = draft.before.settings
    goals = settings.goals
    trial, dispatched = draft.running[event.trial]
    arm = trial.arm
    seconds = max(0.0, event.finished - event.started)
    session = draft.session
    draft.running = without(draft.running, [trial.id])
    before = session.last_outcome
    # the only worker was evaluating the previous attempt until then
    waited_from = dispatched if before is None or session.slots != 1 else max(dispatched, before)
    draft.clock.end_attempt(waited_from, event.started, event.finished)
    draft.notes.recent = (*draft.notes.recent[1 - _RECENT_ATTEMPTS :], ended_attempt(event, trial.parameters))
    session.last_outcome = event.time
    session.ended_meanwhile += draft.computation is not None
    session.marks = marks_after(draft.clock, session, draft.running)
    if isinstance(event, TrialFailed):
        draft.notes.failures = with_failure(draft.notes.failures, trial.id, event.failure, event.message)
        failures = draft.failures
        if event.failure is FailureKind.WORKER_LOST:
            failures.workers_lost = {**failures.workers_lost, arm: failures.workers_lost.get(arm, 0) + 1}
        if not event.is_final:
            counted = failures.by_trial.get(trial.id, AttemptFailures()).after(event.failure)
            failures.by_trial = {**failures.by_trial, trial.id: counted}
            if pause := counted.pause_seconds:
                failures.paused = {**failures.paused, trial.id: event.time + pause}
            draft.backlog = draft.backlog.with_first([trial.again])
            return
    else:
        session.succeeded += 1
        if arm in draft.before.failures.workers_lost:
            draft.failures.workers_lost = without(draft.failures.workers_lost, [arm])

    # the trial has ended
    reports = () if isinstance(event, TrialFailed) else event.reports  # those that arrived with the outcome
    if trial.id in draft.before.failures.by_trial:
        draft.failures.by_trial = without(draft.failures.by_trial, [trial.id])
    has_reported = bool(reports) or trial.id in draft.before.trainings.curves
    match event:
        case TrialSucceeded():
            reward = goals.reward(event.value)
            further = () if goals.is_single else goals.further(event.value, event.metrics)
            metric = settings.objective.deviation  # only beside a single goal
            deviation = None if metric is None else event.metrics.get(metric)
            ended = Observation(arm, reward, further, deviation=deviation)
            draft.totals.succeeded += 1
            draft.durations.succeed(seconds)
            if has_reported:
                draft.trainings.rungs.remove([trial.id])
                draft.trainings.report(reports, {trial.id: arm}, goals)
                draft.trainings.succeed(trial.id, reward, seconds)
            _keep_result(draft, event, trial)
            if event.remark:
                draft.notes.remarks = (*draft.notes.remarks, event.remark)
        case TrialStopped():
            # the strategy learns the last value as that of a completed evaluation; it is never the best
            ended = Observation(arm, None if event.value is None else goals.reward(event.value), is_stopped=True)
            draft.totals.stopped += 1
            continues = settings.training is not None and settings.training.continues and event.value is not None
            trainings = draft.trainings
            trainings.report(reports, {trial.id: arm}, goals, draft.before.stopping if continues else None)
            if continues:
                trainings.paused = {**trainings.paused, trial.id: Paused(trial, event.step)}
            else:
                trainings.rungs.remove([trial.id])
        case TrialFailed():
            ended = Observation(arm, None)
            draft.totals.failed += 1
            session.failed += 1
            session.first_failure = session.first_failure or f"{event.failure}: {event.message}"
            if has_reported:
                draft.trainings.rungs.remove([trial.id])
                draft.trainings.curves = without(draft.trainings.curves, [trial.id])
            lost = failures.workers_lost.get(arm, 0)
            if arm not in failures.quarantined and costs_too_many_workers(lost, failures.quarantined):
                failures.quarantined = (*failures.quarantined, arm)
    if settings.budget.steps is not None:  # the reports have shown whether the trial restarted
        draft.trainings.steps.end(trial.id, reports)
    draft.finished = draft.finished.with_last([FinishedTrial(trial.id, ended)])


def _keep_result(draft: Draft, event: TrialSucceeded, trial: Trial) -> None:
    """Compare a result with the best one: the feasible result with the largest rewards. The rewards
    of several objectives are compared in order, so the best result is on the front."""
    settings = draft.before.settings
    goals = settings.goals
    results = draft.results
    result = (event.value, event.metrics)
    best = results.best
    if goals.is_single:
        is_better = best is None or goals.reward(event.value) > goals.reward(best.value)
    else:
        is_better = best is None or goals.order(*result) > goals.order(best.value, best.metrics)
    if is_better and goals.is_feasible(*result):
        metrics = {name: event.metrics[name] for name in goals.further_metrics}
        results.best = Best(trial.id, trial.arm, event.value, trial.parameters, metrics=metrics)
    if goals.is_single:
        totals = draft.totals
        reward = goals.reward(event.value)
        results.gains = results.gains.after_result(reward, totals.succeeded, totals.ended, settings.budget.stop_when)
    else:
        results.front = results.front.after(goals, trial.id, result, trial.parameters)


def _dispatch(draft: Draft, event: events.TrialsDispatched) -> None:
    sent = dict(event.attempts)
    started: dict[int, Run] = {}
    passed: list[Trial] = []  # they wait before a retry, and stay first in the queue
    for trial in draft.backlog:
        if len(started) == len(sent):
            break
        if trial.id in sent:
            attempt = sent[trial.id]
            started[trial.id] = Run(trial if trial.attempt == attempt else replace(trial, attempt=attempt), event.time)
        else:
            passed.append(trial)
    draft.backlog = draft.backlog.without_first(len(started) + len(passed)).with_first(passed)
    draft.running = {**draft.running, **started}
    draft.session.dispatched += len(started)
    if draft.before.failures.paused:
        draft.failures.paused = without(draft.failures.paused, sent)


def _choose(draft: Draft, event: events.BatchChosen) -> None:
    state = draft.before
    settings = state.settings
    count = len(event.picks)
    gains = state.results.gains.after_choice(count, event.possible_gain, event.noise, settings.budget.stop_when)
    if gains is not state.results.gains:
        draft.results.gains = gains
    chosen = [Trial(pick.trial, pick.arm, pick.parameters, starts_from=pick.starts_from) for pick in event.picks]
    for trial in chosen:
        if trial.starts_from is not None:
            draft.trainings.start_from(trial, trial.starts_from, state.stopping, settings.budget.steps is not None)
    if event.gives_up:
        draft.trainings.remove_checkpoints(event.gives_up, {ended.trial for ended in state.finished})
    draft.totals.chosen += count
    draft.backlog = draft.backlog.with_last(chosen)
    given = count + len(event.continued)
    is_full = 0 < given >= event.limit
    draft.batch = Batch(
        number=state.batch.number + bool(count),
        size=count or state.batch.size,
        is_open=is_full and bool(event.limit) and not event.is_enqueued,
        stalled="" if is_full else event.reason,
    )
    draft.computation = None
    session = draft.session
    session.burst = max(session.ended_meanwhile, _BURST_DECAY * session.burst)
    session.ended_meanwhile = 0
    is_everything = state.totals.chosen + count >= settings.budget.evaluations
    has_result = state.totals.succeeded or state.results.existing.count
    is_own = settings.has_own_strategy and not event.is_enqueued
    if is_own and not has_result and is_everything and count > _LARGE_BATCH * state.session.slots:
        remark = (
            f"the strategy chose all of the {count:,} trials before any result, so it learns nothing: "
            "`limit` of its ask is what is left of the budget, and it has to return a batch"
        )
        draft.notes.remarks = (*draft.notes.remarks, remark)


def _refresh(draft: Draft, event: events.ModelRefreshed) -> None:
    state = draft.before
    learned = set(event.trials)
    draft.refresh = Refresh(
        round=event.round,
        time=event.time,
        dictionary_size=event.dictionary_size,
        learned=LearnedModel.of(event.record),
        recommended=event.recommended,
        wants_growth=event.wants_growth,
    )
    draft.finished = Queue(ended for ended in state.finished if ended.trial not in learned)
    if state.results.existing.not_learned is not None:
        draft.results.existing = replace(state.results.existing, not_learned=None)
    draft.batch = Batch(state.batch.number, state.batch.size)
    draft.computation = None
    draft.trainings.refresh(event.trials, event.forecasts, state.saves_checkpoints)


def _continue(draft: Draft, event: events.TrialsContinued) -> None:
    """Queue the next attempts of stopped trials, which then no longer count as stopped."""
    settings = draft.before.settings
    trainings = draft.trainings
    trials = set(event.trials)
    paused = trainings.paused
    # they have checkpoints of their own, so none starts from another trial's again
    again = [
        replace(paused[trial].trial, attempt=paused[trial].trial.attempt + 1, starts_from=None)
        for trial in event.trials
    ]
    if settings.budget.steps is not None and settings.has_checkpoints:
        trainings.steps.reopen({trial: paused[trial].step for trial in sorted(trials)})
    trainings.resume(sorted(trials), event.reason == "finish")
    draft.backlog = draft.backlog.with_last(again)
    draft.finished = Queue(ended for ended in draft.finished if ended.trial not in trials)
    draft.totals.stopped -= len(trials)


def _reopen(draft: Draft, event: events.TrialsReopened) -> None:
    """Queue failed trials again, and reset the count of lost workers of their arms."""
    trials = {trial.id for trial in event.trials}
    arms = {trial.arm for trial in event.trials}
    if draft.before.settings.budget.steps is not None:
        pairs = zip(event.trials, event.steps, strict=True)
        draft.trainings.steps.reopen({trial.id: step for trial, step in pairs})
    draft.backlog = draft.backlog.with_first([trial.again for trial in event.trials])
    draft.finished = Queue(ended for ended in draft.finished if ended.trial not in trials)
    draft.totals.failed -= len(trials)
    draft.failures.workers_lost = without(draft.failures.workers_lost, arms)
    draft.failures.quarantined = tuple(arm for arm in draft.failures.quarantined if arm not in arms)


def _open_session(draft: Draft, event: events.SessionOpened) -> None:
    """Open a session. The trials that were running are queued first, each with a new attempt.

    Trials that a surviving worker holds continue. No retry waits longer than the longest pause,
    even if the machine's clock was set back since the failure.
    """
    adopted = set(event.adopted)
    running = draft.before.running
    draft.settings = event.settings
    draft.running = {trial: run for trial, run in running.items() if trial in adopted}
    lost = [run.trial.again for trial, run in sorted(running.items()) if trial not in adopted]
    draft.backlog = draft.backlog.with_first(lost)
    session = draft.before.session
    without_outcome = session.without_outcome + 1 if session.epoch and session.last_outcome is None else 0
    draft.session = Session(
        epoch=event.epoch, slots=event.slots, dispatched=len(draft.running), without_outcome=without_outcome
    )
    draft.computation = None
    draft.batch.stalled = ""
    latest = event.time + LONGEST_PAUSE_SECONDS
    draft.failures.paused = {trial: min(time, latest) for trial, time in draft.failures.paused.items()}
