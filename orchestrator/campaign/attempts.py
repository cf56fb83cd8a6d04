"""Attempts as the campaign's state remembers them: running, best so far, and ended recently."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from orchestrator.campaign.events import AttemptEnded, TrialFailed, TrialStopped

_MESSAGE_LENGTH = 400


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """A running attempt."""

    arm: int
    attempt: int
    since: float
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Best:
    """The best value so far, on the user's scale; `trial` None: of existing data, `source`."""

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
        return f"existing data: {self.source}" if self.trial is None else f"trial {self.trial}"


class EndedAttempt(NamedTuple):
    """An attempt that ended recently: its `value` (the last reported one if it was stopped early),
    or its failure.

    A named tuple, because one is made for every outcome: ten fields of a frozen class take seven
    times as long.
    """

    trial: int
    attempt: int
    time: float  # when its outcome was recorded
    seconds: float  # how long it took
    parameters: Mapping[str, object]
    value: float | None = None
    failure: str = ""  # its kind; empty for a success
    message: str = ""  # at most `_MESSAGE_LENGTH` characters
    stopped_at: int | None = None  # the step at which the campaign stopped it
    stop_cause: str = ""  # why; empty if it was not recorded
    is_final: bool = True  # False: the trial will be tried again


def ended_attempt(event: AttemptEnded, parameters: Mapping[str, object]) -> EndedAttempt:
    """Return the attempt whose outcome `event` is, at a trial with these parameters."""
    return EndedAttempt(
        trial=event.trial,
        attempt=event.attempt,
        time=event.time,
        seconds=max(0.0, event.finished - event.started),
        parameters=parameters,
        value=None if isinstance(event, TrialFailed) else event.value,
        failure=event.failure if isinstance(event, TrialFailed) else "",
        message=event.message[:_MESSAGE_LENGTH] if isinstance(event, TrialFailed) else "",
        stopped_at=event.step if isinstance(event, TrialStopped) else None,
        stop_cause=event.cause if isinstance(event, TrialStopped) else "",
        is_final=not isinstance(event, TrialFailed) or event.is_final,
    )


def place_between(started: float, finished: float, dispatched: float, arrived: float) -> tuple[float, float]:
    """Return the same time of evaluation between its dispatch and the arrival of its outcome: the
    worker that stamped it may be on a node whose clock is wrong, or was stepped."""
    if dispatched <= started <= finished <= arrived:
        return started, finished
    finished, seconds = min(finished, arrived), max(0.0, finished - started)
    if finished - seconds < dispatched:
        finished = min(dispatched + seconds, max(arrived, dispatched))
    return max(finished - seconds, dispatched), max(finished, dispatched)
