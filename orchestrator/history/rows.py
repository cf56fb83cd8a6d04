"""The rows of a campaign's tables: trials, attempts and sessions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple, cast

from orchestrator.campaign.endings import RunState
from orchestrator.campaign.events import PickedTrial

TrialStatus = Literal["queued", "running", "succeeded", "failed", "stopped"]

# Read-only, one pair for all trials that report nothing: two empty dictionaries are an eighth of a row
_NO_REPORTS = cast(dict[int, float], MappingProxyType({}))
_NO_REPORT_METRICS = cast(dict[int, Mapping[str, float]], MappingProxyType({}))


@dataclass(slots=True)
class TrialRow:
    """One trial as it stands at the end of the log. Times are None until known; `value` on the
    user's scale."""

    pick: PickedTrial  # the candidate, and the numbers it was chosen by
    batch: int  # 1 for the first batch
    place: int  # in its batch, 1 for the first
    status: TrialStatus = "queued"
    attempts: int = 0
    value: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    dispatched: float | None = None  # when its newest attempt was passed to a worker
    started: float | None = None
    finished: float | None = None
    worker: str = ""
    stopped_at: int | None = None  # the step at which the campaign stopped it early
    stop_cause: str = ""  # why, for a person
    continuations: int = 0  # how often it was continued after a stop
    has_restarted: bool = False  # whether it then reported its first step once more
    has_no_checkpoint: bool = False  # whether its checkpoint was removed after it was stopped
    # step → intermediate value, the newest attempt's
    reports: dict[int, float] = field(default_factory=lambda: _NO_REPORTS)
    # step → further numbers by name
    report_metrics: dict[int, Mapping[str, float]] = field(default_factory=lambda: _NO_REPORT_METRICS)
    error: str = ""  # "kind: message" of the last failure; empty once an attempt succeeded or was stopped early
    is_feasible: bool | None = None  # whether its result satisfies all constraints; None without either

    @property
    def trial(self) -> int:
        """Its number, in the order of choice."""
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
        """Duration of the last finished attempt."""
        return None if self.started is None or self.finished is None else self.finished - self.started

    def begin_reports(self) -> None:
        """Make the dictionaries of a row that has none yet."""
        if self.reports is _NO_REPORTS:
            self.reports, self.report_metrics = {}, {}


class AttemptRow(NamedTuple):
    """A finished attempt, successful or not: one bar of the Gantt picture."""

    trial: int
    attempt: int
    started: float
    finished: float
    worker: str
    failure: str = ""  # its kind; empty for a success
    message: str = ""
    stop: str = ""  # what its stop by the campaign is called: paused or stopped early; empty without one
    value: float | None = None  # that it returned, or the last one before it was stopped

    @property
    def ended(self) -> str:
        """How it ended: the kind of its failure, paused, stopped early, or succeeded."""
        return self.failure or self.stop or "succeeded"


@dataclass(slots=True)
class SessionRow:
    """The work of one process on the campaign. `ended` is the time of its last event."""

    epoch: int
    executor: str
    slots: int
    started: float
    ended: float
    state: RunState = RunState.UNFINISHED  # until its end is recorded
    reason: str = ""
    earlier_seconds: float = 0.0  # worker-seconds before the number of slots changed last
    slots_since: float | None = None  # when it did

    @property
    def seconds(self) -> float:
        """Wall-clock (or virtual) length."""
        return self.ended - self.started

    @property
    def worker_seconds(self) -> float:
        """Worker-seconds of all its workers, also when the number of slots changed."""
        since = self.started if self.slots_since is None else self.slots_since
        return self.earlier_seconds + self.slots * max(0.0, self.ended - since)
