"""Steps that trials have reported, for a budget that counts them instead of evaluations.

A trial counts with the largest step that it has reported in any attempt, and with one step if it
ends without a report. So a training that continues from a checkpoint does not count its first steps
twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of the trials that have ended, and of each open one that has reported."""

    over: int = 0
    open: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def total(self) -> int:
        """By all trials."""
        return self.over + sum(self.open.values())

    def after_reports(self, reports: Iterable[tuple[int, int]]) -> "Steps":
        """Return the new state after these reports (trial, step) of open trials."""
        largest = dict(self.open)
        for trial, step in reports:
            largest[trial] = max(step, largest.get(trial, 0))
        return replace(self, open=MappingProxyType(largest))

    def reopen(self, trial: int, step: int) -> "Steps":
        """Return the new state after a trial that had ended at `step` was continued: its steps
        count once."""
        return Steps(self.over - max(1, step), MappingProxyType({**self.open, trial: max(1, step)}))

    def after_end(self, trial: int, reports: Iterable[tuple[int, float]] = ()) -> "Steps":
        """Return the state after the end of `trial`, whose last attempt reported (step, value)."""
        last = max((step for step, _ in reports), default=0)
        still_open = {other: steps for other, steps in self.open.items() if other != trial}
        return Steps(self.over + max(1, last, self.open.get(trial, 0)), MappingProxyType(still_open))
