"""The facts about trainings in steps: reported values, stopped trials and forecasts.

A budget of steps counts the largest step that a trial has reported in any attempt, or one step if it
ends without a report. A training that continues from a checkpoint therefore does not count its
first steps twice.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from bbkb.orchestrator.bandit.results import TrialCurve
from bbkb.orchestrator.campaign.draft import Section, section, without
from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.orchestrator.campaign.training_rules import Rungs, StoppingRule
from bbkb.workers.messages import Report, Trial

if TYPE_CHECKING:  # it imports numpy, which reading a log does not need
    from bbkb.orchestrator.bandit.strategy import TrialForecast

# The largest number of distinct steps to store. A training that reports more of them is assumed to
# report at every step.
_MOST_DISTINCT = 64


@section
class Steps(Section):
    """The steps of ended trials, and of open trials that have reported."""

    ended: int = 0  # the sum over all ended trials
    open: Mapping[int, int] = field(default_factory=dict)  # trial → largest step
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
