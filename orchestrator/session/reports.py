"""The recorded intermediate values of running attempts, so that none is recorded twice."""

from collections import defaultdict
from collections.abc import Sequence

from orchestrator.campaign.events import ReportsArrived
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.trainings.curves import Trainings
from orchestrator.campaign.trainings.reports import StepReport
from workers.messages import IntermediateValue, Outcome, Reported, Stopped, Success


class RecordedReports:
    """Remembers the reports of the running attempts that are in the log."""

    def __init__(self, has_checkpoints: bool = False) -> None:
        """`has_checkpoints`: whether an attempt may continue the training of the one before."""
        self._has_checkpoints = has_checkpoints
        self._recorded: dict[tuple[int, int], set[tuple[int, float]]] = defaultdict(set)
        # by attempt: the step up to which the log has the reports that the attempt repeats
        self._repeated: dict[tuple[int, int], int] = {}

    def begin(self, campaign: CampaignState) -> None:
        """Note the reports of attempts that run since an earlier session."""
        for trial, run in campaign.running.items():
            self._repeated[trial, run.attempt] = campaign.trainings.step(trial)

    def new(
        self,
        values: Sequence[IntermediateValue],
        trainings: Trainings,
    ) -> list[IntermediateValue]:
        """Return the values that are not in the log; `trainings` are those of the log."""
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
        """Return the outcome's reports that are not in the log, and forget the attempt.

        A report is missing in the log if its message was lost or is late. Workers of an older
        version send pairs without metrics.
        """
        identity = outcome.trial, outcome.attempt
        recorded = self._recorded[identity]
        reports = [Reported(*reported) for reported in outcome.reports]
        repeated = self._repeated_step(*identity, reports[0].step, trainings) if reports else 0
        self.forget(outcome)
        return [one for one in reports if one[:2] not in recorded and one.step > repeated]

    def forget(self, outcome: Outcome) -> None:
        """Forget the attempt, which has ended."""
        self._recorded.pop((outcome.trial, outcome.attempt), None)
        self._repeated.pop((outcome.trial, outcome.attempt), None)

    def _repeated_step(self, trial: int, attempt: int, first: int, trainings: Trainings) -> int:
        """Return the step up to which an attempt repeats reports that are in the log.

        An attempt that continues from a checkpoint repeats steps; its `first` report shows whether
        it does. The reports of a training that begins anew are recorded again.
        """
        if (trial, attempt) not in self._repeated:
            curve = trainings.curves.get(trial)
            continues = self._has_checkpoints and curve is not None and curve.is_continued_at(first)
            self._repeated[trial, attempt] = trainings.step(trial) if continues else 0
        return self._repeated[trial, attempt]
