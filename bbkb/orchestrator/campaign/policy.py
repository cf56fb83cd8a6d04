"""The next command of a campaign: when to dispatch, choose, learn, give up and close.

The rules of `decide` are in order of precedence. Every decision follows from the log, so a replay makes
the same decisions.

In batch mode, the strategy chooses a whole batch, and learns it after all its trials have ended. A
batch of more than `MOST_PICKS` pulls is chosen in parts, with the earlier parts pending, while
their last trials run. So no event contains more than one part, and the picks are the same.

In asynchronous mode, the strategy chooses whenever a worker is free, with the other pulls pending.
The strategy learns the finished results

* as soon as it allows no further pull without them (its drift budget is spent), or
* when the number of results has grown by the share `refresh_growth` of those known or in flight. The
  number of refreshes then grows with the logarithm of the number of results.

With one worker, equal results give equal picks, on any machine and whatever an evaluation takes: a
pick follows all earlier results. The picks before the next refresh do not depend on the results that
arrive until then, so they are requested together.

Several workers need queued trials while the strategy computes. The backlog therefore holds one
additional pick for each result that is likely to arrive during a computation.
"""

import itertools
import math
from collections.abc import Iterator

from bbkb.orchestrator.bandit.strategy import is_grown
from bbkb.orchestrator.campaign import commands
from bbkb.orchestrator.campaign.events import Phase, SessionOutcome, StopReason
from bbkb.orchestrator.campaign.failures import failures_before_giving_up
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.workers.messages import Trial

MOST_PICKS = 2000  # the largest choice in batch mode: an event with 10⁵ picks has 10 MB
_BACKLOG_MARGIN = 2.0  # picks, as a multiple of the results expected while the strategy computes
_LARGEST_BACKLOG = 4  # picks for each worker
_MOST_TOGETHER = 32  # picks of one choice for a single worker
_LEAST_QUEUE = 8
# the time between two evaluations is worth saving only below this mean duration
_SHORT_SECONDS = 0.05


def decide(state: CampaignState, now: float) -> commands.Command:
    """Return the next command of an open session. `now`: the executor's time in seconds, used only
    for the budget of hours and for deadlines."""
    session = state.session
    is_asynchronous = state.settings.is_asynchronous
    if session.phase is not Phase.RUNNING:
        if (wait := _wait(state, now)) is not None:
            return wait
        # The last results are learned for the recommendation, but not part of a batch, because a resume
        # could not continue the same batch.
        is_spent = session.stop_reason not in (StopReason.INTERRUPTED, StopReason.EVERYTHING_FAILS)
        if state.finished and is_spent and is_asynchronous:
            return commands.Tell(tuple(state.finished))
        return close(state, session.stop_reason)
    if (reason := _stop_reason(state, now)) is not None:
        return commands.Stop(reason)

    existing, end = state.results.existing.not_learned, state.end_of_budget
    room = _room(state)
    if not end.is_hopeless and existing is None and (sent := min(room, state.unspent)):
        waits = state.failures.paused
        ready = (trial for trial in _queue(state) if waits.get(trial.id, 0.0) <= now)
        if trials := tuple(itertools.islice(ready, sent)):
            return commands.Dispatch(trials)
    if state.computation:  # the strategy computes one thing at a time
        return commands.Await()
    if end.is_hopeless:
        if state.finished and is_asynchronous:
            return _learn(state)
        return commands.Await() if state.running else commands.Stop(StopReason.STEPS_SPENT)
    if existing is not None:
        return commands.Begin(state.existing_observations)
    if state.refresh.wants_growth and state.remaining:
        return commands.Grow(state.pending)

    # The last part of the budget continues stopped trials to their end. If a refresh is due, it comes first,
    # because its results may change this choice.
    completed = _trials_to_complete(state, room)
    if completed or end.trials:
        if state.finished and _is_learning_due(state):
            return _learn(state)
        if completed:
            return commands.Finish(completed)
        return _wait(state, now) or close(state, session.stop_reason)

    # a whole batch, or the last results, so that the final model contains all of them
    if state.finished and not state.running and not state.backlog:
        is_batch_open = state.batch.is_open and not state.batch.stalled
        if not state.remaining or not (is_asynchronous or is_batch_open):
            return _learn(state)

    if is_asynchronous:
        if (picks := _picks(state, now, room)) > 0:
            if state.finished and _is_learning_due(state):
                return _learn(state)
            if not state.batch.stalled:
                return commands.Ask(state.pending, picks)
    elif state.remaining and not state.batch.stalled:
        # the next part of an open batch is requested before workers become idle
        is_busy = len(state.backlog) > session.slots if state.batch.is_open else bool(state.backlog or state.running)
        if not is_busy:
            return commands.Ask(state.pending, min(state.remaining, MOST_PICKS))
    return _wait(state, now) or close(state, session.stop_reason)


