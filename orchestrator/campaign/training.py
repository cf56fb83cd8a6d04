"""Trainings that report values at steps: their curves, which are stopped and can be continued, and
their forecasts."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from orchestrator.bandit.curves import TrialCurve
from orchestrator.campaign.attempts import RunningAttempt
from orchestrator.campaign.early_stopping import Rungs, StoppingRule
from orchestrator.campaign.events import Forecast

# A returned value is not unlike a report that is at most twice as large or half as large: one quantity on other
# rows, or of averaged weights, differs by less, and a loss from an accuracy, or a share from per cent, mostly by more.
_UNLIKE_SHARE = 0.5
# After the first 60 trials every twentieth is trained on whatever a rule says, so that a wrong belief is noticed. Each
# takes a whole training: with fewer trials they would take a tenth of a budget.
WITNESSES = 20
TRIALS_BEFORE_WITNESSES = 60


class StopCause(StrEnum):
    """Why a trial is stopped before its end."""

    FIRST_TRAINING = "short first training"
    WORSE_THAN_OTHERS = "worse than other trials at this step"
    PAUSE = "paused: the model chooses which trial goes on"
    FORECAST = "its expected end is worse than the best one"
    FINISH = "the rest of the budget is for the best trials"
    SPENT = "the rest of the budget completes no training"


def cause_at_rung(rule: StoppingRule, rungs: Rungs, trial: int) -> StopCause | None:
    """Return why the rule of the rungs stops a trial; None: it goes on."""
    if not rungs.stops(rule, trial):
        return None
    return StopCause.WORSE_THAN_OTHERS if rule.share else StopCause.PAUSE


def stop_words(cause: str) -> tuple[str, str]:
    """Return what a stop for `cause` is called, and the cause after a colon; nothing without one."""
    word = "paused" if cause == StopCause.PAUSE else "stopped early"
    return word, cause and f": {cause.removeprefix(f'{word}: ')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRule:
    """How `early_stopping: {rule: model}` treats trials, besides the comparison at steps."""

    # how many trials are trained for a few steps only, before any is continued; 0: none
    first_trials: int = 0
    first_steps: int = 0  # how many steps these are
    continues: bool = False  # whether a stopped trial can be continued from its checkpoint
    restarts: bool = False  # whether a stopped trial can be trained again from its first step
    finish: int = 0  # how many of the best unfinished trials are completed at the end of the budget
    last_step: int | None = None  # the step at which a training ends; None where it is not given
    keep_checkpoints: int | None = None  # of how many stopped trials the checkpoints are kept; None: of all

    @property
    def resumes(self) -> bool:
        """Whether a stopped trial can be taken up, from its checkpoint or from its first step."""
        return self.continues or self.restarts

    @staticmethod
    def is_witness(trial: int) -> bool:
        """Return whether the trial is trained on although a rule would stop it."""
        return trial >= TRIALS_BEFORE_WITNESSES and trial % WITNESSES == WITNESSES - 1

    def is_first_training(self, trial: int, is_continued: bool) -> bool:
        """Return whether the trial is trained for `first_steps` only."""
        return not is_continued and trial < self.first_trials

    def cause_of_stop(
        self,
        trial: int,
        steps: Sequence[int],
        *,
        is_continued: bool,
        at_rung: StopCause | None,
        is_hopeless: Callable[[], bool],
        is_finishing: bool = False,
    ) -> StopCause | None:
        """Return why a running trial is stopped; None: it goes on.

        Args:
            trial: its number.
            steps: at which it has reported, ascending; those of its curve will do.
            is_continued: whether it was stopped before.
            at_rung: why the rule of its rungs stops it, if it does.
            is_hopeless: says whether even its optimistic forecast is worse than the best value.
            is_finishing: whether it was continued to complete the best ones.
        """
        if self.is_first_training(trial, is_continued):
            return StopCause.FIRST_TRAINING if steps and _is_nearest_report(steps, self.first_steps) else None
        if self.is_witness(trial) or is_finishing:
            return None
        if at_rung is not None:
            return at_rung
        # one that was continued goes on to its next pause: else it is stopped after a step, and chosen again
        return StopCause.FORECAST if not is_continued and is_hopeless() else None


def _is_nearest_report(steps: Sequence[int], target: int) -> bool:
    """Return whether the last of `steps` is `target` or beyond it, or nearer to it than the next
    report, which is expected to be as far away as the one before."""
    at, before = steps[-1], steps[-2] if len(steps) > 1 else 0
    return at >= target or target - at < abs(2 * at - before - target)


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
