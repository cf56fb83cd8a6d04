"""Rules that stop trainings early: comparisons and pauses at rungs, a growing series of steps, short first
trainings, and the settings of `early_stopping: {rule: model}` in the form used by the decisions.

Asynchronous successive halving and the median rule compare the best value that a trial has reported
up to a rung with the best values of all trials that have reached this rung so far. Each report of a
trial is a comparison at the last rung that it has reached, because other trials reach this rung
later. No trial waits for others. They use the best value so far because curves of stochastic
training are noisy: one bad epoch at a rung should not end a good trial.

* `asha` (Li, Jamieson, Rostamizadeh, Gonina, Hardt, Recht, Talwalkar 2020, the variant that stops
  instead of pausing): rungs at first_step · reduction^k. A trial continues if it is among the best
  1/reduction.
* `median` (Golovin, Solnik, Moitra, Kochanski, Karro, Sculley 2017, applied to values instead of
  running means): the first rung is at `after`, and each rung is a quarter further than the previous
  one (4, 5, 7, 8, 10, …). A trial continues if it is in the better half.
* pauses: rungs at ½, ¼, … of a training. Every trial is stopped there, and the model chooses which
  one continues.

With several objectives or constraints, the trials are compared by one metric that they report. In short
first trainings, the model sees a few steps of many trials before it continues any.
"""

import bisect
import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from bbkb.orchestrator.campaign.draft import Section, section, without

