"""Failed attempts: which are repeated, when a trial gives up, and their causes for display:
twenty failures with one cause are one line with a count.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bbkb.orchestrator.campaign.settings import Workers
from bbkb.workers.messages import FailureKind

# An arm whose attempts kill this many workers in a row is quarantined; after the first such arm, the next
# ones need fewer deaths, because the objective is known to crash. Nodes are also lost for other reasons,
# so a trial may lose more of them.
WORKERS_AN_ARM_MAY_COST = 3
WORKERS_A_FURTHER_ARM_MAY_COST = 2
NODES_A_TRIAL_MAY_COST = 10
# Seconds that a trial waits after its second failed attempt. The pause doubles with each further
# failure, up to the maximum.
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
# These have their own limits. Lost workers are counted by arm.
_NOT_CHARGED = (FailureKind.WORKER_LOST, FailureKind.NODE_LOST)


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
    def pause_seconds(self) -> float:
        """The seconds before the trial's next attempt: 0 after one failure, then 1, 2, 4, …, 60."""
        doublings = min(sum(self.counts.values()) - 2, 10)
        return 0.0 if doublings < 0 else min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0**doublings)


def costs_too_many_workers(workers_lost: int, quarantined: Sequence[int]) -> bool:
    """Return whether an arm that has killed `workers_lost` workers in a row is quarantined, beside those that are."""
    return workers_lost >= (WORKERS_A_FURTHER_ARM_MAY_COST if quarantined else WORKERS_AN_ARM_MAY_COST)


def allows_retry(
    workers: Workers, kind: FailureKind, failures: AttemptFailures, workers_lost: int, quarantined: Sequence[int] = ()
) -> bool:
    """Return whether a trial is retried after a failure of this kind. Its failed attempts, and the
    workers that its arm has killed in a row, include this one."""
    match kind:
        case FailureKind.WORKER_LOST:
            return not costs_too_many_workers(workers_lost, quarantined)
        case FailureKind.NODE_LOST:
            return failures.of(kind) < NODES_A_TRIAL_MAY_COST
        case FailureKind.INVALID_VALUE:
            return False  # the same parameters and seed would give the same value
        case FailureKind.ERROR:
            retries = workers.retries or 0  # the same code and seed rarely give another result
        case _:  # a retry rarely helps, and is expensive
            retries = 1 if workers.retries is None else min(1, workers.retries)
    return sum(count for each, count in failures.counts.items() if each not in _NOT_CHARGED) <= retries


MOST_CAUSES = 20
_LONGEST = 2000  # characters of a message
_NUMBER = re.compile(r"\d+(\.\d+)?([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class FailureCause:
    """Failed attempts of one kind whose messages differ only in numbers, with the first of them."""

    kind: str
    message: str
    trial: int
    attempts: int = 1

    @property
    def summary(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


Causes = tuple[FailureCause, ...]


def with_failure(causes: Causes, trial: int, kind: str, message: str) -> Causes:
    """Return the causes with one more failed attempt. If there are too many, the rarest leaves."""
    key = kind, _shape(message)
    for index, cause in enumerate(causes):
        if (cause.kind, _shape(cause.message)) == key:
            return (*causes[:index], replace(cause, attempts=cause.attempts + 1), *causes[index + 1 :])
    if len(causes) >= MOST_CAUSES:
        rarest = min(range(len(causes)), key=lambda index: causes[index].attempts)
        causes = (*causes[:rarest], *causes[rarest + 1 :])
    return (*causes, FailureCause(kind, message[:_LONGEST], trial))


def _shape(message: str) -> str:
    return _NUMBER.sub("0", message[:_LONGEST].partition("\n")[0])
