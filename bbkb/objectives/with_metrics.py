"""An objective whose metrics are objectives or constraints of a campaign: a result that lacks them
is a failure."""

import math
from dataclasses import dataclass

from bbkb.objectives.machines import AttemptReport, gives_value
from bbkb.objectives.objective import Evaluation, HasPreparation, InvalidValueError, Objective, Parameters, Report
from bbkb.objectives.returned import MissingValueError

VALUE = "value"  # the metric name of an objective's own value
_NAMED = 8  # the number of metrics that a message lists


@dataclass(frozen=True)
class WithMetrics:
    """An objective whose value is one of the metrics of `inner`.

    The required metrics come first, so that they are kept if there are too many. The value of
    `inner` becomes the metric `value`.
    """

    inner: Objective
    first: str  # the metric that becomes the value
    needed: tuple[tuple[str, str], ...]  # required metrics, each with its key in the campaign file

    def prepare(self) -> None:
        """See `HasPreparation`."""
        if isinstance(self.inner, HasPreparation):
            self.inner.prepare()

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """See `Objective`. Raises InvalidValueError if a metric is missing or not finite."""
        if not gives_value(report):
            return self.inner.evaluate(parameters, seed, report)
        if isinstance(report, AttemptReport):
            report.value_name = self.first
        try:
            evaluation = self.inner.evaluate(parameters, seed, report)
            returned = {**evaluation.metrics, VALUE: evaluation.value}
        except MissingValueError as error:  # a mapping that contains only metrics is sufficient
            evaluation = error.evaluation
            returned = dict(evaluation.metrics)
        for name, place in self.needed:
            self._check(evaluation, returned, name, place)
        value = returned.pop(self.first)
        named = {name: returned[name] for name, _ in self.needed if name in returned}
        return Evaluation(value, {**named, **returned}, evaluation.left_out)

    @staticmethod
    def _check(evaluation: Evaluation, returned: dict[str, float], name: str, place: str) -> None:
        if name in evaluation.left_out:
            raise InvalidValueError(f"the metric {name!r}, which {place} names, is a {evaluation.left_out[name]}")
        if name not in returned:
            listed = ", ".join(list(returned)[:_NAMED]) or "none"
            raise InvalidValueError(f"the objective returned no metric {name!r}, which {place} names; it has {listed}")
        if not math.isfinite(returned[name]):
            raise InvalidValueError(f"the metric {name!r}, which {place} names, must be finite, got {returned[name]}")
