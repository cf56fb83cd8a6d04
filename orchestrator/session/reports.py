"""Selects the intermediate values for the log: the first ones of an attempt, later a smaller and
smaller share, none twice."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from workers.messages import IntermediateValue, Stopped, Success

RECORDED_WHOLE = 500  # reports of an attempt that are recorded before they are thinned out

_Report = tuple[int, int, int, float]


@dataclass(slots=True)
class _Attempt:
    count: int = 0
    recorded: set[tuple[int, float]] = field(default_factory=set)


class RecordedReports:
    """What has been recorded of the attempts that run.

    Of n reports of an attempt about `RECORDED_WHOLE` · (1 + log₂(n / `RECORDED_WHOLE`)) are
    recorded.
    """

    def __init__(self) -> None:
        self._attempts: dict[tuple[int, int], _Attempt] = {}

    def take(self, values: Sequence[IntermediateValue]) -> tuple[_Report, ...]:
        """Return those of `values` that are to be recorded, as (trial, attempt, step, value)."""
        kept: list[_Report] = []
        for one in values:
            attempt = self._attempts.setdefault((one.trial, one.attempt), _Attempt())
            stride = 1 << max(0, (attempt.count // RECORDED_WHOLE).bit_length() - 1)
            if attempt.count % stride == 0:
                kept.append((one.trial, one.attempt, one.step, one.value))
                attempt.recorded.add((one.step, one.value))
            attempt.count += 1
        return tuple(kept)

    def take_rest(self, outcome: Success | Stopped) -> tuple[tuple[int, float], ...]:
        """Return the reports that came with the outcome and were not recorded before; forgets the
        attempt."""
        attempt = self._attempts.pop((outcome.trial, outcome.attempt), None)
        if attempt is None:
            return outcome.reports
        if attempt.count > RECORDED_WHOLE:
            return ()  # only thinned reports are missing
        return tuple(report for report in outcome.reports if report not in attempt.recorded)
