"""Trainings in steps: the rules that stop them early, what is known about them (reported values, stopped
trials, forecasts), and which of them the remaining budget is reserved for.

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

A budget of steps counts the largest step that a trial has reported in any attempt, or one step if it
ends without a report. A training that continues from a checkpoint therefore does not count its
first steps twice, but one that restarts at its first step does.

Near the end of a budget of steps, the remaining steps are reserved for the best unfinished trials.
Their number is at most `finish`, and they take at most a third of the budget, except for a single
trial. The remaining steps must suffice to complete them. Trials that are already being
completed come first. If no trial can be completed, the plan `is_hopeless` and the campaign ends.
If the budget is spent and no trial has finished, one trial is completed nevertheless.
Near the end of a budget of hours, the best unfinished trials are the next to be trained.
"""

import bisect
import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from bbkb.orchestrator.bandit.results import TrialCurve
from bbkb.orchestrator.campaign.draft import Section, section, without
from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.workers.messages import Report, Trial

if TYPE_CHECKING:  # it imports numpy, which reading a log does not need
    from bbkb.orchestrator.bandit.strategy import TrialForecast


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

    def stopping(self, after: int, end: int | None) -> StoppingRule:
        """Return the comparison at rungs. Trials with checkpoints pause at ½, ¼, … of a training;
        others are compared with the median. `after`: the first possible step; `end`: the last step
        of a training, None if it is unknown."""
        if self.has_checkpoints:
            return StoppingRule.pauses(after, end)
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


# The largest number of distinct steps to store. A training that reports more of them is assumed to
# report at every step.
_MOST_DISTINCT = 64


