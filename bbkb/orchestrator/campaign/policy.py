"""The decisions of a campaign, as functions of its state: the next command of its session (`decide`), and
which trainings in steps stop (`stop_cause`, `step_limit`) and may continue (`turn_of_stopped_trials`).

Commands are never stored: every decision follows from the log, so a resume derives it again. The rules of
`decide` are in order of precedence.

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

Several workers need queued trials while the strategy computes. The backlog therefore holds additional
picks for the attempts that have recently ended during a refresh and the choice after it. When free workers
wait nevertheless, they get their picks in small groups.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bbkb.orchestrator.bandit.results import Observation, Turn
from bbkb.orchestrator.bandit.strategy import is_grown
from bbkb.orchestrator.campaign.events import Phase, SessionOutcome, StopCause, StopReason
from bbkb.orchestrator.campaign.state import CampaignState, FinishedTrial
from bbkb.orchestrator.campaign.trainings import StoppingRule, TrainingRule
from bbkb.workers.messages import Trial


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Hand the next attempts of these trials to the executor."""

    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Let the strategy choose at most `limit` arms; the `pending` arms have no result yet."""

    pending: tuple[int, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class Tell:
    """Let the strategy learn the results of these finished trials."""

    finished: tuple[FinishedTrial, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """Let the strategy learn these results, which were known before the campaign."""

    existing: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class Grow:
    """Append the candidates that the strategy requests; the `pending` arms were chosen and have no
    learned result yet."""

    pending: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """Continue these stopped trials to their end, with the last part of the budget."""

    trials: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RemoveCheckpoints:
    """Remove the checkpoints of these stopped trials, which will not be continued."""

    trials: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for outcomes, or for the strategy's computation; nothing else can be done."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait `seconds` on the executor's clock: all queued attempts pause after failures."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Dispatch nothing more, for `reason`."""

    reason: StopReason


@dataclass(frozen=True, slots=True)
class Close:
    """End the session."""

    outcome: SessionOutcome
    reason: str


Command = Dispatch | Begin | Ask | Tell | Grow | Finish | RemoveCheckpoints | Await | Pause | Stop | Close


MOST_PICKS = 2000  # the largest choice in batch mode: an event with 10⁵ picks has 10 MB
_MOST_URGENT = 16  # picks of one choice while workers are free; they begin before the next ones are chosen
_LARGEST_BACKLOG = 4  # picks for each worker
_MOST_TOGETHER = 32  # picks of one choice for a single worker
_LEAST_QUEUE = 8
# the time between two evaluations is worth saving only below this mean duration
_SHORT_SECONDS = 0.05


def decide(state: CampaignState, now: float) -> Command:
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
            return Tell(tuple(state.finished))
        return close(state, session.stop_reason)
    if (reason := _stop_reason(state, now)) is not None:
        return Stop(reason)

    existing, end = state.results.existing.not_learned, state.end_of_budget
    room = _room(state)
    if not end.is_hopeless and existing is None and (sent := min(room, state.unspent)):
        waits = state.failures.paused
        ready = (trial for trial in _queue(state) if waits.get(trial.id, 0.0) <= now)
        if trials := tuple(itertools.islice(ready, sent)):
            return Dispatch(trials)
    if state.computation:  # the strategy computes one thing at a time
        return Await()
    if end.is_hopeless:
        if state.finished and is_asynchronous:
            return _learn(state)
        return Await() if state.running else Stop(StopReason.STEPS_SPENT)
    if existing is not None:
        return Begin(state.existing_observations)
    if state.refresh.wants_growth and state.remaining:
        return Grow(state.pending)

    # The last part of the budget continues stopped trials to their end. If a refresh is due, it comes first,
    # because its results may change this choice.
    completed = _trials_to_complete(state, room)
    if completed or end.trials:
        if state.finished and _is_learning_due(state):
            return _learn(state)
        if completed:
            return Finish(completed)
        return _wait(state, now) or close(state, session.stop_reason)

    # a whole batch, or the last results, so that the final model contains all of them
    if state.finished and not state.running and not state.backlog:
        is_batch_open = state.batch.is_open and not state.batch.stalled
        if not state.remaining or not (is_asynchronous or is_batch_open):
            return _learn(state)

    if is_asynchronous:
        if (picks := _picks(state, now, room)) > 0:
            # picks do not wait for another refresh with the results that arrived during the last one
            if len(state.finished) > session.ended_meanwhile and _is_learning_due(state):
                return _learn(state)
            if not state.batch.stalled:
                return Ask(state.pending, picks)
    elif state.remaining and not state.batch.stalled:
        # the next part of an open batch is requested before workers become idle
        is_busy = len(state.backlog) > session.slots if state.batch.is_open else bool(state.backlog or state.running)
        if not is_busy:
            return Ask(state.pending, min(state.remaining, MOST_PICKS))
    return _wait(state, now) or close(state, session.stop_reason)


