"""What bounds a campaign, and which failures are tried again: pure rules, read from the campaign
file in a log.

A log of an older version lacks settings that were added later. The defaults here are the behaviour
of that version.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.campaign.early_stopping import StoppingRule
from orchestrator.campaign.goals import CampaignGoals
from orchestrator.campaign.stop_when import StopWhen
from orchestrator.campaign.training import TrainingRule
from workers.messages import FailureKind

# An arm whose attempts end this many workers in a row is set aside. Nodes are also lost for other
# reasons, so a trial may lose more of them.
WORKERS_AN_ARM_MAY_COST = 3
NODES_A_TRIAL_MAY_COST = 10
CANCELLATIONS_OF_A_TRIAL = 10
# Seconds that a trial waits after its second failed attempt; twice as long after each further one,
# up to the maximum.
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
RECORDED_RETRIES = 2  # of a failed evaluation, where the log has no such setting
_RETRIES_WITH_MORE_MEMORY = 2
# Successes that are needed before a time-out follows their durations.
DURATIONS_TO_LEARN_FROM = 5


Section = Mapping[str, Any]  # of a resolved campaign file: `orchestrator.settings` says what it has


@dataclass(frozen=True, slots=True)
class AttemptFailures:
    """Failed attempts of an open trial: `total` of all kinds, and of these the ones that count
    against its retries (out of memory among them), machines that were lost during it, and
    cancellations."""

    charged: int = 0
    out_of_memory: int = 0
    nodes: int = 0
    cancelled: int = 0
    total: int = 0

    def after(self, kind: FailureKind) -> "AttemptFailures":
        """Return a copy with one more failed attempt of this kind."""
        after = replace(self, total=self.total + 1)
        match kind:
            case FailureKind.WORKER_LOST:
                return after  # workers are counted by arm
            case FailureKind.CANCELLED:
                return replace(after, cancelled=self.cancelled + 1)
            case FailureKind.NODE_LOST:
                return replace(after, nodes=self.nodes + 1)
            case FailureKind.OUT_OF_MEMORY:
                return replace(after, charged=self.charged + 1, out_of_memory=self.out_of_memory + 1)
            case _:
                return replace(after, charged=self.charged + 1)

    @property
    def pause_seconds(self) -> float:
        """How long the trial waits for its next attempt: not at all after one failure, then 1, 2, 4
        … 60 s."""
        doublings = min(self.total - 2, 10)
        return 0.0 if doublings < 0 else min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0**doublings)


@dataclass(frozen=True, slots=True)
class Rules:
    """What bounds a campaign. `evaluations` counts failed trials too, so every campaign ends."""

    evaluations: int
    steps: int | None = None  # that trials report, all together
    seconds: float | None = None  # in sessions; pauses do not count
    target: float | None = None
    stop_when: StopWhen | None = None
    is_maximized: bool = True
    workers: int | None = None  # the number that was requested; a cluster may have places for fewer
    needs: str = ""  # what one evaluation takes of a cluster, in words
    retries: int | None = None  # after errors; None: each kind of failure has its own number
    failures_before_giving_up: int = 10  # in one session, without a success
    memory_factor: float | None = None  # more memory for an attempt after one that ran out of it
    timeout_seconds: float | None = None  # an evaluation's deadline, which its worker keeps
    timeout_factor: float | None = None  # an attempt's deadline, in longest durations so far
    is_asynchronous: bool = False
    has_own_strategy: bool = False  # of the user's own: package.module:Name
    refresh_overhead: float = 0.0  # the share of time that refreshes before they are due may take
    refresh_growth: float = 0.0  # the share by which results have grown when a refresh is due; 0: not by growth
    stopping: StoppingRule | None = None  # of trials that report intermediate values
    training: TrainingRule | None = None  # with the rule `model`: which trials are continued, and more
    goals: CampaignGoals = field(default_factory=CampaignGoals)

    @classmethod
    def of(cls, settings: Mapping[str, Any], slots: int) -> "Rules":
        """Read the rules from a resolved campaign file, which was checked before it was recorded."""
        budget: Section = settings["budget"]
        workers: Section = settings.get("workers", {})
        strategy: Section = settings.get("strategy", {})
        stopping: Section | None = settings.get("early_stopping")
        hours = budget.get("hours")
        stop_when = budget.get("stop_when")
        goals = CampaignGoals.of(settings)
        return cls(
            evaluations=budget["evaluations"],
            steps=budget.get("steps"),
            seconds=None if hours is None else hours * 3600.0,
            target=budget.get("target"),
            stop_when=None if stop_when is None else StopWhen(**stop_when),
            is_maximized=goals.objectives[0].is_maximized,
            workers=workers.get("count") if workers.get("executor", "ray") == "ray" else None,
            needs=_needs(workers),
            retries=workers.get("retries", RECORDED_RETRIES),
            failures_before_giving_up=max(10, 2 * slots),
            memory_factor=workers.get("retry_memory_factor"),
            timeout_seconds=workers.get("timeout_seconds"),
            timeout_factor=None if workers.get("timeout_seconds") else workers.get("timeout_factor"),
            is_asynchronous=strategy.get("mode") == "async",
            has_own_strategy=":" in strategy.get("name", ""),
            refresh_overhead=strategy.get("refresh_overhead", 0.0),
            refresh_growth=strategy.get("refresh_growth", 0.0),
            stopping=None if stopping is None else _stopping(stopping),
            training=_training(stopping) if stopping is not None and stopping["rule"] == "model" else None,
            goals=goals,
        )

    @property
    def sign(self) -> float:
        """What turns a value into a reward, which is maximised."""
        return 1.0 if self.is_maximized else -1.0

    def allows_retry(self, kind: FailureKind, attempt_failures: AttemptFailures, workers_lost: int) -> bool:
        """Return whether a trial that has failed as `attempt_failures` count (this failure
        included) is tried again.

        `workers_lost`: workers that its arm has cost in a row, this failure's included.
        """
        match kind:
            case FailureKind.CANCELLED:
                return attempt_failures.cancelled < CANCELLATIONS_OF_A_TRIAL
            case FailureKind.WORKER_LOST:
                return workers_lost < WORKERS_AN_ARM_MAY_COST
            case FailureKind.NODE_LOST:
                return attempt_failures.nodes < NODES_A_TRIAL_MAY_COST
            case FailureKind.INVALID_VALUE:
                return False  # the same parameters and seed would give it again
            case _:
                return attempt_failures.charged <= self._retries_after(kind)

    def _retries_after(self, kind: FailureKind) -> int:
        """Return after how many charged failures one of this kind still gets another attempt."""
        match kind:
            case FailureKind.ERROR:
                return self.retries or 0  # the same code and seed rarely give another result
            case FailureKind.OUT_OF_MEMORY if self.memory_factor is not None:
                return _RETRIES_WITH_MORE_MEMORY if self.retries is None else self.retries
            case _:
                return 1 if self.retries is None else min(1, self.retries)  # it rarely helps and is expensive


def _needs(workers: Section) -> str:
    """Say what one evaluation needs: `2 machines with 3 CPUs and 1 GPU each`."""
    cpus, gpus, memory_gb = workers.get("cpus", 1.0), workers.get("gpus"), workers.get("memory_gb")
    amounts = [f"{cpus:g} CPU{'s' * (cpus != 1)}"]
    if gpus:
        amounts.append(f"{gpus:g} GPU{'s' * (gpus != 1)}")
    if memory_gb is not None:
        amounts.append(f"{memory_gb:g} GB")
    listed = " and ".join([", ".join(amounts[:-1]), amounts[-1]]) if len(amounts) > 1 else amounts[0]
    machines = workers.get("machines", 1)
    return listed if machines == 1 else f"{machines} machines with {listed} each"


def _stopping(settings: Section) -> StoppingRule:
    if settings["rule"] == "asha":
        return StoppingRule.asha(settings["reduction"], settings["first_step"])
    if settings["rule"] == "model" and settings.get("continues") is True:
        return StoppingRule.pauses(settings["after"], settings.get("last_step"))
    return StoppingRule.median(settings["after"])


def _training(settings: Section) -> TrainingRule:
    return TrainingRule(
        first_trials=settings.get("first_trials") or 0,
        first_steps=settings.get("first_steps") or 1,
        continues=settings.get("continues") is True,
        restarts=settings.get("continues") == "anew",
        finish=settings["finish"],
        last_step=settings.get("last_step"),
        keep_checkpoints=settings.get("keep_checkpoints"),
    )