@section
class Steps(Section):
    """The steps of ended trials, and of open trials that have reported."""

    ended: int = 0  # the sum over all ended trials
    open: Mapping[int, int] = field(default_factory=dict)  # trial → largest step since it last restarted
    distinct: frozenset[int] = frozenset()  # the first `_MOST_DISTINCT` steps at which any trial reported

    @property
    def total(self) -> int:
        """The steps of all trials."""
        return self.ended + sum(self.open.values())

    def next_report(self, step: int) -> int | None:
        """Return the first step from `step` on at which any trial has reported, or None."""
        return min((at for at in self.distinct if at >= step), default=None)

    def until_next_report(self, step: int) -> int:
        """Return the number of steps between `step` and a trial's next report.

        It is estimated from the reports of other trials. If no trial has reported beyond `step`, it
        is the distance to the previous report.
        """
        if len(self.distinct) == _MOST_DISTINCT or not step:
            return 1
        later = self.next_report(step + 1)
        if later is not None:
            return later - step
        return step - max((at for at in self.distinct if at < step), default=0)

    def report(self, reports: Sequence[Report]) -> None:
        """Count these reports of open trials."""
        largest = dict(self.open)
        for report in reports:
            step = report.step
            largest[report.trial] = max(step, largest.get(report.trial, 0))
            if step not in self.distinct and len(self.distinct) < _MOST_DISTINCT:
                self.distinct |= {step}
        self.open = largest

    def reopen(self, trials: Mapping[int, int]) -> None:
        """Open `trials`, which had ended at these steps, again."""
        again = {trial: max(1, step) for trial, step in trials.items()}
        self.ended -= sum(again.values())
        self.open = {**self.open, **again}

    def restart(self, trial: int) -> None:
        """Count the steps of an open trial again from its next report on."""
        self.ended += self.open.get(trial, 0)
        self.open = without(self.open, [trial])

    def end(self, trial: int, reports: Sequence[Report] = ()) -> None:
        """End `trial`, whose last attempt also made these reports."""
        last = max((report.step for report in reports), default=0)
        self.ended += max(1, last, self.open.get(trial, 0))
        self.open = without(self.open, [trial])


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The model's forecast of the final value of an unfinished trial, on the user's scale."""

    trial: int
    mean: float  # the expected value
    # two standard deviations of the model's score below it (above it if values are minimized)
    low: float
    high: float  # two standard deviations of the score above it


def forecast_of(expected: "TrialForecast", goals: CampaignGoals) -> Forecast:
    """Return a strategy's forecast on the user's scale."""
    mean, low, high = map(goals.value, (expected.mean, expected.low, expected.high))
    return Forecast(trial=expected.trial, mean=mean, low=low, high=high)


@dataclass(frozen=True, slots=True)
class Hopes:
    """The best result, which an unfinished trial has to improve."""

    goals: CampaignGoals
    best: float | None = None  # the reward of the best result; None before the first

    def optimistic(self, forecast: Forecast) -> float:
        """Return the optimistic final reward."""
        return self.goals.reward(forecast.high)


# A returned value differs in kind from a report if it is more than twice or less than half as
# large. The same quantity on other rows, or with averaged weights, differs by less. A loss instead
# of an accuracy, or a percentage instead of a share, usually differs by more.
_UNLIKE_SHARE = 0.5


class Paused(NamedTuple):
    """A trial that was stopped and can be continued."""

    trial: Trial  # with its last attempt
    step: int  # the step at which it was stopped


@dataclass(frozen=True, slots=True)
class UnlikeEnd:
    """A trial that seems to have returned a different quantity than it reported."""

    trial: int
    reported: float  # the reward of its last report, for display
    returned: float  # the reward of its returned value

    @staticmethod
    def of(curve: TrialCurve, returned: float) -> "UnlikeEnd | None":
        """Compare a trial's returned reward with the nearest report of its curve, because a function
        may return its best value. Return None unless the difference exceeds both the spread of the
        reports and half of the larger value."""
        if not curve.steps or curve.has_diverged:
            return None
        nearest = min(curve.rewards, key=lambda reward: abs(returned - reward))
        spread = max(curve.rewards) - min(curve.rewards)
        least = max(spread, _UNLIKE_SHARE * max(abs(nearest), abs(returned)))
        if abs(returned - nearest) <= least:
            return None
        return UnlikeEnd(curve.trial, curve.rewards[-1], returned)


@dataclass(frozen=True, slots=True)
class WholeTrainings:
    """Summary of the trials that finished after a report."""

    count: int = 0
    largest_step: int = 0  # 0 before the first report
    # seconds per step of the newest one that needed a single attempt; 0 before the first
    seconds_per_step: float = 0.0
    unlike: int = 0  # the number of trials whose returned value is unlike their reports
    newest_unlike: UnlikeEnd | None = None

    def after(self, curve: TrialCurve, reward: float, seconds: float | None) -> "WholeTrainings":
        """Return a copy after the end of a trial with these reports and this final reward.
        `seconds`: the duration of its only attempt; None if it had several."""
        unlike = UnlikeEnd.of(curve, reward)
        per_step = self.seconds_per_step
        if seconds is not None:
            per_step = seconds / max(1, curve.step)  # the first step may be 0
        return WholeTrainings(
            count=self.count + 1,
            largest_step=max(self.largest_step, curve.step),
            seconds_per_step=per_step,
            unlike=self.unlike + (unlike is not None),
            newest_unlike=unlike or self.newest_unlike,
        )


@section
class Trainings(Section):
    """The facts about all trainings of a campaign or of an optimizer."""

    parts: ClassVar[tuple[str, ...]] = ("rungs", "steps")

    # the curves of trials that are running, are paused, or ended after the newest refresh
    curves: Mapping[int, TrialCurve] = field(default_factory=dict)
    # stopped trials that can be continued
    paused: Mapping[int, Paused] = field(default_factory=dict)
    # the forecasts of running and paused trials, from the newest refresh
    forecasts: Mapping[int, Forecast] = field(default_factory=dict)
    # the curves that the current or newest refresh learns
    learned_curves: tuple[TrialCurve, ...] = ()
    learned_paused: tuple[int, ...] = ()  # the trials that were paused when it began, ascending
    continued: frozenset[int] = frozenset()  # trials that were continued at least once
    completing: frozenset[int] = frozenset()  # trials continued with the last part of the budget
    removed: frozenset[int] = frozenset()  # stopped trials whose checkpoints were removed
    # continued trials that reported their first step again because they found no checkpoint
    without_checkpoint: frozenset[int] = frozenset()
    furthest_step: int = 0  # the largest step that any trial reported; 0 before the first report
    whole: WholeTrainings = field(default_factory=WholeTrainings)
    rungs: Rungs = field(default_factory=Rungs)
    steps: Steps = field(default_factory=Steps)
    # trial → step and reward of its newest learned pause, whose checkpoint was saved
    saved: Mapping[int, tuple[int, float]] = field(default_factory=dict)

    def report(
        self,
        reports: Sequence[Report],
        arms: Mapping[int, int],
        goals: CampaignGoals,
        rule: StoppingRule | None = None,
        counts_steps: bool = False,
    ) -> None:
        """Add reports of running trials, whose arms are in `arms`, in the order of their arrival: to
        the curves, to the rungs of `rule`, and to the steps if `counts_steps`."""
        first = goals.objectives[0].metric
        curves = dict(self.curves)
        for report in reports:
            trial, step = report.trial, report.step
            if trial not in arms:
                continue
            rewards = goals.rewards(report.values)
            before = curves.get(trial) or TrialCurve(trial, arms[trial])
            curves[trial] = before.after(step, rewards.get(first, math.nan))
            self.furthest_step = max(self.furthest_step, step)
            if trial in self.continued and before.steps and not before.is_continued_at(step):
                self.without_checkpoint |= {trial}
                self.steps.restart(trial)
            if rule is not None and (compared := rewards.get(rule.metric or first)) is not None:
                self.rungs.report(rule, trial, step, compared)
        self.curves = curves
        if counts_steps:
            self.steps.report(reports)

    def succeed(self, trial: int, reward: float, seconds: float) -> None:
        """Finish `trial` with this reward, after an attempt of `seconds`. Nothing changes for a trial
        that has never reported."""
        curve = self.curves.get(trial)
        if curve is not None:
            self.whole = self.whole.after(curve, reward, None if trial in self.continued else seconds)
            self.curves = {**self.curves, trial: curve.end(reward)}

    def resume(self, trials: Sequence[int], is_completing: bool) -> None:
        """Queue these paused trials again. `is_completing`: with the last part of the budget."""
        self.paused = without(self.paused, trials)
        self.continued = self.continued.union(trials)
        self.completing = self.completing.union(trials if is_completing else ())
        self.rungs.excuse(trials)

    def start_from(
        self, trial: Trial, origin: tuple[int, int], rule: StoppingRule | None, counts_steps: bool
    ) -> None:  # fmt: skip
        """Add a new trial that starts from the saved checkpoint of `origin`, a trial and a step, as if
        it had reported the value there and paused (at the rungs of `rule`)."""
        step, reward = self.saved[origin[0]]
        self.curves = {**self.curves, trial.id: TrialCurve(trial.id, trial.arm).after(step, reward)}
        self.furthest_step = max(self.furthest_step, step)
        if rule is not None:
            self.rungs.report(rule, trial.id, step, reward)
        self.resume([trial.id], is_completing=False)
        if counts_steps:
            self.steps.reopen({trial.id: step})

    def remove_checkpoints(self, trials: Sequence[int], unlearned: Set[int]) -> None:
        """End these stopped trials for good. The curves of `unlearned` trials are kept for the next
        refresh."""
        self.rungs.remove(trials)
        self.paused = without(self.paused, trials)
        self.curves = without(self.curves, set(trials) - unlearned)
        self.forecasts = without(self.forecasts, trials)
        self.removed = self.removed.union(trials)

    def refresh(self, trials: Sequence[int], forecasts: Iterable[Forecast], saves: bool = False) -> None:
        """Take the results of a refresh, which has learned these ended trials and made these
        forecasts. `saves`: whether each pause has saved a checkpoint from which other trials may start.
        """
        if saves:
            pauses = (trial for trial in trials if trial in self.paused and self.step(trial))
            newest = {trial: (self.paused[trial].step, self.curves[trial].rewards[-1]) for trial in pauses}
            self.saved = {**self.saved, **newest}
        continued = self.continued.intersection(trials, self.curves)
        unfinished = {trial for trial in continued if not self.curves[trial].is_finished}
        self.curves = without(self.curves, set(trials) - self.paused.keys() - unfinished)
        self.forecasts = {forecast.trial: forecast for forecast in forecasts}

    def step(self, trial: int) -> int:
        """Return the latest step of `trial`; 0 before its first report."""
        curve = self.curves.get(trial)
        return 0 if curve is None else curve.step

    def end(self, last_step: int | None) -> int | None:
        """Return the step at which trainings end: `last_step` if given, else the largest step of a
        finished trial; None if there is neither."""
        return last_step or self.whole.largest_step or None

    def is_at_end(self, trial: int, last_step: int | None) -> bool:
        """Return whether `trial` is at its last step.

        If `last_step` is not given, this is the largest step of a finished trial, unless another
        trial has reported a later one.
        """
        if trial not in self.curves:
            return False
        step = self.curves[trial].step
        is_known = last_step is not None or step == self.furthest_step
        return is_known and step == self.end(last_step)

    def is_hopeless(self, trial: int, hopes: Hopes) -> bool:
        """Return whether even the optimistic forecast of `trial` is worse than the best results."""
        forecast = self.forecasts.get(trial)
        return forecast is not None and hopes.best is not None and hopes.optimistic(forecast) < hopes.best

    def superfluous(self, keep: int | None, hopes: Hopes, unlearned: Set[int]) -> tuple[int, ...]:
        """Return the stopped trials whose checkpoints can be removed: all but the `keep` (None: all)
        with the most promising forecasts. Those of `unlearned` trials, which ended after the newest
        refresh and have no new forecast yet, are kept."""
        if keep is None or not self.forecasts:
            return ()
        judged = set(self.learned_paused).intersection(self.paused) - unlearned
        known = judged.intersection(self.forecasts)
        promises = {trial: hopes.optimistic(self.forecasts[trial]) for trial in known}
        worst_first = sorted(judged, key=lambda trial: (promises.get(trial, -math.inf), trial))
        return tuple(sorted(worst_first[: max(0, len(judged) - keep)]))

    def best_unfinished(self, open_trials: Iterable[int], hopes: Hopes) -> list[int]:
        """Return the paused and the open trials that may improve the results, the most promising
        first.

        Trials are ordered by their forecasts, or by their latest values before the first forecast.
        Trials that have diverged are excluded, because their forecasts may predate the divergence.
        """
        diverged = {trial for trial, curve in self.curves.items() if curve.has_diverged}
        candidates = {*self.paused, *open_trials} - diverged
        forecasts = [forecast for trial, forecast in self.forecasts.items() if trial in candidates]
        if forecasts:
            hopeful = [each for each in forecasts if hopes.best is None or hopes.optimistic(each) > hopes.best]
            hopeful.sort(key=lambda forecast: hopes.goals.reward(forecast.mean), reverse=True)
            return [forecast.trial for forecast in hopeful]
        curves = self.curves.values()
        reported = [curve for curve in curves if curve.trial in candidates and curve.steps]
        return [curve.trial for curve in sorted(reported, key=lambda curve: -curve.rewards[-1])]


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
        trainings = self.trainings
        restarts = not self.rule.has_checkpoints or trial in trainings.without_checkpoint
        if (paused := trainings.paused.get(trial)) is not None:
            reusable = 0 if restarts else paused.step
        elif restarts and trial in trainings.continued:
            reusable = trainings.steps.open.get(trial, 0)
        else:
            reusable = trainings.step(trial)
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
