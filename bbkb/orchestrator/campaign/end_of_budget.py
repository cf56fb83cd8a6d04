"""The trials that the remaining budget is reserved for.

Near the end of a budget of steps, the remaining steps are reserved for the best unfinished trials.
Their number is at most `finish`, and they take at most a third of the budget, except for a single
trial. The remaining steps must suffice to complete them. Trials that are already being
completed come first. If no trial can be completed, the plan `is_hopeless` and the campaign ends.
If the budget is spent and no trial has finished, one trial is completed nevertheless.
Near the end of a budget of hours, the best unfinished trials are the next to be trained.
"""

import math
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass

from bbkb.orchestrator.campaign.training_rules import TrainingRule
from bbkb.orchestrator.campaign.trainings import Hopes, Trainings

LARGEST_SHARE = 1 / 3  # the part of a budget of steps reserved for completing the best trials


@dataclass(frozen=True, slots=True)
class EndOfBudget:
    """What the remaining budget is reserved for; by default nothing: any trial may start or continue."""

    trials: tuple[int, ...] = ()  # those that it completes, the most promising first; no other trial starts
    stops_others: bool = False  # whether all other running trials are stopped
    is_hopeless: bool = False  # it cannot complete any trial, according to the model
    out_of_reach: frozenset[int] = frozenset()  # then the running trials that need more steps than remain


ENOUGH = EndOfBudget()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The unfinished trials and the remaining budget: the input of `end_of_budget`."""

    trainings: Trainings
    rule: TrainingRule
    end: int  # the last step of a training; 0 if it is unknown
    running: Collection[int]  # trials
    steps: int | None  # the whole budget of steps; None if steps are not counted
    seconds_left: float  # infinite without a budget of hours
    hopes: Hopes
    has_finished: bool  # whether any trial was trained to its end

    @property
    def steps_left(self) -> float:
        """The remaining steps; infinite if steps are not counted."""
        return math.inf if self.steps is None else self.steps - self.trainings.steps.total

    @property
    def most(self) -> int:
        """The largest number of trials to complete."""
        if self.steps is None:
            return self.rule.finish
        affordable = round(self.steps * LARGEST_SHARE / self.end)
        return max(1, min(self.rule.finish, affordable))

    def steps_to_end(self, trial: int) -> int:
        """Return the number of steps from the current state of `trial` to its end."""
        has_checkpoints = self.rule.has_checkpoints
        if (paused := self.trainings.paused.get(trial)) is not None:
            reusable = paused.step if has_checkpoints else 0
        elif has_checkpoints or trial not in self.trainings.continued:
            reusable = self.trainings.step(trial)
        else:
            reusable = self.trainings.steps.open.get(trial, 0)
        return max(0, self.end - reusable)

    def reserved(self, trials: Sequence[int]) -> EndOfBudget:
        """Reserve a budget of steps for `trials`."""
        if trials:
            return EndOfBudget(tuple(trials), stops_others=True)
        beyond = (trial for trial in self.running if self.steps_to_end(trial) > self.steps_left)
        return EndOfBudget(is_hopeless=True, out_of_reach=frozenset(beyond))


def end_of_budget(remaining: Remaining, queued: Iterable[int]) -> EndOfBudget:
    """Return the trials that the remaining budget is reserved for. The `queued` trials of the
    backlog are iterated only near the end of the budget."""
    trainings, end, left = remaining.trainings, remaining.end, remaining.steps_left
    if not end:
        is_far = left > 0
    elif remaining.steps is None:
        is_far = math.isinf(remaining.seconds_left)
    else:
        is_far = left > end * (remaining.rule.finish + len(remaining.running))
    if is_far:
        return ENOUGH
    # a queued trial with a curve was lost with its worker, or was chosen to be continued
    active = {*remaining.running, *(trial for trial in queued if trial in trainings.curves)}
    begun = trainings.completing.intersection(active)
    best_first = trainings.best_unfinished(active, remaining.hopes)
    if left <= 0:
        if begun or remaining.has_finished:
            return remaining.reserved(sorted(begun))
        # A trial is completed although the budget is spent, because none has finished. A running one comes
        # first: it needs fewer steps, and no further attempt.
        running = [trial for trial in best_first if trial in remaining.running]
        return remaining.reserved((running or best_first or sorted(remaining.running))[:1])
    ordered = sorted(best_first, key=lambda trial: trial not in begun)  # begun ones are not abandoned
    if remaining.steps is not None and (plan := _by_steps(remaining, ordered, begun)) is not ENOUGH:
        return plan
    # by hours, unless they exceed the longest need of the best trials
    best = ordered[: remaining.most]
    seconds_per_step = trainings.whole.seconds_per_step
    longest = max(map(remaining.steps_to_end, best), default=0)
    if not best or not seconds_per_step or remaining.seconds_left > longest * seconds_per_step:
        return ENOUGH
    return EndOfBudget(tuple(best), stops_others=remaining.steps is not None)


def _by_steps(remaining: Remaining, ordered: Sequence[int], begun: Set[int]) -> EndOfBudget:
    """Reserve the remaining steps, unless there are more of them than the best trials need.

    The unfinished trials are `ordered`, the most promising first. Those that have `begun` to be
    completed are not abandoned.
    """
    left = remaining.steps_left
    best = ordered[: remaining.most]
    if not best:
        # no new trial can be completed, unless it may start from a checkpoint
        is_too_late = left < remaining.end and not remaining.rule.saves_checkpoints
        return remaining.reserved(()) if remaining.has_finished and is_too_late else ENOUGH
    # a running trial can only be stopped at its next report
    steps = remaining.trainings.steps
    before_report = {trial: steps.until_next_report(steps.open.get(trial, 0)) - 1 for trial in remaining.running}
    others = sum(count + 1 for trial, count in before_report.items() if trial not in best)
    if left > sum(map(remaining.steps_to_end, best)) + others:
        return ENOUGH
    # the trials that the remaining steps can complete, without the unavoidable steps before the next reports
    left -= sum(before_report.values())
    trials: list[int] = []
    for trial in ordered:
        needed = remaining.steps_to_end(trial)
        further = needed - before_report.get(trial, 0)
        if trial in begun or (needed and further <= left):
            trials.append(trial)
            left -= further
        if len(trials) == remaining.most:
            break
    if not trials and not remaining.has_finished:
        trials = [*best[:1]]
    return remaining.reserved(trials)
