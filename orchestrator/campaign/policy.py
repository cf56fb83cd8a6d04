"""What to do about a campaign's state: the one place that says when to dispatch, ask, refresh, give
up and end.

In batch mode the strategy chooses a whole batch, and learns of it when all of it has ended. A batch
of more than `MOST_PICKS` pulls is chosen in parts, each with the parts before it pending, while
their last trials run: no event holds more than one part, and the strategy chooses the same. In
asynchronous mode it is asked whenever a worker is free, with the pulls that are pending, and learns
of what is finished

* as soon as it allows no further pull before it does (its drift budget is spent), or
* when results have grown by the share `refresh_growth` of what is known or in flight, for
  strategies that never make a worker wait: the number of refreshes grows with the logarithm of the
  number of results, in virtual time too, or
* earlier, where that is cheap: the last refresh took no more than `refresh_overhead` of the time
  that has passed since. For any number of workers and any duration of evaluations, refreshes take
  no larger share of the time.

So that workers have trials while it computes, the backlog has a few more picks: as many as results
are likely to arrive meanwhile. Every decision follows from the log, so a replay makes the same
decisions.
"""

import itertools
import math
from collections.abc import Iterator

from orchestrator.bandit.strategy import is_grown
from orchestrator.campaign.commands import (
    Ask,
    Await,
    Begin,
    Close,
    Command,
    Dispatch,
    Finish,
    GiveUp,
    Grow,
    Pause,
    QueuedAttempt,
    RemoveCheckpoints,
    Stop,
    Tell,
)
from orchestrator.campaign.endings import Phase, SessionOutcome, StopReason
from orchestrator.campaign.rules import DURATIONS_TO_LEARN_FROM
from orchestrator.campaign.state import CampaignState, trials_to_finish

MOST_PICKS = 2000  # of one choice in batch mode: an event with 10⁵ picks has 10 MB
_BACKLOG_MARGIN = 2.0  # picks kept in the backlog, as a multiple of the results expected while the strategy computes
_LARGEST_BACKLOG = 4  # picks for each worker
_LEAST_DEADLINE_SECONDS = 10.0
_LEAST_QUEUE = 8
_SHORT_SECONDS = 0.05  # mean duration below which the time between two evaluations is worth saving


def decide(state: CampaignState, now: float) -> Command:
    """Return what to do next in an open session; `now` is for time budget and deadlines only."""
    if state.session.phase is Phase.RUNNING:
        command = _next_command(state, now)
        if isinstance(command, Tell) and (trials := _superfluous(state)):
            return RemoveCheckpoints(trials)  # the strategy then does not know them as stopped trials any more
        if command is not None:
            return command
    if state.running or state.computation or (state.session.phase is Phase.RUNNING and state.backlog and state.unspent):
        return _overdue(state, now) or _wait(state, now)
    if state.session.phase is Phase.STOPPING:
        return Tell(tuple(state.finished)) if _has_last_results(state) else _close_stopped(state)
    return (
        Close(SessionOutcome.FINISHED, state.batch.stalled or "budget spent")
        if state.totals.succeeded or state.totals.stopped
        else _close_fruitless(state)
    )


def _next_command(state: CampaignState, now: float) -> Command | None:
    reason = _stop_reason(state, now)
    if reason:
        return Stop(reason)
    room, rest_for = min(_room(state), state.unspent), trials_to_finish(state)
    if rest_for == ():  # it completes no trial, as far as the model knows
        return _end_without_completing(state)
    kept_for = rest_for or ()
    if room and state.existing.not_learned is None and (ready := _ready(state, kept_for, room, now)):
        return Dispatch(ready)
    if state.computation:
        return None
    if state.existing.not_learned is not None:
        return Begin(state.existing_observations)
    if state.refresh.wants_growth and state.remaining:
        return Grow(state.pending)
    is_due = bool(state.finished) and _is_learning_due(state)
    if resumed := _trials_to_resume(state, kept_for):
        return Tell(tuple(state.finished)) if is_due else Finish(resumed)
    if kept_for:  # nothing else is begun
        return Tell(tuple(state.finished)) if is_due else None
    is_asynchronous = state.rules.strategy.is_asynchronous
    has_more = state.remaining and (is_asynchronous or (state.batch.is_open and not state.batch.stalled))
    if not state.running and not state.backlog and state.finished and not has_more:
        return Tell(tuple(state.finished))  # a whole batch, or the last results: the final model contains all of them
    return _ask_or_refresh(state, now) if is_asynchronous else _next_batch(state)