def _wait(state: CampaignState, now: float) -> commands.Command | None:
    """Wait for an outcome or a computation, or until a queued attempt may be retried. None if there is
    nothing to wait for."""
    if state.running or state.computation:
        return commands.Await()
    if state.session.phase is not Phase.RUNNING or not state.backlog or not state.unspent:
        return None
    later = [time for time in state.failures.paused.values() if time > now]
    return commands.Pause(min(later, default=now) - now)


def close(state: CampaignState, stopped: StopReason | None) -> commands.Close:
    """Return the end of a session that was `stopped`, or has no work left (None). It has failed if there is
    no result, although its budget was to give one."""
    stalled = state.batch.stalled
    if stopped is StopReason.INTERRUPTED:
        return commands.Close(SessionOutcome.INTERRUPTED, "stopped on request, after its running evaluations")
    has_result = state.totals.succeeded > 0 or state.totals.stopped > 0
    is_spent = stopped is None or state.totals.failed > 0 or stopped in (StopReason.TIME_SPENT, StopReason.STEPS_SPENT)
    is_in_vain = is_spent and not has_result and stopped is not StopReason.TARGET_REACHED
    if not is_in_vain and stopped is not StopReason.EVERYTHING_FAILS:
        return commands.Close(SessionOutcome.FINISHED, stopped or stalled or "budget spent")
    spent = stopped or "budget spent"
    if stopped is None and stalled and state.remaining and not state.totals.chosen:
        rule = "the strategy must choose at least one candidate before there is any result"
        reason = f"{rule}, got none, for the reason {stalled!r}: correct its `ask`"
    elif state.session.failed:
        first = state.session.first_failure or "no message"
        count = state.session.failed
        failed = "the only evaluation" if count == 1 else f"all {count} evaluations"
        reason = f"{failed} of this session failed{'' if count == 1 else '; the first one'} with {first}"
    elif state.totals.failed:
        reason = f"{spent}, and none of {state.totals.failed} evaluations succeeded"
    else:
        reason = f"{spent} before any evaluation ended"
    return commands.Close(SessionOutcome.FAILED, reason)


def _learn(state: CampaignState) -> commands.Command:
    """Learn all results, after removing the checkpoints that are no longer needed.

    The strategy then does not count these trials as stopped.
    """
    rule = state.settings.training
    if rule is not None and rule.has_checkpoints:
        unlearned = {finished.trial for finished in state.finished}
        if trials := state.trainings.superfluous(rule.keep_checkpoints, state.hopes, unlearned):
            return commands.RemoveCheckpoints(trials)
    return commands.Tell(tuple(state.finished))


def _trials_to_complete(state: CampaignState, room: int) -> tuple[int, ...]:
    """Return the stopped trials to complete now, at most one for each free slot.

    The remaining budget is reserved for these trials. After the last evaluation has begun, they are
    all trials that may still become the best.
    """
    trials = state.end_of_budget.trials
    rule = state.settings.training
    paused = state.trainings.paused
    if rule is None or not rule.continues or not paused:
        return ()
    if not trials and not state.remaining:
        trials = tuple(state.trainings.best_unfinished((), state.hopes))
    free = room - sum(1 for _ in _queue(state))
    return tuple(trial for trial in trials if trial in paused)[: max(0, free)]


