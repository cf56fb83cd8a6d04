"""Commands of the campaign to its session.

They are never stored: a command follows from the state, so a resume derives it again.
"""

from dataclasses import dataclass

from bbkb.orchestrator.bandit.results import Observation
from bbkb.orchestrator.campaign.events import SessionOutcome, StopReason
from bbkb.orchestrator.campaign.state import FinishedTrial
from bbkb.workers.messages import Trial


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Hand the next attempts of these trials to the executor."""

    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Let the strategy choose at most `limit` arms; the `pending` arms have no result yet."""

    pending: tuple[int, ...]
    limit: int


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


Command = Dispatch | Begin | Ask | Tell | Grow | Finish | RemoveCheckpoints | Await | Pause | Stop | Close
