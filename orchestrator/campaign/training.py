"""Trainings that report values at steps: their curves, which are stopped and can be continued, and
their forecasts."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from orchestrator.bandit.curves import TrialCurve
from orchestrator.campaign.attempts import RunningAttempt
from orchestrator.campaign.events import Forecast
from orchestrator.campaign.training_rule import TrainingRule

# A returned value is not unlike a report that is at most twice as large or half as large: one quantity on other
# rows, or of averaged weights, differs by less, and a loss from an accuracy, or a share from per cent, mostly by more.
_UNLIKE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class PausedTrial:
    """A trial that was stopped and can be continued."""

    run: RunningAttempt  # its last attempt
    step: int  # the step at which it was stopped


@dataclass(frozen=True, slots=True)
class UnlikeEnd:
    """A trial that returned another quantity than it reported, as it seems."""

    trial: int
    reported: float  # the reward of its last report, which is shown
    returned: float  # the reward that it returned

    @staticmethod
    def of(curve: TrialCurve, returned: float) -> "UnlikeEnd | None":
        """Compare what a trial returned, a reward, with its curve. Returns None unless the
        difference from the nearest report (a function may return its best one) is larger than its
        reports differ among themselves, and than a share of both."""
        if not curve.steps or curve.has_diverged:
            return None
        nearest = min(curve.rewards, key=lambda reward: abs(returned - reward))
        least = max(max(curve.rewards) - min(curve.rewards), _UNLIKE_SHARE * max(abs(nearest), abs(returned)))
        return UnlikeEnd(curve.trial, curve.rewards[-1], returned) if abs(returned - nearest) > least else None


@dataclass(frozen=True, slots=True)
class Training:
    """What a campaign knows of trainings in steps."""

    # of the trials that run, are paused, or ended and were not learned yet
    curves: Mapping[int, TrialCurve] = field(default_factory=lambda: MappingProxyType({}))
    # trials that were stopped and can be continued
    paused: Mapping[int, PausedTrial] = field(default_factory=lambda: MappingProxyType({}))
    told: tuple[TrialCurve, ...] = ()  # the curves that the running or last refresh of the model has
    told_paused: tuple[int, ...] = ()  # the trials that were paused then
    # of running and paused trials, by the newest refresh
    forecasts: Mapping[int, Forecast] = field(default_factory=lambda: MappingProxyType({}))
    continued: frozenset[int] = frozenset()  # trials that were continued at least once
    # trials that were continued to complete the best ones at the end of the budget
    finishing: frozenset[int] = frozenset()
    largest_step: int = 0  # the largest step of a trial that finished; 0 before the first
    furthest_step: int = 0  # the largest step that any trial reported; 0 before the first
    reporting: int = 0  # trials that finished after a report
    unlike: int = 0  # of these, how many returned something unlike their reports
    newest_unlike: UnlikeEnd | None = None
    seconds_per_step: float = 0.0  # mean duration of a step of the trials that finished; 0 before the first
    removed: frozenset[int] = frozenset()  # stopped trials whose checkpoints were removed
    # continued trials that began again, because they reported their first step once more
    restarted: frozenset[int] = frozenset()

    def after_reports(
        self, reports: Iterable[tuple[int, int, int, float]], running: Mapping[int, RunningAttempt], sign: float
    ) -> "Training":
        """Return the new state after reports (trial, attempt, step, value) of running trials."""
        changed: dict[int, TrialCurve] = {}
        restarted: set[int] = set()
        furthest_step = self.furthest_step
        for trial, _attempt, step, value in reports:
            run = running.get(trial)
            if run is not None:
                before = changed.get(trial) or self.curves.get(trial) or TrialCurve(trial, run.arm)
                changed[trial] = before.after(step, sign * value)
                furthest_step = max(furthest_step, step)
                if trial in self.continued and len(before.steps) > 1 and step <= before.steps[0]:
                    restarted.add(trial)
        after = replace(self._with_curves(changed), furthest_step=furthest_step) if changed else self
        return after if restarted <= self.restarted else replace(after, restarted=self.restarted | restarted)

    def after_end(self, trial: int, reward: float, seconds: float) -> "Training":
        """Return the new state after the end of `trial` with its final reward, whose last attempt
        took `seconds`; nothing changes for one that never reported."""
        curve = self.curves.get(trial)
        if curve is None:
            return self
        unlike = UnlikeEnd.of(curve, reward)
        after = replace(
            self._with_curves({trial: curve.end(reward)}),
            largest_step=max(self.largest_step, curve.step),
            reporting=self.reporting + 1,
            unlike=self.unlike + (unlike is not None),
            newest_unlike=unlike or self.newest_unlike,
        )
        if trial in self.continued:
            return after  # its last attempt made a part of its steps
        return replace(after, seconds_per_step=seconds / max(1, curve.step))  # a first step may be 0

    def pause(self, trial: int, run: RunningAttempt, step: int) -> "Training":
        """Return the new state after a stop of `trial`, which can be continued."""
        return replace(self, paused=MappingProxyType({**self.paused, trial: PausedTrial(run, step)}))

    def resume(self, trials: Sequence[int], is_finish: bool) -> "Training":
        """Return the new state after these paused trials were queued again; `is_finish`: to
        complete the best ones."""
        paused = {trial: stopped for trial, stopped in self.paused.items() if trial not in trials}
        return replace(
            self,
            paused=MappingProxyType(paused),
            continued=self.continued.union(trials),
            finishing=self.finishing.union(trials if is_finish else ()),
        )

    def superfluous(self, rule: TrainingRule, sign: float, unlearned: Iterable[int]) -> tuple[int, ...]:
        """Return stopped trials whose checkpoints are not kept: those of the worst optimistic
        forecasts beyond the number to be kept. Only trials that were stopped before the newest
        forecasts count; the others are `unlearned`."""
        if rule.keep_checkpoints is None or not self.forecasts:
            return ()
        judged = set(self.told_paused).intersection(self.paused).difference(unlearned)
        hopes = {trial: sign * self.forecasts[trial].high for trial in judged if trial in self.forecasts}
        worst_first = sorted(judged, key=lambda trial: (hopes.get(trial, -math.inf), trial))
        return tuple(sorted(worst_first[: max(0, len(judged) - rule.keep_checkpoints)]))

    @property
    def is_removal_untold(self) -> bool:
        """Whether the strategy may still continue a trial whose checkpoint was removed."""
        return bool(self.removed) and not self.removed.isdisjoint(self.told_paused)

    def remove(self, trials: Sequence[int]) -> "Training":
        """Return the new state after the checkpoints of these stopped trials were removed."""
        return replace(
            self,
            paused=MappingProxyType({trial: stopped for trial, stopped in self.paused.items() if trial not in trials}),
            curves=MappingProxyType({trial: curve for trial, curve in self.curves.items() if trial not in trials}),
            forecasts=MappingProxyType(
                {trial: forecast for trial, forecast in self.forecasts.items() if trial not in trials}
            ),
            removed=self.removed.union(trials),
        )

    def without(self, trial: int) -> "Training":
        """Return the new state after the failure of `trial`, which is not tried again."""
        if trial not in self.curves:
            return self
        return replace(self, curves=MappingProxyType({other: c for other, c in self.curves.items() if other != trial}))

    def refreshing(self) -> "Training":
        """Return the new state when a refresh of the model begins, which learns the curves of now."""
        return replace(self, told=tuple(self.curves.values()), told_paused=tuple(sorted(self.paused)))

    def refreshed(self, learned: Iterable[int], forecasts: Iterable[Forecast]) -> "Training":
        """Return the new state when a refresh has learned these ended trials."""
        ended = {trial for trial in learned if trial not in self.paused and trial not in self.continued_open}
        return replace(
            self,
            curves=MappingProxyType({trial: curve for trial, curve in self.curves.items() if trial not in ended}),
            forecasts=MappingProxyType({forecast.trial: forecast for forecast in forecasts}),
        )

    @property
    def continued_open(self) -> frozenset[int]:
        """Continued trials that have not finished."""
        return frozenset(
            trial for trial in self.continued if trial in self.curves and not self.curves[trial].is_finished
        )

    def best_unfinished(self, running: Iterable[int], sign: float, best: float | None) -> list[int]:
        """Return paused and `running` trials that may become better than `best`, a value, the most
        promising one first: by their forecasts, before any forecast by their latest values. None of
        them has diverged: its forecast may be older."""
        open_trials = {
            trial
            for trial in (*self.paused, *running)
            if trial not in self.curves or not self.curves[trial].has_diverged
        }
        forecasts = [forecast for trial, forecast in self.forecasts.items() if trial in open_trials]
        if forecasts:
            hopeful = [
                forecast
                for forecast in forecasts
                if best is None or max(sign * forecast.low, sign * forecast.high) > sign * best
            ]
            return [forecast.trial for forecast in sorted(hopeful, key=lambda forecast: -sign * forecast.mean)]
        curves = [curve for trial, curve in self.curves.items() if trial in open_trials and curve.steps]
        return [curve.trial for curve in sorted(curves, key=lambda curve: -curve.rewards[-1])]

    def _with_curves(self, changed: Mapping[int, TrialCurve]) -> "Training":
        return replace(self, curves=MappingProxyType({**self.curves, **changed}))