def _end_without_completing(state: CampaignState) -> Command | None:
    """End a campaign whose budget of steps has too few left to complete a trial, once what its last
    trials show is learned."""
    if state.computation:
        return None
    if state.finished and state.rules.strategy.is_asynchronous:
        return Tell(tuple(state.finished))
    return None if state.running else Stop(StopReason.STEPS_SPENT)


def _superfluous(state: CampaignState) -> tuple[int, ...]:
    """Return stopped trials whose checkpoints are not needed any more."""
    rule = state.rules.training
    if rule is None or not rule.continues:
        return ()
    return state.training.superfluous(rule, state.rules.sign, (finished.trial for finished in state.finished))


def _trials_to_resume(state: CampaignState, kept_for: tuple[int, ...]) -> tuple[int, ...]:
    """Return stopped trials that are to be completed now, as many as workers are free: those that
    the rest of the budget is for. When all evaluations were begun: all that may still become the
    best."""
    rule, training = state.rules.training, state.training
    if rule is None or not rule.resumes or not training.paused:
        return ()
    free = _room(state) - sum(1 for _ in _queue_of(state, kept_for))
    if not kept_for and not state.remaining:
        best = None if state.best is None else state.best.value
        kept_for = tuple(training.best_unfinished((), state.rules.sign, best))
    return tuple(trial for trial in kept_for if trial in training.paused)[: max(0, free)]


def _queue_of(state: CampaignState, kept_for: tuple[int, ...]) -> Iterator[QueuedAttempt]:
    """Yield the attempts of the backlog; where the rest of the budget is kept for some trials, only
    those that complete the best ones."""
    allowed = state.training.finishing.union(kept_for) if kept_for else None
    return (attempt for attempt in state.backlog if allowed is None or attempt.trial in allowed)


def _ready(state: CampaignState, kept_for: tuple[int, ...], room: int, now: float) -> tuple[QueuedAttempt, ...]:
    """Return the first `room` attempts that need not wait any longer; `kept_for`: see
    `_queue_of`."""
    waiting = (attempt for attempt in _queue_of(state, kept_for) if attempt.not_before <= now)
    return tuple(itertools.islice(waiting, room))


def _wait(state: CampaignState, now: float) -> Command:
    """Wait for what is in flight or computed; without any, until a queued attempt may go."""
    if state.running or state.computation or not state.backlog:
        return Await()
    later = [attempt.not_before for attempt in state.backlog if attempt.not_before > now]
    return Pause(min(later, default=now) - now)


def _next_batch(state: CampaignState) -> Command | None:
    """Ask for a batch when the last has ended, or its next part when the backlog runs low."""
    if state.batch.stalled or not state.remaining:
        return None
    waits = len(state.backlog) > state.session.slots if state.batch.is_open else bool(state.backlog or state.running)
    return None if waits else Ask(state.pending, min(state.remaining, MOST_PICKS))


def _ask_or_refresh(state: CampaignState, now: float) -> Command | None:
    """Let the strategy choose or learn, if picks are wanted."""
    room, backlog = _room(state), _backlog_size(state)
    queued = sum(attempt.not_before <= now for attempt in state.backlog)  # a pausing trial occupies no worker
    picks = min(room + backlog - queued, state.remaining)
    if picks <= 0 or (not room and 2 * queued > backlog):  # not for every single pick
        return None
    if state.finished and _is_learning_due(state):
        return Tell(tuple(state.finished))
    return None if state.batch.stalled else Ask(state.pending, picks)


def _room(state: CampaignState) -> int:
    """Return how many more trials the executor may get."""
    return max(0, state.session.slots + _queue_size(state) - len(state.running))


def _queue_size(state: CampaignState) -> int:
    """Return trials for the executor beyond those that can run: with short evaluations, one more
    for each worker. It starts them while this process still records the results. None with a budget
    of steps, which they would exceed.
    """
    if state.rules.steps is not None:
        return 0
    is_short = 0.0 < state.durations.evaluation_sum < _SHORT_SECONDS * state.totals.succeeded
    return max(state.session.slots, _LEAST_QUEUE) if is_short else 0


def _backlog_size(state: CampaignState) -> int:
    """Return picks to have ready beyond those for free workers."""
    seconds = state.durations.choosing + state.durations.refreshing
    if seconds <= 0.0 or state.durations.between_outcomes <= 0.0:
        return 0
    largest = _LARGEST_BACKLOG * max(state.session.slots, _LEAST_QUEUE)
    return min(largest, math.ceil(_BACKLOG_MARGIN * seconds / state.durations.between_outcomes))