def _queue(state: CampaignState) -> Iterator[Trial]:
    """Yield the queued trials that may be dispatched.

    If the remaining budget is reserved, these are only the reserved trials.
    """
    trials = state.end_of_budget.trials
    if not trials:
        return iter(state.backlog)
    allowed = state.trainings.completing.union(trials)
    return (trial for trial in state.backlog if trial.id in allowed)


def _room(state: CampaignState) -> int:
    """Return the number of further trials that the executor may receive: beyond those that can run, one
    more for each worker if evaluations are short, none with a budget of steps, which the trials would
    exceed. The executor starts them while this process still records results.
    """
    slots = state.session.slots
    is_short = 0.0 < state.durations.evaluation_sum < _SHORT_SECONDS * state.totals.succeeded
    queued = max(slots, _LEAST_QUEUE) if is_short and state.settings.budget.steps is None else 0
    return max(0, slots + queued - len(state.running))


def _picks(state: CampaignState, now: float, room: int) -> int:
    """Return the number of picks that are needed now in asynchronous mode: for `room` further trials, and for
    the backlog while the strategy computes. With one worker, those until the next refresh, that one included.
    """
    queued = len(state.backlog) - sum(time > now for time in state.failures.paused.values())
    if state.session.slots == 1:
        if state.running or queued:
            return 0
        # trainings that are stopped early change the choice before the next refresh, as does a waiting retry
        alone = state.settings.stopping is not None or state.settings.budget.steps is not None or state.backlog
        most = 1 if alone else _MOST_TOGETHER
        together = next((count for count in range(1, most) if _is_refresh_due(state, count)), most)
        return min(together, state.remaining)
    seconds, between = state.durations.choosing + state.durations.refreshing, state.durations.between_outcomes
    backlog = 0
    if seconds > 0.0 and between > 0.0:
        largest = _LARGEST_BACKLOG * max(state.session.slots, _LEAST_QUEUE)
        backlog = min(largest, math.ceil(_BACKLOG_MARGIN * seconds / between))
    is_backlog_full = not room and 2 * queued > backlog  # picks are requested in groups
    return 0 if is_backlog_full else min(room + backlog - queued, state.remaining)


def _is_learning_due(state: CampaignState) -> bool:
    if state.batch.stalled:
        return True
    removed = state.trainings.removed  # checkpoints, which the strategy has yet to learn
    return (bool(removed) and not removed.isdisjoint(state.trainings.learned_paused)) or _is_refresh_due(state)


def _is_refresh_due(state: CampaignState, further: int = 0) -> bool:
    """Return whether the results that are not learned have grown enough, or will have with `further`
    ones. Only counts decide: durations differ from one run to the next."""
    learned = state.totals.ended - len(state.finished) + state.results.existing.count
    growth = state.settings.refresh_growth
    return is_grown(growth, len(state.finished) + further, learned, len(state.running))


def _stop_reason(state: CampaignState, now: float) -> StopReason | None:
    budget, session = state.settings.budget, state.session
    best = state.results.best
    reward = state.settings.goals.reward
    if budget.target is not None and best is not None and reward(best.value) >= reward(budget.target):
        return StopReason.TARGET_REACHED
    if budget.seconds is not None and state.clock.elapsed_seconds + state.clock.since(now) >= budget.seconds:
        return StopReason.TIME_SPENT
    fails = session.failed >= failures_before_giving_up(session.slots)
    if budget.steps is not None and state.trainings.steps.total >= budget.steps:
        # the first trial may exceed the budget to be completed, but not if all trials fail
        completes_first = not state.totals.succeeded and not fails and bool(state.end_of_budget.trials)
        if not completes_first:
            return StopReason.STEPS_SPENT
    if session.succeeded == 0 and budget.is_limited and fails:
        return StopReason.EVERYTHING_FAILS
    return state.results.gains.stop_reason(budget.stop_when, state.totals.ended, session.slots)
