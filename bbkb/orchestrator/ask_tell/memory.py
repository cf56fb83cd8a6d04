"""A campaign in memory: its log of events, and the state folded from them.

There are no workers and no clock. The caller of `ask` evaluates the dispatched trials, and every
event has the time 0.
"""

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bbkb.orchestrator.bandit.strategy import Observation
from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    ContinuedTrial,
    Event,
    PickedTrial,
    TrialFailed,
    TrialsContinued,
    TrialsDispatched,
    TrialStopped,
    TrialSucceeded,
)
from bbkb.orchestrator.campaign.rules import RetryRules, Rules, StrategyRules
from bbkb.orchestrator.campaign.same_fields import same_fields
from bbkb.orchestrator.campaign.state import CampaignState, Session
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.workers.messages import FailureKind

# the reason of trials that the caller started without a choice by the strategy
TOLD = "result from elsewhere"
PENDING = "pending elsewhere"
ENQUEUED = "enqueued"
# a share below that of a single result, for strategies that learn every result before they choose
LEARN_AT_ONCE = 1e-9
_ATTEMPT: Mapping[str, Any] = {"time": 0.0, "started": 0.0, "finished": 0.0, "worker": ""}
_FAILURE: Mapping[str, Any] = {"failure": FailureKind.ERROR, "message": "", "is_final": True}


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The result of evaluating an arm (user's scale). If the evaluation failed, `value` is None."""

    arm: int
    value: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)  # the metrics besides the value
    trial: int | None = None  # the index of its trial; None before it was recorded


