"""Steps that trials have reported, for a budget that counts them instead of evaluations.

A trial counts with the largest step that it has reported in any attempt, and with one step if it
ends without a report. So a training that continues from a checkpoint does not count its first steps
twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

_MOST_DISTINCT = 64  # steps at which trials reported that are remembered; with more, every step counts as one


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of the trials that have ended, and of each open one that has reported."""

    over: int = 0
    open: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    distinct: frozenset[int] = frozenset()  # the steps of these reports, the first `_MOST_DISTINCT` of them

    @property
    def total(self) -> int:
        """By all trials."""
        return self.over + sum(self.open.values())

    def after_reports(self, reports: Iterable[tuple[int, int]]) -> "Steps":
        """Return the new state after these reports (trial, step) of open trials."""
        largest, new = dict(self.open), set[int]()
        for trial, step in reports:
            largest[trial] = max(step, largest.get(trial, 0))
            if step not in self.distinct and len(self.distinct) + len(new) < _MOST_DISTINCT:
                new.add(step)
        return replace(self, open=MappingProxyType(largest), distinct=self.distinct | new if new else self.distinct)

    def until_next_report(self, step: int) -> int:
        """Return how many steps a trial at `step` takes to its next report, as other trials did;
        where none has reported beyond it, as many as to the report before."""
        if len(self.distinct) == _MOST_DISTINCT or not step:
            return 1
        later, before = [at for at in self.distinct if at > step], [at for at in self.distinct if at < step]
        return min(later) - step if later else step - max(before, default=0)

    def reopen(self, trial: int, step: int) -> "Steps":
        """Return the new state after a trial that had ended at `step` was continued: its steps
        count once."""
        still_open = MappingProxyType({**self.open, trial: max(1, step)})
        return replace(self, over=self.over - max(1, step), open=still_open)

    def after_end(self, trial: int, reports: Iterable[tuple[int, float]] = ()) -> "Steps":
        """Return the state after the end of `trial`, whose last attempt reported (step, value)."""
        last = max((step for step, _ in reports), default=0)
        still_open = {other: steps for other, steps in self.open.items() if other != trial}
        over = self.over + max(1, last, self.open.get(trial, 0))
        return replace(self, over=over, open=MappingProxyType(still_open))