def _wait(state: CampaignState, now: float) -> Command | None:
    """Wait for an outcome or a computation, or until a queued attempt may be retried. None if there is
    nothing to wait for."""
    if state.running or state.computation:
        return Await()
    if state.session.phase is not Phase.RUNNING or not state.backlog or not state.unspent:
        return None
    later = [time for time in state.failures.paused.values() if time > now]
    return Pause(min(later, default=now) - now)


def close(state: CampaignState, stopped: StopReason | None) -> Close:
    """Return the end of a session that was `stopped`, or has no work left (None). It has failed if there is
    no result, although its budget was to give one."""
    stalled = state.batch.stalled
    if stopped is StopReason.INTERRUPTED:
        return Close(SessionOutcome.INTERRUPTED, "stopped on request, after its running evaluations")
    has_result = state.totals.succeeded > 0 or state.totals.stopped > 0
    is_spent = stopped is None or state.totals.failed > 0 or stopped in (StopReason.TIME_SPENT, StopReason.STEPS_SPENT)
    is_in_vain = is_spent and not has_result and stopped is not StopReason.TARGET_REACHED
    if not is_in_vain and stopped is not StopReason.EVERYTHING_FAILS:
        return Close(SessionOutcome.FINISHED, stopped or stalled or "budget spent")
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
    return Close(SessionOutcome.FAILED, reason)


