"""The tables and totals of a campaign at a position of its log."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    CampaignCreated,
    ExistingTaken,
    ModelRefreshed,
    RunState,
)
from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.campaign.state import Best, CampaignState
from bbkb.orchestrator.campaign.status import Status, status_of
from bbkb.orchestrator.history.rows import AttemptRow, SessionRow, TrialRow
from bbkb.orchestrator.history.trace import Trace
from bbkb.workers.executor import traits_of


@dataclass(slots=True)
class History:
    """Tables and totals after `position` events. Built by `fold`, or by `begin` and `advance`."""

    created: CampaignCreated
    settings: Settings  # the settings of the newest session
    campaign: CampaignState  # all totals, as computed by the run itself
    position: int = 1
    existing: ExistingTaken | None = None  # results from before the campaign; they are not trials
    trials: list[TrialRow] = field(default_factory=list)
    succeeded: list[TrialRow] = field(default_factory=list)  # in the order of their results
    trace: Trace[TrialRow] = field(default_factory=Trace)  # a sample of the same, for figures
    reporting: dict[int, TrialRow] = field(default_factory=dict)  # trials with intermediate values
    batches: list[BatchChosen] = field(default_factory=list)
    refreshes: list[ModelRefreshed] = field(default_factory=list)
    attempts: list[AttemptRow] = field(default_factory=list)
    appended: int = 0  # the number of candidates appended during the campaign
    sessions: list[SessionRow] = field(default_factory=list)

    @property
    def is_asynchronous(self) -> bool:
        """Whether the strategy receives results individually instead of in batches."""
        return self.campaign.settings.is_asynchronous

    @property
    def distinct(self) -> int:
        """The number of different configurations among the successful and the stopped trials."""
        return len({row.arm for row in self.trials if row.status in ("succeeded", "stopped")})

    @property
    def is_maximized(self) -> bool:
        """Whether the first objective is maximized."""
        return self.goals.objectives[0].is_maximized

    @property
    def sign(self) -> float:
        """The factor (1 or −1) that converts a value to its reward, which is maximized."""
        return self.goals.reward(1.0)

    @property
    def goals(self) -> CampaignGoals:
        """The objectives and constraints."""
        return self.campaign.settings.goals

    @property
    def front(self) -> list[TrialRow]:
        """The trials on the Pareto front, sorted by the first objective, the best first.

        With a single objective, only the best trial.
        """
        if len(self.goals.objectives) == 1:
            return [] if self.best is None else [self.best]
        return [self.trials[member.trial] for member in self.campaign.results.front.ordered]

    def worth(self, row: TrialRow) -> tuple[bool, float]:
        """Return a sort key for trials, the best last: feasible ones after infeasible ones, then
        by reward."""
        return row.is_feasible is not False, self.sign * (row.value or 0.0)

    @property
    def is_virtual(self) -> bool:
        """Whether the executor's clock counts virtual seconds."""
        return bool(self.sessions) and traits_of(self.sessions[-1].executor).in_virtual_time

    @property
    def best(self) -> TrialRow | None:
        """The trial with the best value of the first objective that satisfies all constraints.

        This is the earliest among equal values, and None if no trial qualifies.
        """
        best = self.campaign.results.best
        return None if best is None or best.trial is None else self.trials[best.trial]

    @property
    def best_known(self) -> Best | None:
        """The best value among all results, including existing data."""
        return self.campaign.best_known

    @property
    def recommended(self) -> Mapping[str, object] | None:
        """The recommended parameters; None if no trial has succeeded.

        If the values are noisy, the strategy recommends them; else they have the best value.
        """
        recommendation = self.campaign.refresh.recommended or self.best_known
        return None if recommendation is None else recommendation.parameters

    def copy(self) -> "History":
        """Return a copy that later events do not change, except for the rows of open trials."""
        return replace(
            self,
            trials=self.trials[:],
            succeeded=self.succeeded[:],
            trace=self.trace.copy(),
            reporting=self.reporting.copy(),
            batches=self.batches[:],
            refreshes=self.refreshes[:],
            attempts=self.attempts[:],
            sessions=[replace(session) for session in self.sessions],
        )

    @property
    def state(self) -> RunState:
        """The state of the last session, which is the state of the run."""
        return self.sessions[-1].state if self.sessions else RunState.NOT_STARTED

    def status(self, now: float | None = None, activity: str = "") -> Status:
        """Return the status of the campaign, from `campaign.status.status_of`."""
        return status_of(self.created.name, self.campaign, now, activity)
