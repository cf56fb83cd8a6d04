"""The next command of a campaign: when to dispatch, choose, learn, give up and close.

`RUNNING` and `STOPPING` list the rules in order of precedence. The first rule that returns a
command decides. Every decision follows from the log, so a replay makes the same decisions.

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
from collections.abc import Callable, Iterator

from bbkb.orchestrator.bandit.strategy import is_grown
from bbkb.orchestrator.campaign import commands
from bbkb.orchestrator.campaign.end_of_budget import Hopeless
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


_Rule = Callable[[CampaignState, float], commands.Command | None]


def decide(state: CampaignState, now: float) -> commands.Command:
    """Return the next command of an open session. `now`: the executor's time in seconds, used only
    for the budget of hours and for deadlines."""
    for rule in RUNNING if state.session.phase is Phase.RUNNING else STOPPING:
        if (command := rule(state, now)) is not None:
            return command
    raise AssertionError("the last rule always has a command")


def _stop(state: CampaignState, now: float) -> commands.Command | None:
    """Stop if a budget is spent, the target is reached, or all evaluations fail."""
    reason = _stop_reason(state, now)
    return commands.Stop(reason) if reason else None


def _dispatch(state: CampaignState, now: float) -> commands.Command | None:
    """Dispatch queued attempts to free slots."""
    room = min(_room(state), state.unspent)
    if not room or _is_hopeless(state) or state.results.existing.not_learned is not None:
        return None
    waits = state.failures.paused
    waiting = (trial for trial in _queue(state) if waits.get(trial.id, 0.0) <= now)
    ready = tuple(itertools.islice(waiting, room))
    return commands.Dispatch(ready) if ready else None


def _wait_for_computation(state: CampaignState, now: float) -> commands.Command | None:
    """Wait for the strategy: it computes one thing at a time."""
    return _wait(state, now) if state.computation else None


def _give_up_budget(state: CampaignState, now: float) -> commands.Command | None:
    """If the remaining budget cannot complete any trial, learn the last results and stop."""
    if not _is_hopeless(state):
        return None
    if state.finished and state.settings.is_asynchronous:
        return _learn(state)
    return _wait(state, now) if state.running else commands.Stop(StopReason.STEPS_SPENT)


def _begin(state: CampaignState, _now: float) -> commands.Command | None:
    """Learn existing results before any trial is chosen."""
    return None if state.results.existing.not_learned is None else commands.Begin(state.existing_observations)


def _grow(state: CampaignState, _now: float) -> commands.Command | None:
    """Append the candidates that the strategy requested."""
    return commands.Grow(state.pending) if state.refresh.wants_growth and state.remaining else None


def _complete(state: CampaignState, now: float) -> commands.Command | None:
    """Use the last part of the budget to continue stopped trials to their end.

    If a refresh is due, it comes first, because its results may change this choice.
    """
    trials = _trials_to_complete(state)
    if not trials and not state.end_of_budget.trials:
        return None
    if state.finished and _is_learning_due(state):
        return _learn(state)
    return commands.Finish(trials) if trials else _wait(state, now) or _close(state, now)


def _learn_everything(state: CampaignState, _now: float) -> commands.Command | None:
    """Learn a whole batch, or the last results, so that the final model contains all of them."""
    if state.running or state.backlog or not state.finished:
        return None
    is_batch_open = state.batch.is_open and not state.batch.stalled
    has_more = state.remaining and (state.settings.is_asynchronous or is_batch_open)
    return None if has_more else _learn(state)


def _refresh_or_ask(state: CampaignState, now: float) -> commands.Command | None:
    """In asynchronous mode, let the strategy learn or choose if more picks are needed."""
    if not state.settings.is_asynchronous:
        return None
    room = _room(state)
    backlog = _backlog_size(state)
    queued = len(state.backlog) - sum(time > now for time in state.failures.paused.values())
    if state.session.slots == 1:
        if state.running or queued:
            return None
        room, backlog = 1, _picks_before_refresh(state) - 1
    picks = min(room + backlog - queued, state.remaining)
    is_backlog_full = not room and 2 * queued > backlog  # picks are requested in groups
    if picks <= 0 or is_backlog_full:
        return None
    if state.finished and _is_learning_due(state):
        return _learn(state)
    return None if state.batch.stalled else commands.Ask(state.pending, picks)


def _ask_for_batch(state: CampaignState, _now: float) -> commands.Command | None:
    """In batch mode, ask for the next batch, or for the next part of the open batch before workers
    become idle."""
    if state.settings.is_asynchronous or state.batch.stalled or not state.remaining:
        return None
    is_busy = len(state.backlog) > state.session.slots if state.batch.is_open else bool(state.backlog or state.running)
    return None if is_busy else commands.Ask(state.pending, min(state.remaining, MOST_PICKS))


def _wait(state: CampaignState, now: float) -> commands.Command | None:
    """Wait for an outcome or a computation, or until a queued attempt may be retried."""
    may_dispatch = state.session.phase is Phase.RUNNING and bool(state.backlog) and state.unspent
    if not (state.running or state.computation or may_dispatch):
        return None
    if state.running or state.computation or not state.backlog:
        return commands.Await()
    later = [time for time in state.failures.paused.values() if time > now]
    return commands.Pause(min(later, default=now) - now)


def _learn_last_results(state: CampaignState, _now: float) -> commands.Command | None:
    """Learn the results that arrived after a budget was spent, for the recommendation.

    Part of a batch is not learned, because a resume could not continue the same batch.
    """
    is_spent = state.session.stop_reason not in (StopReason.INTERRUPTED, StopReason.EVERYTHING_FAILS)
    is_learned = state.finished and is_spent and state.settings.is_asynchronous
    return commands.Tell(tuple(state.finished)) if is_learned else None


def _close(state: CampaignState, _now: float) -> commands.Command:
    return close(state, state.session.stop_reason)


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


# The first rule that returns a command decides.
RUNNING: tuple[_Rule, ...] = (
    _stop,
    _dispatch,
    _wait_for_computation,
    _give_up_budget,
    _begin,
    _grow,
    _complete,
    _learn_everything,
    _refresh_or_ask,
    _ask_for_batch,
    _wait,
    _close,
)
STOPPING: tuple[_Rule, ...] = (_wait, _learn_last_results, _close)


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


def _is_hopeless(state: CampaignState) -> bool:
    """Return whether the remaining budget cannot complete any trial."""
    return isinstance(state.end_of_budget, Hopeless)


def _trials_to_complete(state: CampaignState) -> tuple[int, ...]:
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
    free = _room(state) - sum(1 for _ in _queue(state))
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
    """Return the number of further trials that the executor may receive."""
    return max(0, state.session.slots + _queue_size(state) - len(state.running))


def _queue_size(state: CampaignState) -> int:
    """Return the number of trials for the executor beyond those that can run: one more for each
    worker if evaluations are short, none with a budget of steps, which the trials would exceed. The
    executor starts them while this process still records results.
    """
    if state.settings.budget.steps is not None:
        return 0
    is_short = 0.0 < state.durations.evaluation_sum < _SHORT_SECONDS * state.totals.succeeded
    return max(state.session.slots, _LEAST_QUEUE) if is_short else 0


def _picks_before_refresh(state: CampaignState) -> int:
    """Return the number of picks before the next refresh, the next one included, with one worker.

    Trainings that are stopped early change the choice before the next refresh, as does a trial that waits
    before it is retried.
    """
    if state.settings.stopping is not None or state.settings.budget.steps is not None or state.backlog:
        return 1
    counts = itertools.count(1)
    return next(count for count in counts if count == _MOST_TOGETHER or _is_refresh_due(state, count))


def _backlog_size(state: CampaignState) -> int:
    """Return the number of picks to prepare beyond those for free workers."""
    seconds = state.durations.choosing + state.durations.refreshing
    if seconds <= 0.0 or state.durations.between_outcomes <= 0.0:
        return 0
    largest = _LARGEST_BACKLOG * max(state.session.slots, _LEAST_QUEUE)
    return min(largest, math.ceil(_BACKLOG_MARGIN * seconds / state.durations.between_outcomes))


def _is_learning_due(state: CampaignState) -> bool:
    """Return whether the strategy should learn the results that have arrived."""
    is_needed = bool(state.batch.stalled) or state.trainings.learns_removal
    return is_needed or _is_refresh_due(state)


def _is_refresh_due(state: CampaignState, further: int = 0) -> bool:
    """Return whether the results that are not learned have grown enough, or will have with `further`
    ones. Only counts decide: durations differ from one run to the next."""
    learned = state.totals.ended - len(state.finished) + state.results.existing.count
    growth = state.settings.refresh_growth
    return is_grown(growth, len(state.finished) + further, learned, len(state.running))


def _stop_reason(state: CampaignState, now: float) -> StopReason | None:
    budget = state.settings.budget
    best = state.results.best
    reward = state.settings.goals.reward
    session = state.session
    if budget.target is not None and best is not None and reward(best.value) >= reward(budget.target):
        return StopReason.TARGET_REACHED
    elapsed = state.clock.elapsed_seconds + max(0.0, now - state.clock.last_time)
    if budget.seconds is not None and elapsed >= budget.seconds:
        return StopReason.TIME_SPENT
    are_steps_spent = budget.steps is not None and state.trainings.steps.total >= budget.steps
    if are_steps_spent and not _completes_first(state):
        return StopReason.STEPS_SPENT
    if session.succeeded == 0 and budget.is_limited and session.failed >= failures_before_giving_up(session.slots):
        return StopReason.EVERYTHING_FAILS
    return state.results.gains.stop_reason(budget.stop_when, state.totals.ended, state.session.slots)


def _completes_first(state: CampaignState) -> bool:
    """Return whether the first trial is still to be completed, which may exceed a budget of steps.

    A session does not try this with an unlimited number of failing trials.
    """
    failures = failures_before_giving_up(state.session.slots)
    is_hopeful = not state.totals.succeeded and state.session.failed < failures
    return is_hopeful and bool(state.end_of_budget.trials)