class MemoryCampaign:
    """The events of a campaign without a budget, and the state folded from them.

    Args:
        rules: goals, and the rules for trainings.
        growth: the relative growth of the number of rewards at which a refit is due; 0: a refit is
            due at the first new result.
        events: the events so far.
    """

    def __init__(self, rules: Rules, growth: float, events: Iterable[Event] = ()) -> None:
        self.rules = replace(
            rules,
            evaluations=sys.maxsize,
            retries=RetryRules(failures_before_giving_up=sys.maxsize),
            strategy=StrategyRules(
                is_asynchronous=True,
                refresh_growth=growth or LEARN_AT_ONCE,
                counts_rewards=True,
            ),
        )
        self.events: list[Event] = []
        self.state = CampaignState(rules=self.rules, session=Session(epoch=1))
        self._arms: list[int] = []  # trial → arm
        self._from_elsewhere: set[int] = set()  # trials whose results were not requested by `ask`
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Append `event` to the log and fold it into the state."""
        self.state = apply(self.state, event)
        self.events.append(event)
        if isinstance(event, BatchChosen):
            self._arms += [pick.arm for pick in event.picks]
            if event.reason == TOLD:
                self._from_elsewhere.update(pick.trial for pick in event.picks)

    @property
    def results(self) -> list[ArmResult]:
        """The results in the order of their arrival."""
        results = []
        for event in self.events:
            if isinstance(event, TrialSucceeded):
                arm = self._arms[event.trial]
                results.append(ArmResult(arm, event.value, event.metrics, event.trial))
            elif isinstance(event, TrialFailed):
                results.append(ArmResult(self._arms[event.trial], None, trial=event.trial))
        return results

    @property
    def pending(self) -> list[int]:
        """The arms of trials without a result, in the order in which the trials started."""
        return [run.arm for run in self.state.running.values()]

    @property
    def paused(self) -> list[int]:
        """The arms of trials that may be continued, the longest trained first."""
        trainings = self.state.trainings
        trials = sorted(trainings.paused, key=lambda trial: (-trainings.step(trial), trial))
        return [trainings.paused[trial].arm for trial in trials]

    @property
    def unlearned(self) -> list[Observation]:
        """The results that the strategy has not learned, in the order of their arrival."""
        return [
            replace(each.observation, is_existing=each.trial in self._from_elsewhere)
            for each in self.state.finished
        ]  # fmt: skip

    def running_trial(self, arm: int) -> int | None:
        """Return the arm's oldest running trial, or None."""
        return next((trial for trial, run in self.state.running.items() if run.arm == arm), None)

    def paused_trial(self, arm: int) -> int | None:
        """Return the arm's paused trial, or None."""
        paused = self.state.trainings.paused
        return next((trial for trial, stopped in paused.items() if stopped.arm == arm), None)

    def last_step(self, arm: int) -> int:
        """Return the largest step that the arm's open trial has reported; 0 if there is none."""
        running = self.running_trial(arm)
        trial = self.paused_trial(arm) if running is None else running
        return 0 if trial is None else self.state.trainings.step(trial)

    def choose(self, arms: Sequence[int], reason: str, **details: Any) -> None:
        """Queue new trials of `arms`. `details`: further fields of the event."""
        trials = itertools.count(self.state.totals.chosen)
        picks = tuple(PickedTrial(trial=next(trials), arm=arm, parameters={}) for arm in arms)
        round_ = self.state.refresh.round
        self.take(
            BatchChosen(time=0.0, round=round_, picks=picks, reason=reason, seconds=0.0, **details)
        )  # fmt: skip

    def start(self, arms: Sequence[int], reason: str, shares: bool = True) -> list[int]:
        """Return a running trial for each of `arms` (n,), which `ask` did not return. With `shares`,
        this is the arm's running trial if there is one. Otherwise the arm's paused trial continues,
        or a new trial starts."""
        running = self.state.running.items() if shares else ()
        available: dict[int, list[int]] = {arm: [] for arm in arms}
        for trial, each in (*running, *self.state.trainings.paused.items()):
            if each.arm in available:
                available[each.arm].append(trial)
        trials = [available[arm].pop(0) if available[arm] else None for arm in arms]
        if None in trials:
            return self.run(arms, trials, reason, is_enqueued=True)
        return self._set_running([trial for trial in trials if trial is not None])

    def run(
        self, arms: Sequence[int], trials: Sequence[int | None], reason: str, **details: Any
    ) -> list[int]:  # fmt: skip
        """Choose a new trial of each of `arms` (n,) whose trial in `trials` (n,) is None; run these
        and the others. Return all of them. `details`: further fields of the choice."""
        fresh = itertools.count(self.state.totals.chosen)
        all_trials = [next(fresh) if trial is None else trial for trial in trials]
        new = [arm for arm, trial in zip(arms, trials, strict=True) if trial is None]
        self.choose(new, reason, **details)
        return self._set_running(all_trials)

    def _set_running(self, trials: list[int]) -> list[int]:
        """Continue the paused ones of `trials`, and start the queued ones. Return `trials`."""
        paused = self.state.trainings.paused
        continued = tuple(
            ContinuedTrial(trial=trial, **same_fields(paused[trial], ContinuedTrial))
            for trial in trials
            if trial in paused
        )
        if continued:
            self.take(TrialsContinued(time=0.0, trials=continued, reason="promising"))
        self.dispatch(trial for trial in trials if trial not in self.state.running)
        return trials

    def dispatch(self, trials: Iterable[int]) -> None:
        """Start queued trials, if there are any."""
        queued = {each.trial: each.attempt for each in self.state.backlog}
        attempts = tuple((trial, queued[trial]) for trial in trials)
        if attempts:
            self.take(TrialsDispatched(time=0.0, attempts=attempts))

    def end(self, trial: int, result: ArmResult) -> None:
        """Record the result of a running trial."""
        ended = {"trial": trial, "attempt": self.state.running[trial].attempt, **_ATTEMPT}
        if result.value is None:
            self.take(TrialFailed(**ended, **_FAILURE))
        else:
            self.take(TrialSucceeded(**ended, value=result.value, metrics=result.metrics))

    def stop(self, trial: int, cause: str) -> None:
        """Record that a running trial is stopped at the step of its last report."""
        curve = self.state.trainings.curves.get(trial)
        self.take(
            TrialStopped(
                trial=trial,
                attempt=self.state.running[trial].attempt,
                value=self.rules.sign * curve.rewards[-1] if curve and curve.steps else None,
                step=self.state.trainings.step(trial),
                cause=cause,
                **_ATTEMPT,
            )
        )
