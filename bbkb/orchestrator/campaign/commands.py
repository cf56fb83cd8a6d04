"""Commands of the campaign to its session.

They are never stored: a command follows from the state, so a resume derives it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bbkb.orchestrator.bandit.results import Observation
from bbkb.orchestrator.campaign.endings import SessionOutcome, StopReason


@dataclass(frozen=True, slots=True)
class QueuedAttempt:
    """An attempt at a trial of one arm, which waits to be dispatched."""

    trial: int
    arm: int
    attempt: int
    not_before: float = 0.0  # the earliest time of its dispatch, on the executor's clock
    # the trial and the step of the checkpoint from which the trial starts
    starts_from: tuple[int, int] | None = None
    # of the arm, for display only
    parameters: Mapping[str, object] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Hand these attempts to the executor."""

    assignments: tuple[QueuedAttempt, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Let the strategy choose at most `limit` arms; the `pending` arms have no result yet."""

    pending: tuple[int, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """A trial that has ended and that the strategy has not learned from yet."""

    trial: int
    observation: Observation


@dataclass(frozen=True, slots=True)
class Tell:
    """Let the strategy learn the results of these finished trials."""

    finished: tuple[FinishedTrial, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """Let the strategy learn these results, which were known before the campaign."""

    existing: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class Grow:
    """Append the candidates that the strategy requests; the `pending` arms were chosen and have no
    learned result yet."""

    pending: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """Continue these stopped trials to their end, with the last part of the budget."""

    trials: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RemoveCheckpoints:
    """Remove the checkpoints of these stopped trials, which will not be continued."""

    trials: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Cancel the attempts of these trials, which have exceeded their time-out."""

    trials: tuple[int, ...]
    reason: str  # for display


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for outcomes, or for the strategy's computation; nothing else can be done."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait `seconds` on the executor's clock: all queued attempts pause after failures."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Dispatch nothing more, for `reason`."""

    reason: StopReason


@dataclass(frozen=True, slots=True)
class Close:
    """End the session."""

    outcome: SessionOutcome
    reason: str


Command = Dispatch | Begin | Ask | Tell | Grow | Finish | RemoveCheckpoints | GiveUp | Await | Pause | Stop | Close
