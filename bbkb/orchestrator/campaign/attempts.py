"""Trials as the campaign's state remembers them: running, finished, ended recently, and the best."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite  # bound here: an objective that runs in this process may replace it in `math`
from typing import NamedTuple

from bbkb.orchestrator.bandit.results import Observation
from bbkb.workers.messages import Outcome, Trial, TrialFailed, TrialStopped

_MESSAGE_LENGTH = 400


class Run(NamedTuple):
    """A trial whose attempt is running."""

    trial: Trial
    since: float  # the time of its dispatch


class FinishedTrial(NamedTuple):
    """A trial that has ended and that the strategy has not learned from yet."""

    trial: int
    observation: Observation


@dataclass(frozen=True, slots=True)
class Best:
    """The best value so far, on the user's scale; `trial` is None if it is existing data."""

    trial: int | None
    arm: int
    value: float
    parameters: Mapping[str, object] = field(default_factory=dict)
    source: str = ""
    # the metrics of further objectives and of constraints
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """The source of the value, for display."""
        return f"known results: {self.source}" if self.trial is None else f"trial {self.trial}"


class EndedAttempt(NamedTuple):
    """An attempt that ended recently, with its value or its failure. The `value` of a trial that
    was stopped early is the last reported one."""

    trial: int
    attempt: int
    time: float  # the time at which its outcome was recorded
    seconds: float  # its duration
    parameters: Mapping[str, object]
    value: float | None = None
    failure: str = ""  # its kind; empty for a success
    message: str = ""  # at most `_MESSAGE_LENGTH` characters
    stopped_at: int | None = None  # the step at which the campaign stopped it
    stop_cause: str = ""  # the reason; empty if it was not recorded
    is_final: bool = True  # False if the trial will be retried


def ended_attempt(event: Outcome, parameters: Mapping[str, object]) -> EndedAttempt:
    """Return the ended attempt whose outcome is `event`, for a trial with these parameters."""
    seconds = max(0.0, event.finished - event.started)
    common = (event.trial, event.attempt, event.time, seconds, parameters)
    if isinstance(event, TrialFailed):
        message = event.message[:_MESSAGE_LENGTH]
        return EndedAttempt(*common, None, event.failure.value, message, is_final=event.is_final)
    if isinstance(event, TrialStopped):
        return EndedAttempt(*common, event.value, stopped_at=event.step, stop_cause=event.cause)
    return EndedAttempt(*common, event.value)


def place_between(started: float, finished: float, dispatched: float, arrived: float) -> tuple[float, float]:
    """Move an evaluation between its dispatch and the arrival of its outcome, keeping its duration.
    The worker that stamped it may be on a node whose clock is wrong or was stepped, and an
    objective may have replaced its clock."""
    if dispatched <= started <= finished <= arrived:
        return started, finished
    if not isfinite(finished - started):
        return dispatched, max(dispatched, arrived)
    finished, seconds = min(finished, arrived), max(0.0, finished - started)
    if finished - seconds < dispatched:
        finished = min(dispatched + seconds, max(arrived, dispatched))
    return max(finished - seconds, dispatched), max(finished, dispatched)