def _is_learning_due(state: CampaignState) -> bool:
    """Return whether the strategy is to learn the results that have arrived."""
    is_needed = bool(state.batch.stalled) or state.training.is_removal_untold
    return is_needed or _is_refresh_due(state) or _is_refresh_cheap(state)


def _is_refresh_due(state: CampaignState) -> bool:
    """Return whether results have grown by the share at which a never-waiting strategy learns."""
    growth = state.rules.strategy.refresh_growth
    learned = state.learned_count + state.existing.count
    return bool(growth) and is_grown(growth, len(state.finished), learned, len(state.running))


def _is_refresh_cheap(state: CampaignState) -> bool:
    """Return whether the last refresh, the fit in the choice after it included, took no more than
    the allowed share of the time since. Read off the log, not the clock, so that a replay decides
    the same."""
    if not state.rules.strategy.refresh_overhead:
        return False
    seconds = state.durations.refreshing + state.durations.fitting
    if state.rules.strategy.refresh_growth and not seconds:
        return False  # virtual time, in which nothing is expensive: by growth alone
    return seconds <= state.rules.strategy.refresh_overhead * (state.clock.last_time - state.refresh.time)


def _stop_reason(state: CampaignState, now: float) -> StopReason | None:
    rules, best, session = state.rules, state.best, state.session
    if rules.target is not None and best is not None and rules.sign * best.value >= rules.sign * rules.target:
        return StopReason.TARGET_REACHED
    elapsed = state.clock.elapsed_seconds + max(0.0, now - state.clock.last_time)
    if rules.seconds is not None and elapsed >= rules.seconds:
        return StopReason.TIME_SPENT
    if rules.steps is not None and state.steps.total >= rules.steps:
        return StopReason.STEPS_SPENT
    if session.succeeded == 0 and session.failed >= rules.retries.failures_before_giving_up:
        return StopReason.EVERYTHING_FAILS
    ended = state.totals.ended
    return state.gains.stop_reason(rules.stop_when, ended, state.session.slots)


def _overdue(state: CampaignState, now: float) -> GiveUp | None:
    """Return attempts past the deadline by `workers.timeout_factor` and the durations so far."""
    factor = state.rules.deadlines.factor
    if factor is None or state.totals.succeeded < DURATIONS_TO_LEARN_FROM:
        return None
    deadline = max(_LEAST_DEADLINE_SECONDS, factor * state.durations.longest_evaluation)
    late = tuple(trial for trial, run in state.running.items() if now - run.since > deadline)
    if not late:
        return None
    return GiveUp(late, f"no result within {deadline:.4g} s, {factor:g} times the longest evaluation so far")


def _has_last_results(state: CampaignState) -> bool:
    """Return whether the strategy is to learn the results that arrived after a budget was spent, so
    that its recommendation counts them. It does not learn half a batch: a resume could not continue
    the same batch."""
    is_over = state.session.stop_reason not in (StopReason.INTERRUPTED, StopReason.EVERYTHING_FAILS)
    return bool(state.finished) and is_over and state.rules.strategy.is_asynchronous


def _close_stopped(state: CampaignState) -> Close:
    """Return the end of a stopped session."""
    if state.session.stop_reason is StopReason.EVERYTHING_FAILS:
        return _close_fruitless(state)
    if state.session.stop_reason is StopReason.INTERRUPTED:
        return Close(SessionOutcome.INTERRUPTED, "stopped on request, after its running evaluations")
    return Close(SessionOutcome.FINISHED, state.session.stop_reason or "")


def _close_fruitless(state: CampaignState) -> Close:
    reason = state.batch.stalled
    if reason and state.remaining and not state.totals.chosen:
        rule = "the strategy must choose at least one candidate before there is any result"
        return Close(SessionOutcome.FAILED, f"{rule}, got none, for the reason {reason!r}: correct its `ask`")
    if not state.session.failed:  # the session had nothing to do
        return Close(
            SessionOutcome.FAILED, f"none of {state.totals.failed} evaluations succeeded, and the budget is spent"
        )
    first = state.session.first_failure or "no message"
    reason = f"all {state.session.failed} evaluations of this session failed; the first one with {first}"
    return Close(SessionOutcome.FAILED, reason)
