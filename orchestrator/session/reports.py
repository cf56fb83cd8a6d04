"""The recorded intermediate values of running attempts, so that none is recorded twice."""

from collections import defaultdict
from collections.abc import Sequence

from orchestrator.campaign.events import ReportsArrived
from orchestrator.campaign.trainings.reports import StepReport
from workers.messages import IntermediateValue, Outcome, Reported, Stopped, Success


class RecordedReports:
    """Remembers the reports of the running attempts that are in the log."""

    def __init__(self) -> None:
        self._recorded: dict[tuple[int, int], set[tuple[int, float]]] = defaultdict(set)

    def take(self, values: Sequence[IntermediateValue], now: float) -> ReportsArrived:
        """Return the event that records `values`, which arrived at the time `now`."""
        for value in values:
            self._recorded[value.trial, value.attempt].add(value.reported[:2])
        return ReportsArrived(
            time=now,
            reports=tuple(StepReport(value.trial, value.attempt, *value.reported[:2]) for value in values),
            metrics=tuple(
                (value.trial, value.reported.step, dict(value.reported.metrics))
                for value in values
                if value.reported.metrics
            ),
        )

    def take_rest(self, outcome: Success | Stopped) -> list[Reported]:
        """Return the outcome's reports that are not in the log, and forget the attempt.

        A report is missing in the log if its message was lost or is late. Workers of an older
        version send pairs without metrics.
        """
        recorded = self._recorded[outcome.trial, outcome.attempt]
        self.forget(outcome)
        return [Reported(*reported) for reported in outcome.reports if reported[:2] not in recorded]

    def forget(self, outcome: Outcome) -> None:
        """Forget the attempt, which has ended."""
        self._recorded.pop((outcome.trial, outcome.attempt), None)
