"""The steps that trials have reported, for a budget that counts steps instead of evaluations.

A trial counts with the largest step that it has reported in any attempt, or with one step if it
ends without a report. A training that continues from a checkpoint therefore does not count its
first steps twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from bbkb.orchestrator.campaign.immutable import no_items, with_items, without

# The largest number of distinct steps to store. A training that reports more of them is assumed to
# report at every step.
_MOST_DISTINCT = 64


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of ended trials, and of open trials that have reported."""

    ended: int = 0  # the sum over all ended trials
    open: Mapping[int, int] = field(default_factory=no_items)  # trial → largest step
    distinct: frozenset[int] = frozenset()  # the first `_MOST_DISTINCT` steps at which any trial reported

    @property
    def total(self) -> int:
        """The steps of all trials."""
        return self.ended + sum(self.open.values())

    def after_reports(self, reports: Iterable[tuple[int, int]]) -> "Steps":
        """Return a copy with these reports (trial, step) of open trials."""
        largest: dict[int, int] = {}
        new: set[int] = set()
        for trial, step in reports:
            largest[trial] = max(step, largest.get(trial, 0), self.open.get(trial, 0))
            if step not in self.distinct and len(self.distinct) + len(new) < _MOST_DISTINCT:
                new.add(step)
        distinct = self.distinct | new if new else self.distinct
        return replace(self, open=with_items(self.open, largest), distinct=distinct)

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

    def after_continuing(self, trials: Mapping[int, int]) -> "Steps":
        """Return a copy in which `trials`, which had ended at these steps, are open again."""
        again = {trial: max(1, step) for trial, step in trials.items()}
        ended = self.ended - sum(again.values())
        return replace(self, ended=ended, open=with_items(self.open, again))

    def after_end(self, trial: int, reports: Iterable[tuple[int, float]] = ()) -> "Steps":
        """Return a copy after the end of `trial`, whose last attempt reported (step, value)."""
        last = max((step for step, _ in reports), default=0)
        ended = self.ended + max(1, last, self.open.get(trial, 0))
        return replace(self, ended=ended, open=without(self.open, trial))
