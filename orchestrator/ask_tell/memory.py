"""A campaign in memory: its log of events, and the state folded from them.

There are no workers and no clock. The caller of `ask` evaluates the trials that are dispatched, and
every event has the time 0.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from orchestrator.bandit.strategy import Observation
from orchestrator.campaign.events import (
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
from orchestrator.campaign.rules import RetryRules, Rules, StrategyRules
from orchestrator.campaign.state import CampaignState, Session
from orchestrator.campaign.transitions import apply
from workers.messages import FailureKind

# the reason of trials that the caller started without a choice of the strategy
TOLD = "result from elsewhere"
PENDING = "pending elsewhere"
ENQUEUED = "enqueued"
# a share that a single result exceeds, for strategies that learn every result before they choose
LEARN_AT_ONCE = 1e-9
_ATTEMPT: Mapping[str, Any] = {"time": 0.0, "started": 0.0, "finished": 0.0, "worker": ""}
_failure = partial(TrialFailed, failure=FailureKind.ERROR, message="", is_final=True, **_ATTEMPT)
_success = partial(TrialSucceeded, **_ATTEMPT)


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The result of evaluating an arm, on the user's scale. `value` None: the evaluation failed."""

    arm: int
    value: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)  # further metrics
    trial: int | None = None  # the index of its trial; None before it was recorded


def without_budget(rules: Rules, growth: float) -> Rules:
    """Return `rules` for a campaign in memory, which has no budget. A refit is due when the number
    of rewards has grown by the share `growth`, or at the first new result if `growth` is 0."""
    return replace(
        rules,
        evaluations=sys.maxsize,
        retries=RetryRules(failures_before_giving_up=sys.maxsize),
        strategy=StrategyRules(is_asynchronous=True, refresh_growth=growth or LEARN_AT_ONCE, counts_rewards=True),
    )


class MemoryCampaign:
    """The events of a campaign and the state folded from them; trials are found by their arms."""

    def __init__(self, rules: Rules, events: Sequence[Event] = ()) -> None:
        self.rules = rules
        self.events: list[Event] = []
        self.state = CampaignState(rules=rules, session=Session(epoch=1))
        self.results: list[ArmResult] = []  # in the order of their arrival
        self._running: dict[int, list[int]] = {}  # arm → its running trials, the oldest first
        self._from_elsewhere: set[int] = set()  # trials whose results came without an `ask`
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Append `event` to the log and fold it into the state."""
        before, self.state = self.state, apply(self.state, event)
        self.events.append(event)
        match event:
            case TrialsDispatched(attempts=attempts):
                for trial, _ in attempts:
                    self._running.setdefault(self.state.running[trial].arm, []).append(trial)
            case TrialSucceeded() | TrialFailed() | TrialStopped():
                self._end(before.running[event.trial].arm, event)
            case BatchChosen(picks=picks, reason=reason, is_enqueued=True) if reason == TOLD:
                self._from_elsewhere.update(pick.trial for pick in picks)

    def _end(self, arm: int, event: TrialSucceeded | TrialFailed | TrialStopped) -> None:
        self._running[arm].remove(event.trial)
        if isinstance(event, TrialSucceeded):
            self.results.append(ArmResult(arm, event.value, event.metrics, event.trial))
        elif isinstance(event, TrialFailed):
            self.results.append(ArmResult(arm, None, trial=event.trial))

    @property
    def pending(self) -> list[int]:
        """The arms of trials without a result, in the order in which the trials started."""
        return [run.arm for run in self.state.running.values()]

    @property
    def paused(self) -> list[int]:
        """The arms of trials that may continue, the longest trained first."""
        trainings = self.state.trainings
        trials = sorted(trainings.paused, key=lambda trial: (-trainings.step(trial), trial))
        return [trainings.paused[trial].arm for trial in trials]

    @property
    def unlearned(self) -> list[Observation]:
        """The results that the strategy has not learned, in the order of their arrival."""
        return [
            replace(each.observation, is_existing=True) if each.trial in self._from_elsewhere else each.observation
            for each in self.state.finished
        ]

    def running_trial(self, arm: int) -> int | None:
        """Return the arm's oldest running trial; None if it has none."""
        return next(iter(self._running.get(arm, ())), None)

    def paused_trial(self, arm: int) -> int | None:
        """Return the arm's paused trial; None if it has none."""
        paused = self.state.trainings.paused
        return next((trial for trial, stopped in paused.items() if stopped.arm == arm), None)

    def last_step(self, arm: int) -> int:
        """Return the largest step that the arm's open trial has reported; 0 if there is none."""
        running = self.running_trial(arm)
        trial = self.paused_trial(arm) if running is None else running
        return 0 if trial is None else self.state.trainings.step(trial)

    def attempt(self, trial: int) -> int:
        """Return the index of a running trial's attempt."""
        return self.state.running[trial].attempt

    def choose(self, arms: Sequence[int], reason: str, **details: Any) -> None:
        """Record a choice of new trials, which are queued. `details`: further fields of the
        event."""
        first = self.state.totals.chosen
        picks = tuple(PickedTrial(trial=first + index, arm=arm, parameters={}) for index, arm in enumerate(arms))
        round_ = self.state.refresh.round
        self.take(BatchChosen(time=0.0, round=round_, picks=picks, reason=reason, seconds=0.0, **details))

    def resume(self, trials: Sequence[int]) -> None:
        """Queue the next attempts of paused trials."""
        runs = [(trial, self.state.trainings.paused[trial]) for trial in trials]
        continued = tuple(
            ContinuedTrial(trial=trial, arm=run.arm, attempt=run.attempt, parameters={}) for trial, run in runs
        )
        self.take(TrialsContinued(time=0.0, trials=continued, reason="promising"))

    def start(self, arms: Sequence[int], reason: str, shares: bool = True) -> list[int]:
        """Return a running trial for each of `arms` (n,). With `shares`, it is the arm's running
        trial if there is one. Otherwise the arm's paused trial continues, or a new trial starts."""
        used: Counter[int] = Counter()
        trials: list[int] = []
        new: list[int] = []
        continued: list[int] = []
        for arm in arms:
            running = self._running.get(arm, []) if shares else []
            paused = self.paused_trial(arm)
            if used[arm] < len(running):
                trials.append(running[used[arm]])
            elif paused is not None and paused not in continued:
                trials.append(paused)
                continued.append(paused)
            else:
                trials.append(self.state.totals.chosen + len(new))
                new.append(arm)
            used[arm] += 1
        if new:
            self.choose(new, reason, is_enqueued=True)
        if continued:
            self.resume(continued)
        if new or continued:
            queued = {each.trial: each.attempt for each in self.state.backlog}
            self.take(
                TrialsDispatched(time=0.0, attempts=tuple((each, queued[each]) for each in trials if each in queued))
            )
        return trials

    def end(self, trial: int, result: ArmResult) -> None:
        """Record the result of a running trial."""
        attempt = self.attempt(trial)
        if result.value is None:
            self.take(_failure(trial=trial, attempt=attempt))
        else:
            self.take(_success(trial=trial, attempt=attempt, value=result.value, metrics=result.metrics))

    def stop(self, trial: int, cause: str) -> None:
        """Record that a running trial is stopped at the step of its last report."""
        curve = self.state.trainings.curves.get(trial)
        self.take(
            TrialStopped(
                trial=trial,
                attempt=self.attempt(trial),
                value=self.rules.sign * curve.rewards[-1] if curve is not None and curve.steps else None,
                step=self.state.trainings.step(trial),
                cause=cause,
                **_ATTEMPT,
            )
        )
