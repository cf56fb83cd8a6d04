"""The messages between the campaign and the workers: plain, serializable values without Ray types.

A trial is one decision to evaluate an arm. It may need several attempts. `(trial, attempt)`
identifies one of them and is never reused, so a late or repeated result can be recognized.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal, NamedTuple


class FailureKind(StrEnum):
    """The reason that an attempt has no value. Each kind has its retry rule (`campaign.failures`)."""

    ERROR = "error"  # the objective raised
    INVALID_VALUE = "invalid value"  # it did not return a finite number
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out of memory"
    # the process died; the evaluation is to blame only if this happens repeatedly
    WORKER_LOST = "worker lost"
    NODE_LOST = "node lost"  # the machine failed or was preempted; the evaluation is not to blame
    CANCELLED = "cancelled"  # only between the machines of one evaluation; it never reaches the campaign


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The resources that one evaluation takes from a cluster."""

    cpus: float  # processor cores on each of its machines
    gpus: float  # graphics processors on each of its machines
    machines: int = 1  # the number of its machines


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial with its newest attempt."""

    id: int
    arm: int
    parameters: Mapping[str, object]
    attempt: int = 1  # running, or the next one; the last one of a stopped trial
    # the trial and the step of the checkpoint from which it starts; None: its first step
    starts_from: tuple[int, int] | None = None

    @property
    def again(self) -> "Trial":
        """The trial with its next attempt."""
        return replace(self, attempt=self.attempt + 1)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a trial."""

    trial: int  # the trial's index
    arm: int  # the candidate's index
    parameters: Mapping[str, object]  # the candidate's parameters
    seed: int  # the seed of the evaluation; the same for all attempts of a trial
    attempt: int = 1  # 1 for the first attempt
    # the trial's own folder, shared by all its attempts; None if the campaign provides none
    folder: Path | None = None
    # the attempt's resources if its parameters determine them, else None
    share: Share | None = None
    # the run's folder of all trials, in which the output is saved (`bbkb.workers.output`); None if
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
    # (`bbkb.workers.output`)
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
    ) -> "TrialFailed":
        """Return the failure of this attempt, with an end that is not before its start."""
        return TrialFailed(
            trial=self.trial,
            attempt=self.attempt,
            failure=kind,
            message=message,
            started=started,
            finished=max(started, finished),
            worker=worker,
        )


class Report(NamedTuple):
    """Numbers that an attempt reported at a step of its training, on the user's scale."""

    trial: int
    attempt: int
    step: int  # the index of the step, such as the epoch
    # name → number, the first objective's first; a number may be NaN or infinite
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Limits:
    """The time and memory that one evaluation may use. `None` means unlimited."""

    timeout_seconds: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSucceeded:
    """An attempt returned a finite value, on the user's scale.

    An outcome is sent by a worker, and becomes an event of the log: the campaign then sets `time`,
    and leaves out what the log has already. `started` and `finished` are seconds on the executor's
    clock.
    """

    trial: int
    attempt: int = 1
    value: float
    started: float
    finished: float
    worker: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    reports: tuple[Report, ...] = ()  # in the log: those that had not arrived before
    remark: str = ""  # names the omitted metrics; recorded once, not with every trial
    output: str = ""  # the end of its output if its process does not share the run's folder; not recorded
    time: float = 0.0  # when it was recorded
    kind: Literal["trial_succeeded"] = "trial_succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFailed:
    """An attempt returned no value. `message`: a summary line, then the end of a traceback."""

    trial: int
    attempt: int
    failure: FailureKind
    message: str
    started: float
    finished: float
    worker: str
    output: str = ""  # like that of a success
    is_final: bool = True  # whether the trial has ended; otherwise it is tried again
    time: float = 0.0
    kind: Literal["trial_failed"] = "trial_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStopped:
    """The campaign stopped an attempt early, at the step of its last report. `value` is the last
    finite value that it reported, on the user's scale; None if there is none."""

    trial: int
    attempt: int
    value: float | None
    step: int
    started: float
    finished: float
    worker: str
    reports: tuple[Report, ...] = ()  # like those of a success
    output: str = ""
    cause: str = ""  # for display (`campaign.events.StopCause`)
    time: float = 0.0
    kind: Literal["trial_stopped"] = "trial_stopped"


Outcome = TrialSucceeded | TrialFailed | TrialStopped
