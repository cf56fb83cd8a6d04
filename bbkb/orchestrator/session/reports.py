"""The recorded intermediate values of running attempts. They prevent duplicates in the log."""

from collections import defaultdict
from collections.abc import Sequence

from bbkb.orchestrator.campaign.events import ReportsArrived
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.trainings.curves import Trainings
from bbkb.orchestrator.campaign.trainings.reports import StepReport
from bbkb.workers.messages import IntermediateValue, Outcome, Reported, Stopped, Success


class RecordedReports:
    """The reports of the running attempts that are already in the log."""

    def __init__(self, has_checkpoints: bool = False) -> None:
        """`has_checkpoints`: whether an attempt may continue the training of the previous one."""
        self._has_checkpoints = has_checkpoints
        self._recorded: dict[tuple[int, int], set[tuple[int, float]]] = defaultdict(set)
        # attempt → the last step that the attempt repeats of those in the log
        self._repeated: dict[tuple[int, int], int] = {}

    def begin(self, campaign: CampaignState) -> None:
        """Add the reports of attempts that have been running since an earlier session."""
        for trial, run in campaign.running.items():
            self._repeated[trial, run.attempt] = campaign.trainings.step(trial)

    def new(
        self,
        values: Sequence[IntermediateValue],
        trainings: Trainings,
    ) -> list[IntermediateValue]:
        """Return the values that are not in the log, whose trainings are `trainings`."""
        return [
            value
            for value in values
            if value.reported.step > self._repeated_step(value.trial, value.attempt, value.reported.step, trainings)
        ]

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

    def take_rest(self, outcome: Success | Stopped, trainings: Trainings) -> list[Reported]:
        """Return the outcome's reports that are not yet in the log, and discard the attempt.

        A report is missing from the log if its message was lost or delayed.
        """
        identity = outcome.trial, outcome.attempt
        recorded = self._recorded[identity]
        reports = [Reported(*reported) for reported in outcome.reports]
        repeated = self._repeated_step(*identity, reports[0].step, trainings) if reports else 0
        self.forget(outcome)
        return [one for one in reports if one[:2] not in recorded and one.step > repeated]

    def forget(self, outcome: Outcome) -> None:
        """Discard the attempt, which has ended."""
        self._recorded.pop((outcome.trial, outcome.attempt), None)
        self._repeated.pop((outcome.trial, outcome.attempt), None)

    def _repeated_step(self, trial: int, attempt: int, first: int, trainings: Trainings) -> int:
        """Return the last step that a previous attempt has already reported.

        An attempt that continues from a checkpoint repeats steps; its `first` report shows whether
        it continues. The reports of a restarted training are recorded again.
        """
        if (trial, attempt) not in self._repeated:
            curve = trainings.curves.get(trial)
            continues = self._has_checkpoints and curve is not None and curve.is_continued_at(first)
            self._repeated[trial, attempt] = trainings.step(trial) if continues else 0
        return self._repeated[trial, attempt]
