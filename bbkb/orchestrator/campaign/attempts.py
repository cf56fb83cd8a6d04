"""Attempts as the campaign's state remembers them: running, best so far, and ended recently."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite  # bound here: an objective that runs in this process may replace it in `math`
from typing import NamedTuple

from bbkb.orchestrator.campaign.events import AttemptEnded
from bbkb.orchestrator.campaign.same_fields import same_fields

_MESSAGE_LENGTH = 400


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """A running attempt."""

    arm: int
    attempt: int
    since: float
    parameters: Mapping[str, object] = field(default_factory=dict)
    starts_from: tuple[int, int] | None = None  # see `QueuedAttempt`


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
    was stopped early is the last reported one.

    A named tuple, because one is created for every outcome: a frozen class with ten fields takes
    seven times as long to create.
    """

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


def ended_attempt(event: AttemptEnded, parameters: Mapping[str, object]) -> EndedAttempt:
    """Return the ended attempt whose outcome is `event`, for a trial with these parameters."""
    fields = same_fields(event, EndedAttempt)
    fields["message"] = fields.get("message", "")[:_MESSAGE_LENGTH]
    return EndedAttempt(
        **fields,
        seconds=max(0.0, event.finished - event.started),
        parameters=parameters,
        stopped_at=getattr(event, "step", None),
        stop_cause=getattr(event, "cause", ""),
    )


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
