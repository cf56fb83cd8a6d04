"""The campaign as a pure state machine: `apply` folds events into a state.

`policy.decide` derives the next command from the state alone, so commands in progress need not be
stored. After a crash the log is folded with `apply`, and the next command is the same. The result
of a command returns as an event. Nothing here does I/O, reads a clock or computes a posterior.
"""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from bbkb.orchestrator.campaign import events, outcomes
from bbkb.orchestrator.campaign.attempts import Best, RunningAttempt
from bbkb.orchestrator.campaign.commands import QueuedAttempt
from bbkb.orchestrator.campaign.immutable import ImmutableQueue, as_queue, replace, with_items
from bbkb.orchestrator.campaign.learned import LearnedModel
from bbkb.orchestrator.campaign.rules import LONGEST_PAUSE_SECONDS
from bbkb.orchestrator.campaign.state import (
    Batch,
    CampaignState,
    Computation,
    Existing,
    Notes,
    Refresh,
    Session,
    idle_cause,
)
from bbkb.orchestrator.errors import StoreError, UserError
from bbkb.orchestrator.wording import moment
from bbkb.workers.executor import traits_of

_LARGE_BATCH = 2  # a multiple of the number of workers; a small budget may be a single batch


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


def apply(state: CampaignState, event: events.Event) -> CampaignState:
    """Return the state after `event`. Every event of a valid log can be applied."""
    return TRANSITIONS[type(event)](_pass_time(state, event), event)


def _pass_time(state: CampaignState, event: events.Event) -> CampaignState:
    clock = state.clock
    session = state.session
    if isinstance(event, events.SessionOpened):
        computing = 0.0 if traits_of(event.executor).one_at_a_time else None
        clock = replace(clock, last_time=event.time, opened=event.time, computing_seconds=computing)
        return replace(state, clock=clock)
    if not session.is_open:
        return replace(state, clock=replace(clock, last_time=event.time))
    if event.time <= clock.last_time:
        return state
    cause = idle_cause(state)
    is_computing = state.computation is not None
    clock = clock.advance(event.time, session.slots, state.free, cause, is_computing)
    return replace(state, clock=clock)


def _create(state: CampaignState, event: events.CampaignCreated) -> CampaignState:
    return replace(state, rules=event.rules)  # the budget is known before the first session


def _take_existing(state: CampaignState, event: events.ExistingTaken) -> CampaignState:
    best = None
    if event.values:
        first = event.best(state.rules.sign)
        arm = event.arms[first]
        best = Best(None, arm, event.values[first], event.best_parameters, event.source)
    existing = Existing(event, len(event.arms), len(event.left_out), best)
    return replace(state, results=replace(state.results, existing=existing))


def _open_session(state: CampaignState, event: events.SessionOpened) -> CampaignState:
    """Open a session. The trials that were running are queued first, each with a new attempt.

    Trials that a surviving worker holds continue. No retry waits longer than the longest pause,
    even if the machine's clock was set back since the failure.
    """
    adopted = set(event.adopted)
    still_running = {trial: run for trial, run in state.running.items() if trial in adopted}
    lost = tuple(
        QueuedAttempt(trial, run.arm, run.attempt + 1, parameters=run.parameters, starts_from=run.starts_from)
        for trial, run in sorted(state.running.items())
        if trial not in adopted
    )
    latest = event.time + LONGEST_PAUSE_SECONDS
    waiting = [dataclasses.replace(queued, not_before=min(queued.not_before, latest)) for queued in state.backlog]
    return replace(
        state,
        rules=event.rules,
        session=Session(epoch=event.epoch, slots=event.slots, dispatched=len(still_running)),
        backlog=ImmutableQueue((*lost, *waiting)),
        running=MappingProxyType(still_running),
        computation=None,
        batch=replace(state.batch, stalled=""),
    )


def _change_slots(state: CampaignState, event: events.PlacesChanged) -> CampaignState:
    return replace(state, session=replace(state.session, slots=event.slots))


def _stop(state: CampaignState, event: events.StopRequested) -> CampaignState:
    return replace(state, session=replace(state.session, stop_reason=event.reason))


def _close(state: CampaignState, event: events.SessionClosed) -> CampaignState:
    session = replace(state.session, outcome=event.outcome, close_reason=event.reason)
    return replace(state, session=session)


def _compute(state: CampaignState, event: events.ComputingBegan) -> CampaignState:
    trainings = state.trainings
    if event.what == "refreshing":
        trainings = trainings.start_refresh()
    return replace(state, computation=Computation(event.what, event.time), trainings=trainings)


