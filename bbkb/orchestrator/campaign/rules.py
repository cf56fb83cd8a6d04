"""The rules of a campaign: its budget, its goals, and which failed attempts are retried.

A session records its rules in its first event (`SessionOpened`), so each part of a log is decided
by the rules that applied when it was written. `session.rules` derives them from the settings. Fields at
their defaults are not stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.orchestrator.campaign.stop_when import StopWhen
from bbkb.orchestrator.campaign.trainings.model_rule import TrainingRule
from bbkb.orchestrator.campaign.trainings.rungs import StoppingRule
from bbkb.workers.messages import FailureKind

# An arm whose attempts kill this many workers in a row is quarantined. Nodes are also lost for
# other reasons, so a trial may lose more of them.
WORKERS_AN_ARM_MAY_COST = 3
NODES_A_TRIAL_MAY_COST = 10
CANCELLATIONS_OF_A_TRIAL = 10
# Seconds that a trial waits after its second failed attempt. The pause doubles with each further
# failure, up to the maximum.
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
_RETRIES_WITH_MORE_MEMORY = 2
# These have their own limits. Lost workers are counted by arm.
_NOT_CHARGED = (FailureKind.WORKER_LOST, FailureKind.NODE_LOST, FailureKind.CANCELLED)
# The number of successful evaluations before a time-out is derived from their durations.
DURATIONS_TO_LEARN_FROM = 5

_ONE_OBJECTIVE = CampaignGoals()  # the objective's value, maximized


@dataclass(frozen=True, slots=True)
class AttemptFailures:
    """The failed attempts of an open trial, counted by kind."""

    counts: Mapping[FailureKind, int] = field(default_factory=dict)

    def of(self, kind: FailureKind) -> int:
        """Return the number of failed attempts of this kind."""
        return self.counts.get(kind, 0)

    def after(self, kind: FailureKind) -> "AttemptFailures":
        """Return a copy with one more failed attempt of this kind."""
        return AttemptFailures({**self.counts, kind: self.of(kind) + 1})

    @property
    def charged(self) -> int:
        """The number of attempts that count against the trial's retries."""
        return sum(count for kind, count in self.counts.items() if kind not in _NOT_CHARGED)

    @property
    def pause_seconds(self) -> float:
        """The seconds before the trial's next attempt: 0 after one failure, then 1, 2, 4, …, 60."""
        doublings = min(sum(self.counts.values()) - 2, 10)
        return 0.0 if doublings < 0 else min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0**doublings)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """The rules for retrying failed attempts, and for giving up if everything fails."""

    after_errors: int | None = None  # further attempts; None: a default by kind of failure
    # the factor by which the memory of the next attempt grows after one ran out of memory
    memory_factor: float | None = None
    failures_before_giving_up: int = 10  # the limit if the session has no success

    def allow(self, kind: FailureKind, failures: AttemptFailures, workers_lost: int) -> bool:
        """Return whether a trial is retried after a failure of this kind. Its failed attempts, and
        the workers that its arm has killed in a row, include this one."""
        match kind:
            case FailureKind.CANCELLED:
                return failures.of(kind) < CANCELLATIONS_OF_A_TRIAL
            case FailureKind.WORKER_LOST:
                return workers_lost < WORKERS_AN_ARM_MAY_COST
            case FailureKind.NODE_LOST:
                return failures.of(kind) < NODES_A_TRIAL_MAY_COST
            case FailureKind.INVALID_VALUE:
                return False  # the same parameters and seed would give the same value
            case _:
                return failures.charged <= self._retries_after(kind)

    def _retries_after(self, kind: FailureKind) -> int:
        """Return the number of charged failures up to which a failure of `kind` is retried."""
        match kind:
            case FailureKind.ERROR:
                return self.after_errors or 0  # the same code and seed rarely give another result
            case FailureKind.OUT_OF_MEMORY if self.memory_factor is not None:
                return _RETRIES_WITH_MORE_MEMORY if self.after_errors is None else self.after_errors
            case _:  # a retry rarely helps, and is expensive
                return 1 if self.after_errors is None else min(1, self.after_errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineRules:
    """The rules for cancelling an attempt that runs too long."""

    seconds: float | None = None  # the deadline of an attempt, which its worker enforces
    factor: float | None = None  # the deadline as a multiple of the longest duration so far


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRules:
    """The workers that were requested from a cluster."""

    count: int | None = None  # None if evaluations do not run on a cluster
    needs: str = ""  # the resources of one evaluation, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRules:
    """The rules for choosing and learning."""

    is_asynchronous: bool = False
    is_users_own: bool = False  # named as `package.module:Name`
    # the relative growth of the results at which a refresh is due; 0: after each result
    refresh_growth: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a session. `evaluations` includes failed trials, so every campaign ends."""

    evaluations: int
    steps: int | None = None  # the total that all trials may report
    seconds: float | None = None  # the time in sessions, without the pauses between them
    target: float | None = None
    stop_when: StopWhen | None = None
    goals: CampaignGoals = _ONE_OBJECTIVE
    stopping: StoppingRule | None = None  # the rule that stops trials by intermediate values
    training: TrainingRule | None = None  # the rule for continued trials, used by the rule `model`
    retries: RetryRules = RetryRules()
    deadlines: DeadlineRules = DeadlineRules()
    workers: WorkerRules = WorkerRules()
    strategy: StrategyRules = StrategyRules()

    @property
    def last_step(self) -> int | None:
        """The step at which a training ends; None if it is not given."""
        return None if self.training is None else self.training.last_step

    @property
    def has_checkpoints(self) -> bool:
        """Whether stopped trials continue from their checkpoints."""
        return self.training is not None and self.training.has_checkpoints

    @property
    def sign(self) -> float:
        """The factor that turns a value into a reward, which is maximized."""
        return self.goals.objectives[0].sign


def needs_in_words(cpus: float, gpus: float | None, memory_gb: float | None, machines: int) -> str:
    """Return the resources of one evaluation, such as `2 machines with 3 CPUs and 1 GPU each`."""
    amounts = [f"{cpus:g} CPU{'s' * (cpus != 1)}"]
    if gpus:
        amounts.append(f"{gpus:g} GPU{'s' * (gpus != 1)}")
    if memory_gb is not None:
        amounts.append(f"{memory_gb:g} GB")
    *first, last = amounts
    listed = f"{', '.join(first)} and {last}" if first else last
    return listed if machines == 1 else f"{machines} machines with {listed} each"