_MEDIAN_GROWTH = 1.25
_MEDIAN_LEAST = 5
_PAUSE_GROWTH = 2.0
_EXCUSED = math.inf  # the reward at its last rung of a trial that is not stopped there


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """At the rungs first_step · growth^k, a trial continues if it is among the best `share`.

    With a growth of 1 the rungs are the multiples of `first_step`. With fewer than `least` trials
    at a rung, all of them continue. With a share of 0 every trial is stopped at each rung
    (`pauses`, `every`).
    """

    first_step: float
    growth: float
    share: float
    least: int
    metric: str | None = None  # the objective whose reports are compared; None: the first

    @classmethod
    def asha(cls, reduction: float, first_step: int, metric: str | None = None) -> Self:
        """Return asynchronous successive halving."""
        least = math.ceil(reduction)
        return cls(first_step=first_step, growth=reduction, share=1.0 / reduction, least=least, metric=metric)

    @classmethod
    def median(cls, after: int, metric: str | None = None) -> Self:
        """Return the median rule."""
        return cls(first_step=after, growth=_MEDIAN_GROWTH, share=0.5, least=_MEDIAN_LEAST, metric=metric)

    @classmethod
    def pauses(cls, after: int, last_step: int | None) -> Self:
        """Return the rule that stops every trial at ½, ¼, … of `last_step`, down to `after`.

        If the last step is unknown, trials are stopped at `after` and at each doubling of it.
        """
        first = float(after)
        if last_step is not None:
            halvings = int(math.log(last_step / after, _PAUSE_GROWTH) + 1e-9)
            first = last_step / _PAUSE_GROWTH**halvings
        return cls(first_step=first, growth=_PAUSE_GROWTH, share=0.0, least=1)

    @classmethod
    def every(cls, interval: int) -> Self:
        """Return the rule that stops every trial at each multiple of `interval`."""
        return cls(first_step=interval, growth=1.0, share=0.0, least=1)

    def rung(self, step: int) -> int | None:
        """Return the index of the last rung that `step` has reached; None before the first."""
        if step < self.first_step:
            return None
        if self.growth == 1.0:
            return int(step // self.first_step) - 1
        return max(0, int(math.log(step / self.first_step) / math.log(self.growth) + 1e-9))

    def step_of_next_rung(self, step: int) -> int:
        """Return the smallest whole step that reaches the first rung beyond `step`."""
        rung = self.rung(step)
        following = 0 if rung is None else rung + 1
        if self.growth == 1.0:
            return int(self.first_step) * (following + 1)
        return math.ceil(self.first_step * self.growth**following * (1.0 - 1e-9))


@section
class Rungs(Section):
    """The rewards of all trials at each rung, ascending, and the last rung of each open trial."""

    rewards: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    # trial → index of its last rung, and its reward there
    last_rungs: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    # trial → its best reward so far
    best: Mapping[int, float] = field(default_factory=dict)

    def report(self, rule: StoppingRule, trial: int, step: int, reward: float) -> None:
        """Add a report of `trial`, which counts only once at a rung. A reward of NaN is the worst
        one."""
        known = self.best.get(trial)
        best = -math.inf if known is None else known
        if not math.isnan(reward):
            best = max(best, reward)
        if best != known:
            self.best = {**self.best, trial: best}
        rung = rule.rung(step)
        if rung is None or (trial in self.last_rungs and self.last_rungs[trial][0] >= rung):
            return
        there = self.rewards.get(rung, ())
        index = bisect.bisect_left(there, best)
        self.rewards = {**self.rewards, rung: (*there[:index], best, *there[index:])}
        self.last_rungs = {**self.last_rungs, trial: (rung, best)}

    def excuse(self, trials: Iterable[int]) -> None:
        """Let these stopped trials continue to the rung after their last one."""
        known = [trial for trial in trials if trial in self.last_rungs]
        excused = {trial: (self.last_rungs[trial][0], _EXCUSED) for trial in known}
        self.last_rungs = {**self.last_rungs, **excused}

    def remove(self, trials: Iterable[int]) -> None:
        """Remove ended trials; their rewards at the rungs are kept."""
        ended = [trial for trial in trials if trial in self.best]
        if ended:
            self.last_rungs = without(self.last_rungs, ended)
            self.best = without(self.best, ended)

    def stops(self, rule: StoppingRule, trial: int) -> bool:
        """Return whether `trial` should be stopped at its last rung."""
        if trial not in self.last_rungs:
            return False
        rung, reward = self.last_rungs[trial]
        rewards = self.rewards[rung]
        if not rule.share:
            return reward < _EXCUSED
        if len(rewards) < rule.least:
            return False
        survivors = max(1, int(len(rewards) * rule.share + 1e-9))
        return reward < rewards[-survivors]


LEAST_TRIALS = 8  # the least number of short first trainings, if there are any
# the share of a budget of steps that is divided among the short first trainings
_SHARE_OF_BUDGET = 0.12
# the number of short first trainings, as a share of a budget of evaluations
_SHARE_OF_EVALUATIONS = 0.4
# the length of each, as a share of a whole training, if there is no budget to divide
_SHARE_OF_TRAINING = 0.12
_SHARE_WITH_PAUSES = 1 / 8  # the same share if trials pause at ½, ¼, ⅛, … of a training


class FirstTrainings(NamedTuple):
    """The number of short first trainings, and the number of steps of each."""

    trials: int
    steps: int


NO_FIRST_TRAININGS = FirstTrainings(0, 1)


def first_trainings(last_step: int | None, evaluations: int, budget_steps: int | None) -> FirstTrainings:
    """Plan the short first trainings of a campaign.

    Args:
        last_step: the last step of a training; None if it is unknown.
        evaluations: the budget of evaluations.
        budget_steps: the budget of steps; None if only evaluations are counted.
    """
    if last_step is None:
        return NO_FIRST_TRAININGS
    whole = evaluations * _SHARE_OF_EVALUATIONS if budget_steps is None else budget_steps / last_step
    trials = max(LEAST_TRIALS, round(whole))
    each = _SHARE_OF_BUDGET * whole * last_step / trials
    # the pause (½, ¼, … of a training) that is nearest to `each` by ratio
    steps = math.ceil(last_step * 0.5 ** max(1, round(math.log2(last_step / each))))
    return FirstTrainings(trials, steps) if steps < last_step else NO_FIRST_TRAININGS


def first_steps_without_budget(last_step: int | None, pauses: bool) -> int:
    """Return the steps of a short first training in a search without a budget."""
    if pauses:
        return math.ceil((last_step or 1) * _SHARE_WITH_PAUSES)
    return max(1, round(_SHARE_OF_TRAINING * (last_step or 1)))


# After the first 60 trials, every twentieth is a witness, which is trained to its end whatever a
# rule says, so that a wrong belief of the model is noticed. Each witness takes a whole training:
# with fewer trials, witnesses would take a tenth of the budget.
WITNESSES = 20
TRIALS_BEFORE_WITNESSES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRule:
    """How `early_stopping: {rule: model}` treats trials, besides the comparison at rungs."""

    # the number of trials that are trained for a few steps before any trial is continued
    first_trials: int = 0
    first_steps: int = 0  # the number of these steps
    continues: bool = False  # whether stopped trials can be continued
    # whether they continue from their checkpoints; otherwise they restart from step 1
    has_checkpoints: bool = False
    finish: int = 0  # the number of unfinished trials to complete with the last part of the budget
    last_step: int | None = None  # the step at which a training ends; None if it is not given
    # the number of stopped trials whose checkpoints are kept; None: all
    keep_checkpoints: int | None = None
    # whether some trials are trained to their ends whatever their values are: witnesses, and the
    # most trained one until a training has ended
    trains_whole: bool = True
    # whether a checkpoint is saved at each pause, from which new trials may start
    saves_checkpoints: bool = False

    def stopping(self, after: int) -> StoppingRule:
        """Return the comparison at rungs. Trials with checkpoints pause at ½, ¼, … of a training;
        others are compared with the median. `after`: the first possible step."""
        if self.has_checkpoints:
            return StoppingRule.pauses(after, self.last_step)
        return StoppingRule.median(after)

    @property
    def restarts(self) -> bool:
        """Whether a stopped trial restarts from step 1 when it is continued."""
        return self.continues and not self.has_checkpoints

    def is_witness(self, trial: int) -> bool:
        """Return whether the trial is trained to its end although a rule would stop it."""
        is_due = trial >= TRIALS_BEFORE_WITNESSES and trial % WITNESSES == WITNESSES - 1
        return is_due and self.trains_whole

    def is_first_training(self, trial: int, continued: Container[int]) -> bool:
        """Return whether the trial is trained only for `first_steps`. `continued`: trials."""
        return trial < self.first_trials and trial not in continued