def _choose(state: CampaignState, event: events.BatchChosen) -> CampaignState:
    count = len(event.picks)
    rule = state.rules.stop_when
    gains = state.results.gains.after_choice(count, event.possible_gain, event.noise, rule)
    seconds = _computing_seconds(state, event)
    trainings = state.trainings
    attempts: list[QueuedAttempt] = []
    for pick in event.picks:
        queued = QueuedAttempt(
            pick.trial, pick.arm, attempt=1, parameters=pick.parameters, starts_from=pick.starts_from
        )
        attempts.append(queued)
        if pick.starts_from is not None:
            trainings = trainings.after_start(
                pick.trial, pick.arm, pick.starts_from[0], state.rules.stopping, state.rules.steps is not None
            )
    if event.gives_up:
        trainings = trainings.after_removal(event.gives_up, {ended.trial for ended in state.finished})
    return replace(
        state,
        totals=replace(state.totals, chosen=state.totals.chosen + count),
        backlog=as_queue(state.backlog).with_last(attempts),
        batch=_batch_after(state.batch, event),
        computation=None,
        durations=state.durations.after_choice(seconds, is_first=state.refresh.is_unused),
        refresh=replace(state.refresh, is_unused=False),
        results=replace(state.results, gains=gains),
        trainings=trainings,
        notes=_notes_after(state, event),
    )


def _batch_after(batch: Batch, event: events.BatchChosen) -> Batch:
    new_trials = len(event.picks)
    count = new_trials + len(event.continued)
    index = batch.number + bool(new_trials)
    size = new_trials or batch.size
    if count < event.limit or not count:
        return Batch(index, size, stalled=event.reason)
    return Batch(index, size, is_open=bool(event.limit) and not event.is_enqueued)


def _notes_after(state: CampaignState, event: events.BatchChosen) -> Notes:
    """Add a remark if a user's own strategy chose the whole budget before it learned any result."""
    if not state.rules.strategy.is_users_own or event.is_enqueued:
        return state.notes
    if state.totals.succeeded or state.results.existing.count:
        return state.notes
    count = len(event.picks)
    is_everything = state.totals.chosen + count >= state.rules.evaluations
    if not is_everything or count <= _LARGE_BATCH * state.session.slots:
        return state.notes
    remark = (
        f"the strategy chose all of the {count:,} trials before any result, so it learns nothing: "
        "`limit` of its ask is what is left of the budget, and it has to return a batch"
    )
    return replace(state.notes, remarks=(*state.notes.remarks, remark))


def _refresh(state: CampaignState, event: events.ModelRefreshed) -> CampaignState:
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
        finished=ImmutableQueue(ended for ended in state.finished if ended.trial not in learned),
        results=replace(state.results, existing=replace(state.results.existing, not_learned=None)),
        batch=Batch(state.batch.number, state.batch.size),
        computation=None,
        durations=replace(state.durations, refreshing=_computing_seconds(state, event)),
        trainings=state.trainings.after_refresh(event.trials, event.forecasts, state.saves_checkpoints),
    )


def _computing_seconds(state: CampaignState, event: events.BatchChosen | events.ModelRefreshed) -> float:
    """Return the duration of the computation that ends with `event`; 0 if its start is unknown."""
    if state.computation is None:
        return 0.0
    return max(0.0, event.time - state.computation.since)


def _grow(state: CampaignState, _event: events.CandidatesGrown) -> CampaignState:
    return replace(state, refresh=replace(state.refresh, wants_growth=False), computation=None)


def _dispatch(state: CampaignState, event: events.TrialsDispatched) -> CampaignState:
    sent = dict(event.attempts)
    backlog = as_queue(state.backlog)
    front: list[QueuedAttempt] = []
    passed: list[QueuedAttempt] = []  # they wait before a retry, and stay first in the queue
    for attempt in backlog:
        if len(front) == len(sent):
            break
        (front if attempt.trial in sent else passed).append(attempt)
    started = {
        attempt.trial: RunningAttempt(
            attempt.arm, sent[attempt.trial], event.time, attempt.parameters, attempt.starts_from
        )
        for attempt in front
    }  # fmt: skip
    session = state.session
    return replace(
        state,
        backlog=backlog.without_first(len(front) + len(passed)).with_first(passed),
        running=with_items(state.running, started),
        session=replace(session, dispatched=session.dispatched + len(started)),
    )


TRANSITIONS: Mapping[type, Callable[[CampaignState, Any], CampaignState]] = {
    events.CampaignCreated: _create,
    events.ExistingTaken: _take_existing,
    events.SessionOpened: _open_session,
    events.PlacesChanged: _change_slots,
    events.ComputingBegan: _compute,
    events.BatchChosen: _choose,
    events.TrialsDispatched: _dispatch,
    events.TrialSucceeded: outcomes.after_success,
    events.TrialFailed: outcomes.after_failure,
    events.TrialStopped: outcomes.after_early_stop,
    events.TrialsReopened: outcomes.after_reopening,
    events.TrialsContinued: outcomes.after_continuing,
    events.CheckpointsRemoved: outcomes.after_removal,
    events.ReportsArrived: outcomes.after_reports,
    events.ModelRefreshed: _refresh,
    events.CandidatesGrown: _grow,
    events.StopRequested: _stop,
    events.SessionClosed: _close,
}
