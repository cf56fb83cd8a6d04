"""The steps that trials have reported, for a budget that counts steps instead of evaluations.

A trial counts with the largest step that it has reported in any attempt, or with one step if it
ends without a report. A training that continues from a checkpoint therefore does not count its
first steps twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

from bbkb.orchestrator.campaign.draft import Section, section, without
from bbkb.workers.messages import Report

# The largest number of distinct steps to store. A training that reports more of them is assumed to
# report at every step.
_MOST_DISTINCT = 64


@section
class Steps(Section):
    """The steps of ended trials, and of open trials that have reported."""

    ended: int = 0  # the sum over all ended trials
    open: Mapping[int, int] = field(default_factory=dict)  # trial → largest step
    distinct: frozenset[int] = frozenset()  # the first `_MOST_DISTINCT` steps at which any trial reported

    @property
    def total(self) -> int:
        """The steps of all trials."""
        return self.ended + sum(self.open.values())

    def next_report(self, step: int) -> int | None:
        """Return the first step from `step` on at which any trial has reported, or None."""
        return min((at for at in self.distinct if at >= step), default=None)

    def until_next_report(self, step: int) -> int:
        """Return the number of steps between `step` and a trial's next report.

        It is estimated from the reports of other trials. If no trial has reported beyond `step`, it
        is the distance to the previous report.
        """
        if len(self.distinct) == _MOST_DISTINCT or not step:
            return 1
        later = self.next_report(step + 1)
        if later is not None:
            return later - step
        return step - max((at for at in self.distinct if at < step), default=0)

    def report(self, reports: Sequence[Report]) -> None:
        """Count these reports of open trials."""
        largest = dict(self.open)
        for report in reports:
            step = report.step
            largest[report.trial] = max(step, largest.get(report.trial, 0))
            if step not in self.distinct and len(self.distinct) < _MOST_DISTINCT:
                self.distinct |= {step}
        self.open = largest

    def reopen(self, trials: Mapping[int, int]) -> None:
        """Open `trials`, which had ended at these steps, again."""
        again = {trial: max(1, step) for trial, step in trials.items()}
        self.ended -= sum(again.values())
        self.open = {**self.open, **again}

    def end(self, trial: int, reports: Sequence[Report] = ()) -> None:
        """End `trial`, whose last attempt also made these reports."""
        last = max((report.step for report in reports), default=0)
        self.ended += max(1, last, self.open.get(trial, 0))
        self.open = without(self.open, [trial])
