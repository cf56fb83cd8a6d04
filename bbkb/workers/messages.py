"""The messages between the campaign and the workers: plain, serializable values without Ray types.

A trial is one decision to evaluate an arm. It may need several attempts. `(trial, attempt)`
identifies one of them and is never reused, so a late or repeated result can be recognized.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class FailureKind(StrEnum):
    """The reason that an attempt has no value. Each kind has its retry rule (`campaign.rules`)."""

    ERROR = "error"  # the objective raised
    INVALID_VALUE = "invalid value"  # it did not return a finite number
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out of memory"
    # the process died; the evaluation is to blame only if this happens repeatedly
    WORKER_LOST = "worker lost"
    NODE_LOST = "node lost"  # the machine failed or was preempted; the evaluation is not to blame
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The resources that one evaluation takes from a cluster."""

    cpus: float  # processor cores on each of its machines
    gpus: float  # graphics processors on each of its machines
    machines: int = 1  # the number of its machines


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a trial."""

    trial: int  # the trial's index
    arm: int  # the candidate's index
    parameters: Mapping[str, object]  # the candidate's parameters
    seed: int  # the seed of the evaluation; the same for all attempts of a trial
    attempt: int = 1  # 1 for the first attempt
    memory_factor: float = 1.0  # the factor on the memory limit
    # the trial's own folder, shared by all its attempts; None if the campaign provides none
    folder: Path | None = None
    # the attempt's resources if its parameters determine them, else None
    share: Share | None = None
    # the run's folder of all trials, in which the output is saved (`bbkb.workers.output_files`); None if
    # no output is saved
    trials: Path | None = None
    # the worker stops the attempt at its report of this step, or at the first report after it,
    # without asking; None if only the campaign stops it
    step_limit: int | None = None
    # whether a rule of the campaign may stop the trial early. The worker then waits briefly for the
    # response to a report.
    can_be_stopped: bool = False
    recorded_step: int = 0  # the largest step of the trial's reports in the log; 0 before the first
    # whether the worker saves a copy of the trial's checkpoint when it stops the attempt
    # (`bbkb.workers.checkpoints`)
    saves_checkpoint: bool = False
    # the trial and the step of the saved checkpoint from which a new trial starts; None if it starts
    # at its first step
    starts_from: tuple[int, int] | None = None

    def failure(
        self,
        kind: FailureKind,
        message: str,
        started: float,
        finished: float,
        worker: str,
    ) -> "Failure":
        """Return the failure of this attempt, with an end that is not before its start."""
        finished = max(started, finished)
        return Failure(self.trial, self.attempt, kind, message, started, finished, worker)


class Reported(NamedTuple):
    """A report of an objective at a step. The numbers may be NaN or infinite."""

    step: int  # the index of the step, such as the epoch
    value: float  # the value, on the objective's scale
    metrics: tuple[tuple[str, float], ...] = ()  # other numbers by name, for display


@dataclass(frozen=True, slots=True)
class IntermediateValue:
    """A value that an attempt reported while it ran."""

    trial: int
    attempt: int
    reported: Reported


@dataclass(frozen=True, slots=True)
class Limits:
    """The time and memory that one evaluation may use. `None` means unlimited."""

    timeout_seconds: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Success:
    """An attempt that returned a finite value. `started` and `finished` are seconds on the
    executor's clock."""

    trial: int
    attempt: int
    value: float
    started: float
    finished: float
    worker: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    reports: tuple[Reported, ...] = ()  # reports during the evaluation (`bbkb.workers.reporting`)
    remark: str = ""  # the omitted metrics, for display
    output: str = ""  # the end of its output if its process does not share the run's folder


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that returned no value. `message`: a summary line, then the end of a traceback."""

    trial: int
    attempt: int
    kind: FailureKind
    message: str
    started: float
    finished: float
    worker: str
    output: str = ""  # like that of a success


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """An attempt that the campaign stopped early, at the step `step` of its last report.

    `value` is the last finite value that it reported; None if there is none.
    """

    trial: int
    attempt: int
    value: float | None
    step: int
    started: float
    finished: float
    worker: str
    reports: tuple[Reported, ...] = ()
    output: str = ""  # like that of a success


Outcome = Success | Failure | Stopped


def cancellation(trial: int, attempt: int, started: float, now: float, worker: str) -> Failure:
    """Return the outcome of an attempt cancelled at `now`. `started` is `now` if it was queued."""
    return Failure(trial, attempt, FailureKind.CANCELLED, "cancelled", started, now, worker)
