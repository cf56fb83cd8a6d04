"""What travels between the campaign and the workers: plain, serialisable values, no Ray types.

A trial is one decision to evaluate an arm. It may need several attempts; `(trial, attempt)` names one of them and is
never used again, so that a result delivered twice, or late, can be recognised.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class FailureKind(StrEnum):
    """Why an attempt gave no value. Each kind has its own retry rule (`orchestrator.campaign.rules`)."""

    ERROR = "error"  # the objective raised
    INVALID_VALUE = "invalid value"  # it returned no finite number
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out of memory"
    WORKER_LOST = "worker lost"  # its process went away: the evaluation's fault only if that happens again and again
    NODE_LOST = "node lost"  # the machine went away, or was taken: never the evaluation's fault
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The logical processors that one evaluation takes of a cluster."""

    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a trial. It may use `memory_factor` times the memory that the limits say. `share`: what it takes
    of the cluster where its parameters say so; None for what all others take."""

    trial: int
    arm: int
    parameters: Mapping[str, object]
    seed: int
    attempt: int = 1
    memory_factor: float = 1.0
    folder: Path | None = None  # of this trial alone, the same for all its attempts; where the campaign gives it one
    share: Share | None = None


@dataclass(frozen=True, slots=True)
class IntermediateValue:
    """What an attempt reported while it ran. `value` may be NaN or infinite."""

    trial: int
    attempt: int
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What one evaluation may use. `None` means unlimited."""

    timeout_seconds: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Success:
    """An attempt that returned a finite value. `started` and `finished` are seconds on the executor's clock."""

    trial: int
    attempt: int
    value: float
    started: float
    finished: float
    worker: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    reports: tuple[tuple[int, float], ...] = ()  # (step, value) reported while it ran
    remark: str = ""  # what of its metrics was left out, for a person


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An attempt that did not. `message` is for a person: first line what happened, then a traceback's tail."""

    trial: int
    attempt: int
    kind: FailureKind
    message: str
    started: float
    finished: float
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """An attempt that the campaign stopped early, at the step `step` of its last report.

    `value` is the last finite value that it reported; None when there is none.
    """

    trial: int
    attempt: int
    value: float | None
    step: int
    started: float
    finished: float
    worker: str
    reports: tuple[tuple[int, float], ...] = ()


Outcome = Success | Failure | Stopped


def cancellation(trial: int, attempt: int, started: float, now: float, worker: str) -> Failure:
    """The outcome of an attempt that was cancelled at the time `now`; `started` = `now` when it was still queued."""
    return Failure(
        trial=trial,
        attempt=attempt,
        kind=FailureKind.CANCELLED,
        message="cancelled",
        started=started,
        finished=now,
        worker=worker,
    )
