"""Why workers had nothing to do, in worker-seconds."""

from dataclasses import asdict, dataclass, replace
from typing import Literal

Cause = Literal["start_up", "drift_budget", "batch_end", "refit", "campaign_end", "dispatch"]


@dataclass(frozen=True, slots=True)
class IdleSeconds:
    """Worker-seconds without an evaluation, by cause."""

    start_up: float = 0.0  # until the first evaluation of a session was dispatched
    drift_budget: float = 0.0  # the strategy allows no further pull before results are in
    batch_end: float = 0.0  # waiting for the rest of a batch, in batch mode
    refit: float = 0.0  # the strategy was choosing or refreshing, and nothing was in backlog
    campaign_end: float = 0.0  # nothing was left to dispatch
    dispatch: float = 0.0  # the driver was busy otherwise

    def plus(self, cause: Cause, seconds: float) -> "IdleSeconds":
        """Add the worker-seconds of an interval."""
        return replace(self, **{cause: getattr(self, cause) + seconds}) if seconds > 0.0 else self

    @property
    def total(self) -> float:
        """The worker-seconds of all causes together."""
        return self.start_up + self.drift_budget + self.batch_end + self.refit + self.campaign_end + self.dispatch

    def by_cause(self) -> dict[str, float]:
        """Return cause → worker-seconds, those that occurred."""
        return {cause: seconds for cause, seconds in asdict(self).items() if seconds > 0.0}


LABELS = {
    "start_up": "start-up",
    "drift_budget": "drift budget",
    "batch_end": "end of a batch",
    "refit": "refit",
    "campaign_end": "end of campaign",
    "dispatch": "dispatch",
    "transit": "recording results, sending trials, starting workers",  # dispatched, not started: no event says it
}
