"""The rows of a campaign's tables: trials, attempts and sessions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple, cast

from bbkb.orchestrator.campaign.events import PickedTrial, RunState

TrialStatus = Literal["queued", "running", "succeeded", "failed", "stopped"]
# the numbers of a trial's result, which a continued trial loses until it ends again
RESULT_FIELDS = ("value",)


@dataclass(slots=True)
class TrainingRow:
    """The training of a trial that reports intermediate values."""

    reports: dict[int, float] = field(default_factory=dict)  # step → value, from the newest attempt
    metrics: dict[int, Mapping[str, float]] = field(default_factory=dict)  # step → further metrics
    last_step: int = 0  # the largest reported step in all attempts
    stopped_at: int | None = None  # the step at which the campaign stopped the trial early
    stop_cause: str = ""  # the reason, for display
    continuations: int = 0  # the number of continuations after a stop
    has_restarted: bool = False  # whether the trial then reported its first step again
    has_no_checkpoint: bool = False  # whether its checkpoint was removed after the stop

    def add(self, step: int, value: float, metrics: Mapping[str, float]) -> None:
        """Add a report. It replaces that of an earlier attempt."""
        if self.continuations and len(self.reports) > 1 and step <= next(iter(self.reports)):
            self.has_restarted = True
        self.reports[step] = value
        self.last_step = max(self.last_step, step)
        self.metrics.pop(step, None)
        if metrics:
            self.metrics[step] = metrics


# Shared by all trials without reports: a separate value would take an eighth of a row
_NO_TRAINING = TrainingRow(
    cast(dict[int, float], MappingProxyType({})),
    cast(dict[int, Mapping[str, float]], MappingProxyType({})),
)


@dataclass(slots=True)
class TrialRow:
    """A trial at the end of the log. Times are None until they are known. `value` is on the user's
    scale."""

    pick: PickedTrial  # the candidate, and the model's prediction at the time of choice
    batch: int  # 1 for the first batch
    place: int  # the index in its batch, from 1
    status: TrialStatus = "queued"
    attempts: int = 0
    value: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    dispatched: float | None = None  # the time at which the newest attempt was passed to a worker
    started: float | None = None
    finished: float | None = None
    worker: str = ""
    # read-only; `own_training` returns a modifiable one
    training: TrainingRow = field(default_factory=lambda: _NO_TRAINING)
    error: str = ""  # "kind: message" of the newest attempt's failure; empty if it did not fail
    is_feasible: bool | None = None  # None before the first result or without constraints

    @property
    def trial(self) -> int:
        """The trial's index, in the order of choice."""
        return self.pick.trial

    @property
    def arm(self) -> int:
        """The candidate's index."""
        return self.pick.arm

    @property
    def parameters(self) -> Mapping[str, object]:
        """The candidate's parameters."""
        return self.pick.parameters

    @property
    def seconds(self) -> float | None:
        """Duration of the newest finished attempt."""
        return None if self.started is None or self.finished is None else self.finished - self.started

    def own_training(self) -> TrainingRow:
        """Return the row's training for modification, after creating it if necessary."""
        if self.training is _NO_TRAINING:
            self.training = TrainingRow()
        return self.training


class AttemptRow(NamedTuple):
    """A finished attempt, successful or not: one bar of the Gantt chart."""

    trial: int
    attempt: int
    started: float
    finished: float
    worker: str
    failure: str = ""  # its kind; empty if the attempt did not fail
    message: str = ""
    stop: str = ""  # "paused" or "stopped early"; empty if the campaign did not stop it
    value: float | None = None  # the result, or the last report before the stop

    @property
    def ended(self) -> str:
        """The kind of the failure, "paused", "stopped early" or "succeeded"."""
        return self.failure or self.stop or "succeeded"


@dataclass(slots=True)
class SessionRow:
    """A session. `ended` is the time of its last event."""

    epoch: int
    executor: str
    slots: int
    started: float
    ended: float
    state: RunState = RunState.UNFINISHED  # until the log records the end of the session
    reason: str = ""
    worker_seconds: float = 0.0  # the sum over time of the number of slots

    def extend(self, time: float) -> None:
        """Extend the session to `time`, with the current number of slots."""
        self.worker_seconds += self.slots * max(0.0, time - self.ended)
        self.ended = max(self.ended, time)

    @property
    def seconds(self) -> float:
        """The duration on the wall clock, or in virtual time."""
        return self.ended - self.started
