"""The trials that the remaining budget is reserved for.

Near the end of a budget of steps, the remaining steps are reserved for the best unfinished trials.
Their number is at most `finish`, and they take at most a third of the budget, except for a single
trial. The remaining steps must suffice to complete them. Trials that are already being
completed come first. If no trial can be completed, the plan is `Hopeless` and the campaign ends.
If the budget is spent and no trial has finished, one trial is completed nevertheless.
Near the end of a budget of hours, the best unfinished trials are the next to be trained.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

from bbkb.orchestrator.campaign.training_rules import TrainingRule
from bbkb.orchestrator.campaign.trainings import Hopes, Trainings

LARGEST_SHARE = 1 / 3  # the part of a budget of steps reserved for completing the best trials


@dataclass(frozen=True, slots=True)
class Enough:
    """The remaining budget is not reserved: any trial may start or continue."""

    trials: ClassVar[tuple[int, ...]] = ()


@dataclass(frozen=True, slots=True)
class Completes:
    """The remaining budget completes these trials, the most promising first. No other trial starts.

    `stops_others`: whether all other running trials are stopped.
    """

    trials: tuple[int, ...]
    stops_others: bool = True


@dataclass(frozen=True, slots=True)
class Hopeless:
    """The remaining budget cannot complete any trial, according to the model.

    `out_of_reach` contains the running trials that need more steps than remain.
    """

    out_of_reach: frozenset[int] = frozenset()
    trials: ClassVar[tuple[int, ...]] = ()


EndOfBudget = Enough | Completes | Hopeless
ENOUGH = Enough()


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

    @property
    def is_far(self) -> bool:
        """Whether the end of the budget is too far away for a reservation."""
        if not self.end:
            return self.steps_left > 0
        if self.steps is None:
            return math.isinf(self.seconds_left)
        return self.steps_left > self.end * (self.rule.finish + len(self.running))

    @property
    def completes_no_new_trial(self) -> bool:
        """Whether a trial has finished, and the remaining steps cannot complete a new one, unless it
        may start from a checkpoint."""
        is_too_late = self.steps_left < self.end and not self.rule.saves_checkpoints
        return self.has_finished and is_too_late

    def steps_to_end(self, trial: int) -> int:
        """Return the number of steps from the current state of `trial` to its end."""
        return max(0, self.end - self._reusable_steps(trial))

    def _reusable_steps(self, trial: int) -> int:
        """Return the steps of `trial` that need not be trained again."""
        has_checkpoints = self.rule.has_checkpoints
        paused = self.trainings.paused.get(trial)
        if paused is not None:
            return paused.step if has_checkpoints else 0
        if has_checkpoints or trial not in self.trainings.continued:
            return self.trainings.step(trial)
        return self.trainings.steps.open.get(trial, 0)

    def steps_before_report(self, trial: int) -> int:
        """Return the number of steps that the running `trial` takes before it can be stopped.

        It can only be stopped at its next report.
        """
        steps = self.trainings.steps
        return steps.until_next_report(steps.open.get(trial, 0)) - 1


def end_of_budget(remaining: Remaining, queued: Iterable[int]) -> EndOfBudget:
    """Return the trials that the remaining budget is reserved for. The `queued` trials of the
    backlog are iterated only near the end of the budget."""
    if remaining.is_far:
        return ENOUGH
    # a queued trial with a curve was lost with its worker, or was chosen to be continued
    curves = remaining.trainings.curves
    active = {*remaining.running, *(trial for trial in queued if trial in curves)}
    begun = remaining.trainings.completing.intersection(active)
    best_first = remaining.trainings.best_unfinished(active, remaining.hopes)
    if remaining.steps_left <= 0:
        is_done = begun or remaining.has_finished
        return _reserved(remaining, sorted(begun) if is_done else _first(remaining, best_first))
    ordered = sorted(best_first, key=lambda trial: trial not in begun)  # begun ones are not abandoned
    plan = _by_steps(remaining, ordered, begun)
    return _by_hours(remaining, ordered) if isinstance(plan, Enough) else plan


def _reserved(remaining: Remaining, trials: Sequence[int]) -> EndOfBudget:
    """Reserve a budget of steps for `trials`."""
    if trials:
        return Completes(tuple(trials))
    left = remaining.steps_left
    beyond = (trial for trial in remaining.running if remaining.steps_to_end(trial) > left)
    return Hopeless(frozenset(beyond))


def _first(remaining: Remaining, best_first: Sequence[int]) -> Sequence[int]:
    """Return the trial that is completed although the budget is spent, because none has finished.

    A running trial comes first: it needs fewer steps, and no further attempt.
    """
    running = [trial for trial in best_first if trial in remaining.running]
    return (running or best_first or sorted(remaining.running))[:1]


def _by_steps(remaining: Remaining, ordered: Sequence[int], begun: Set[int]) -> EndOfBudget:
    """Reserve the remaining steps, unless there are more of them than the best trials need.

    The unfinished trials are `ordered`, the most promising first. Those that have `begun` to be
    completed are not abandoned.
    """
    if remaining.steps is None:
        return ENOUGH
    best = ordered[: remaining.most]
    if not best and remaining.completes_no_new_trial:
        return _reserved(remaining, ())
    before_report = {trial: remaining.steps_before_report(trial) for trial in remaining.running}
    others = sum(steps + 1 for trial, steps in before_report.items() if trial not in best)
    needed = sum(map(remaining.steps_to_end, best)) + others
    if not best or remaining.steps_left > needed:
        return ENOUGH
    trials = _affordable(remaining, ordered, begun, before_report)
    if not trials and not remaining.has_finished:
        return Completes(tuple(best[:1]))
    return _reserved(remaining, trials)


def _affordable(
    remaining: Remaining,
    ordered: Sequence[int],
    begun: Set[int],
    before_report: Mapping[int, int],
) -> list[int]:
    """Return the trials that the remaining steps can complete, and those that are being completed.

    The steps of all running trials before their next reports, `before_report`, are unavoidable.
    """
    left = remaining.steps_left - sum(before_report.values())
    trials: list[int] = []
    for trial in ordered:
        steps = remaining.steps_to_end(trial)
        further = steps - before_report.get(trial, 0)
        if trial in begun or (steps and further <= left):
            trials.append(trial)
            left -= further
        if len(trials) == remaining.most:
            break
    return trials


def _by_hours(remaining: Remaining, ordered: Sequence[int]) -> EndOfBudget:
    """Reserve the remaining hours, unless they exceed the longest need of the best trials."""
    best = ordered[: remaining.most]
    seconds_per_step = remaining.trainings.whole.seconds_per_step
    longest = max(map(remaining.steps_to_end, best), default=0)
    if not best or not seconds_per_step or remaining.seconds_left > longest * seconds_per_step:
        return ENOUGH
    return Completes(tuple(best), stops_others=remaining.steps is not None)
