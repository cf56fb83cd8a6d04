"""A separate bookkeeping of a log's events: the oracle of `campaign.apply` and of `verify`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bbkb.orchestrator.campaign import events
from bbkb.orchestrator.campaign.state import CampaignState


@dataclass(frozen=True, slots=True)
class PendingAttempt:
    """An attempt that a resume would start."""

    trial: int
    arm: int
    attempt: int

    def __str__(self) -> str:
        return f"trial {self.trial} (arm {self.arm}, attempt {self.attempt})"


@dataclass(slots=True)  # one for each trial
class _Trial:
    arm: int
    state: Literal["waiting", "running", "finished", "learned"] = "waiting"
    attempt: int = 0
    has_succeeded: bool = False
    is_stopped: bool = False
    has_no_checkpoint: bool = False
    stops: tuple[int, ...] = ()  # the steps at which it was stopped

    @property
    def has_ended(self) -> bool:
        return self.state in ("finished", "learned")


@dataclass
class Books:
    """Trials, arms, sessions and refreshes after some events."""

    trials: dict[int, _Trial] = field(default_factory=dict)
    arms: int = 0
    sessions: int = 0
    round: int = 0
    is_open: bool = False  # whether a session is open

    def record(self, event: events.Event) -> Iterator[str]:
        """Record an event, and yield the rules that it breaks."""
        if type(event) in _RECORDS:
            yield from _RECORDS[type(event)](self, event)

    def attempts(self, state: str, later: int = 0) -> list[PendingAttempt]:
        """Return the trials in this state with their current attempts plus `later`."""
        return [
            PendingAttempt(number, trial.arm, trial.attempt + later)
            for number, trial in self.trials.items()
            if trial.state == state
        ]

    def unlearned(self) -> set[int]:
        """Return the trials that have ended and whose results the strategy has not learned."""
        return {number for number, trial in self.trials.items() if trial.state == "finished"}

    def differences(self, state: CampaignState) -> Iterator[str]:
        """Yield the counts that differ from those of `state`."""
        ours = self._counts()
        for name, theirs in _counts_of(state).items():
            if ours[name] != theirs:
                yield f"{name}: the events count {ours[name]}, `status` counts {theirs}"

    def _counts(self) -> Mapping[str, object]:
        trials = self.trials.values()
        ended = [trial for trial in trials if trial.has_ended and not trial.has_succeeded]
        return {
            "trials": len(trials),
            "succeeded": sum(trial.has_succeeded for trial in trials),
            "failed": sum(not trial.is_stopped for trial in ended),
            "stopped early": sum(trial.is_stopped for trial in trials),
            "running": {running.trial: running.attempt for running in self.attempts("running")},
            "waiting": {waiting.trial for waiting in self.attempts("waiting")},
            "not yet in the model": self.unlearned(),
        }

    def _create(self, event: events.CampaignCreated) -> Iterator[str]:
        self.arms = event.arms
        yield from ()

    def _open(self, event: events.SessionOpened) -> Iterator[str]:
        self.sessions += 1
        self.is_open = True
        for number in event.adopted:
            if number not in self.trials or self.trials[number].state != "running":
                yield f"trial {number} cannot be adopted: it was not running"
        for number, trial in self.trials.items():
            if trial.state == "running" and number not in event.adopted:
                trial.state = "waiting"

    def _close(self, event: events.SessionClosed) -> Iterator[str]:
        self.is_open = False
        yield from ()

    def _choose(self, event: events.BatchChosen) -> Iterator[str]:
        for pick in event.picks:
            if pick.trial != len(self.trials):
                yield f"trial {len(self.trials)} is next, got {pick.trial}"
            if not 0 <= pick.arm < self.arms:
                yield f"trial {pick.trial} must be of one of {self.arms} arms, got arm {pick.arm}"
            self.trials.setdefault(pick.trial, _Trial(pick.arm))
            if pick.starts_from is not None:
                origin, step = pick.starts_from
                parent = self.trials.get(origin)
                if parent is None or step not in parent.stops:
                    yield f"trial {pick.trial} starts from trial {origin} at step {step}, where it had not paused"
        yield from self._give_up(event)

    def _dispatch(self, event: events.TrialsDispatched) -> Iterator[str]:
        for number, attempt in event.attempts:
            trial = self.trials.get(number)
            if trial is None:
                yield f"trial {number} was dispatched and never chosen"
                continue
            if trial.state != "waiting":
                yield f"trial {number} was dispatched while {trial.state}"
            if attempt != trial.attempt + 1:
                yield f"trial {number}: attempt {trial.attempt + 1} is next, got {attempt}"
            trial.state = "running"
            trial.attempt = attempt

    def _end(self, event: events.AttemptEnded) -> Iterator[str]:
        trial = self.trials.get(event.trial)
        if trial is None:
            yield f"an outcome of trial {event.trial}, which was never chosen"
            return
        if trial.state != "running" or trial.attempt != event.attempt:
            yield (
                f"an outcome of trial {event.trial}, attempt {event.attempt}, which is not running: its attempt "
                f"{trial.attempt} is {trial.state}"
            )
        trial.has_succeeded = trial.has_succeeded or isinstance(event, events.TrialSucceeded)
        if isinstance(event, events.TrialStopped):
            trial.is_stopped = True
            trial.stops += (event.step,)
        is_retried = isinstance(event, events.TrialFailed) and not event.is_final
        trial.state = "waiting" if is_retried else "finished"

    def _queue_again(self, event: events.TrialsReopened | events.TrialsContinued) -> Iterator[str]:
        is_continued = isinstance(event, events.TrialsContinued)
        verb = "continued" if is_continued else "reopened"
        expected = (True, False, is_continued)  # whether it has ended, has succeeded, is stopped
        for again in event.trials:
            number = again if isinstance(again, int) else again.id
            trial = self.trials.get(number)
            if trial is None or (trial.has_ended, trial.has_succeeded, trial.is_stopped) != expected:
                before = "been stopped" if is_continued else "failed"
                yield f"trial {number} was {verb}, and had not {before}"
                continue
            if not isinstance(again, int) and (again.arm, again.attempt) != (trial.arm, trial.attempt):
                yield f"trial {number} was {verb} as arm {again.arm}, attempt {again.attempt}; it is another"
            if is_continued and trial.has_no_checkpoint:
                yield f"trial {number} was continued after its checkpoint was removed"
            trial.state = "waiting"
            trial.is_stopped = False

    def _give_up(self, event: events.CheckpointsRemoved | events.BatchChosen) -> Iterator[str]:
        for number in event.trials if isinstance(event, events.CheckpointsRemoved) else event.gives_up:
            trial = self.trials.get(number)
            if trial is None or not trial.has_ended or not trial.is_stopped:
                yield f"the checkpoint of trial {number} was removed, and it had not been stopped"
            else:
                trial.has_no_checkpoint = True

    def _refresh(self, event: events.ModelRefreshed) -> Iterator[str]:
        if event.round != self.round + 1:
            yield f"refresh {self.round + 1} is next, got {event.round}"
        self.round = event.round
        for number in event.trials:
            trial = self.trials.get(number)
            if trial is None or trial.state != "finished":
                state = "unknown" if trial is None else trial.state
                yield f"trial {number} was learned by the strategy, and is {state}"
            else:
                trial.state = "learned"

    def _grow(self, event: events.CandidatesGrown) -> Iterator[str]:
        if event.first != self.arms:
            yield f"arm {self.arms} is next, got {event.first}"
        sizes = {len(column) for column in event.columns.values()}
        if len(sizes) > 1:
            yield f"candidates were appended with columns of different lengths: {sorted(sizes)}"
        self.arms += max(sizes, default=0)
        for arm in event.retired:
            if not 0 <= arm < event.first:
                yield f"arm {arm} was retired, but only {event.first} arms existed"


_RECORDS: Mapping[type[events.Event], Callable[[Books, Any], Iterator[str]]] = {
    events.CampaignCreated: Books._create,
    events.SessionOpened: Books._open,
    events.SessionClosed: Books._close,
    events.BatchChosen: Books._choose,
    events.TrialsDispatched: Books._dispatch,
    events.TrialSucceeded: Books._end,
    events.TrialStopped: Books._end,
    events.TrialFailed: Books._end,
    events.TrialsReopened: Books._queue_again,
    events.TrialsContinued: Books._queue_again,
    events.CheckpointsRemoved: Books._give_up,
    events.ModelRefreshed: Books._refresh,
    events.CandidatesGrown: Books._grow,
}


def _counts_of(state: CampaignState) -> Mapping[str, object]:
    return {
        "trials": state.totals.chosen,
        "succeeded": state.totals.succeeded,
        "failed": state.totals.failed,
        "stopped early": state.totals.stopped,
        "running": {trial: run.trial.attempt for trial, run in state.running.items()},
        "waiting": {trial.id for trial in state.backlog},
        "not yet in the model": {finished.trial for finished in state.finished},
    }