def _learn(state: CampaignState) -> Command:
    """Learn all results, after removing the checkpoints that are no longer needed.

    The strategy then does not count these trials as stopped.
    """
    rule = state.settings.training
    if rule is not None and rule.has_checkpoints:
        unlearned = {finished.trial for finished in state.finished}
        if trials := state.trainings.superfluous(rule.keep_checkpoints, state.hopes, unlearned):
            return RemoveCheckpoints(trials)
    return Tell(tuple(state.finished))


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
        alone = state.stopping is not None or state.settings.budget.steps is not None or state.backlog
        most = 1 if alone else _MOST_TOGETHER
        together = next((count for count in range(1, most) if is_refresh_due(state, count)), most)
        return min(together, state.remaining)
    slots, burst = state.session.slots, round(state.session.burst)
    # Queued picks do not know the newest results. More are queued if the workers are faster than the strategy.
    backlog = min(2 * burst, max(2, slots // 4)) if burst <= slots else burst
    backlog = min(backlog, _LARGEST_BACKLOG * max(slots, _LEAST_QUEUE))
    if not room and 2 * queued > backlog:  # picks are requested in groups; half of the backlog lasts until then
        return 0
    most = _MOST_URGENT if room and state.totals.ended else state.remaining
    return min(room + backlog - queued, most, state.remaining)


def _is_learning_due(state: CampaignState) -> bool:
    if state.batch.stalled:
        return True
    removed = state.trainings.removed  # checkpoints, which the strategy has yet to learn
    return (bool(removed) and not removed.isdisjoint(state.trainings.learned_paused)) or is_refresh_due(state)


def is_refresh_due(state: CampaignState, further: int = 0) -> bool:
    """Return whether the results that are not learned have grown enough, or will have with `further`
    ones. Only counts decide: durations differ from one run to the next."""
    learned = state.totals.ended - len(state.finished) + state.results.existing.count
    growth = state.settings.refresh_growth
    return is_grown(growth, len(state.finished) + further, learned, len(state.running))


def failures_before_giving_up(slots: int) -> int:
    """Return the number of failures at which a session with `slots` concurrent evaluations ends if
    nothing has succeeded."""
    return max(10, 2 * slots)


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


# the least correlation between the values at a reliable pause and the final ones
LEAST_RELIABILITY = 1 / 3
# the share of the steps so far that trials may use on their way to the first pause
SHARE_OF_STARTS = 1 / 3
# the largest share if the first pauses are not reliable, so that the values there tell little
LARGEST_SHARE_OF_STARTS = 1 / 2


def stop_cause(state: CampaignState, trial: int) -> StopCause | None:
    """Return why the running `trial` is stopped after its reports in `state`: the first reason that
    applies. None if the trial continues; it always does at its last step."""
    trainings = state.trainings
    stopping = state.stopping
    rule = state.settings.training
    if stopping is None or trial not in state.running or trainings.is_at_end(trial, state.settings.last_step):
        return None
    at_rung = None
    if trainings.rungs.stops(stopping, trial):
        if stopping.share:
            at_rung = StopCause.WORSE_THAN_OTHERS
        elif trainings.step(trial) >= _first_pause(state):
            at_rung = StopCause.PAUSE
    if rule is None:
        return at_rung
    end = state.end_of_budget
    if end.stops_others and trial not in end.trials:
        return StopCause.FINISH
    if trial in end.out_of_reach:
        return StopCause.SPENT
    if rule.is_first_training(trial, trainings.continued):
        # the report that has reached the step, or is closer to it than the next, as far away as the previous one
        curve = trainings.curves.get(trial)
        if curve is None or not curve.steps:
            return None
        before, at, target = (0, *curve.steps)[-2], curve.steps[-1], rule.first_steps
        is_done = at >= target or target - at < abs(2 * at - before - target)
        return StopCause.FIRST_TRAINING if is_done else None
    if _ends_itself(state, rule, trial):
        return None
    # without the first condition, a continued trial would be stopped after one step and continued again
    if at_rung is not None or trial in trainings.continued:
        return at_rung
    is_reliable = trainings.step(trial) > _unreliable_steps(state, _first_pause(state))
    return StopCause.FORECAST if is_reliable and trainings.is_hopeless(trial, state.hopes) else None


def step_limit(state: CampaignState, trial: int) -> int | None:
    """Return the step at which a worker ends the next attempt of `trial` without being told to.

    It is the end of a short first training, or the trial's next pause. A stop known before the
    attempt starts then costs no further step, however slow the campaign is.

    Returns:
        None if the attempt ends only when it completes or is stopped by the campaign.
    """
    stopping = state.stopping
    rule = state.settings.training
    if stopping is None or rule is None:
        return None
    if rule.is_first_training(trial, state.trainings.continued):
        return rule.first_steps
    if stopping.share or _ends_itself(state, rule, trial):
        return None
    pause = stopping.step_of_next_rung(max(state.trainings.step(trial), _first_pause(state) - 1))
    return pause if pause < (state.training_end or math.inf) else None


def cause_at_limit(state: CampaignState, trial: int) -> StopCause | None:
    """Return why a worker ended the running `trial` at its `step_limit`."""
    rule = state.settings.training
    if rule is None:
        return None
    is_first = rule.is_first_training(trial, state.trainings.continued)
    return StopCause.FIRST_TRAINING if is_first else StopCause.PAUSE


def _ends_itself(state: CampaignState, rule: TrainingRule, trial: int) -> bool:
    """Return whether `trial` is trained to its end, whatever its values.

    Until a trial has finished, the running one with the most steps does not pause, so that the last
    step of trainings becomes known. Otherwise a campaign might start new trials until its budget is
    spent, and complete none.
    """
    trainings = state.trainings
    if rule.is_witness(trial) or trial in trainings.completing or trial in state.end_of_budget.trials:
        return True
    if not rule.trains_whole or state.training_end is not None:
        return False
    return trial == max(state.running, key=lambda other: (trainings.step(other), -other), default=None)


def turn_of_stopped_trials(state: CampaignState) -> Turn:
    """Return whether the strategy may continue a stopped trial instead of starting a new one.

    Without checkpoints, stopped trials only restart, at the end of the budget. With a budget of
    steps, new trials come first until they have used `SHARE_OF_STARTS` on the way to the first
    pause. Otherwise the model may continue mediocre trials for long before it has seen a good one.
    If early pauses are not reliable, stopped trials come first as soon as new trials have used
    `LARGEST_SHARE_OF_STARTS`. Otherwise the model, to which noise looks like poor values, may only
    start new trials. If no pause is reliable, a new trial may be more promising than all stopped
    ones, whose values tell nothing.
    """
    rule = state.settings.training
    if rule is None:
        return Turn.BY_BOUND
    steps = state.trainings.steps
    pause = _first_pause(state)
    if pause and pause == state.training_end:
        return Turn.BY_BOUND
    # a pause takes effect at the next report; 0 if all pauses count as reliable
    steps_before = (steps.next_report(pause) or pause) if pause else 0
    used = state.totals.chosen * steps_before
    if rule.restarts or 0 < used < SHARE_OF_STARTS * steps.total:
        return Turn.NEW_FIRST
    is_late = used > LARGEST_SHARE_OF_STARTS * steps.total
    return Turn.PAUSED_FIRST if is_late and _unreliable_steps(state, pause) > 0 else Turn.BY_BOUND


def first_learned_step(state: CampaignState) -> int:
    """Return the step from which on values are learned; 0 if all are. Values before the first
    reliable pause tell little about final ones: those of a flat curve are noise. The cautious
    estimate does not matter here, because it would omit useful values after few trainings."""
    pause = _first_pause(state, is_cautious=False)
    return pause if _unreliable_steps(state, pause) else 0


def _first_pause(state: CampaignState, *, is_cautious: bool = True) -> int:
    """Return the step of the first reliable pause. Return 0 if all pauses count as reliable, which
    is the case without a budget of steps and before the first refresh.

    `is_cautious`: whether to use the cautious estimate.
    """
    rule, stopping, end = state.settings.training, state.stopping, state.training_end
    learned = state.refresh.learned
    if rule is None or learned is None or not rule.has_checkpoints:
        return 0
    steps = learned.cautious_steps if is_cautious else learned.steps
    if not (state.settings.budget.steps and stopping and end and steps):
        return 0
    return first_reliable_pause(stopping, end, dict(steps))


def _unreliable_steps(state: CampaignState, first_pause: int) -> int:
    """Return the number of steps before the first reliable pause; 0 if no pause is skipped."""
    stopping = state.stopping
    if stopping is None:
        return 0
    return first_pause - 1 if first_pause > stopping.step_of_next_rung(0) else 0


def first_reliable_pause(rule: StoppingRule, last_step: int, reliability: Mapping[int, float]) -> int:
    """Return the step of the first reliable pause of `rule`; `last_step` if no pause is reliable.
    `reliability`: step → correlation; a pause that it does not contain counts as reliable."""
    pause = rule.step_of_next_rung(0)
    while pause < last_step and reliability.get(pause, 1.0) < LEAST_RELIABILITY:
        pause = rule.step_of_next_rung(pause)
    return min(pause, last_step)
