"""`bbkb.objectives.goals`: An objective whose metrics are objectives or constraints of a campaign: a
result without them is a failure.
"""

import math
import pickle

import pytest

from bbkb.objectives.external import call_with
from bbkb.objectives.objective import Evaluation, InvalidValueError, Objective, Parameters, Report
from bbkb.objectives.returned import MissingValueError, as_evaluation
from bbkb.objectives.with_metrics import WithMetrics
from bbkb.workers import messages
from bbkb.workers.evaluate import evaluate
from bbkb.workers.messages import Attempt, FailureKind, Limits, Outcome, TrialFailed, TrialSucceeded
from tests.present import of_type

NEEDED = (("accuracy", "objectives.0"), ("latency", "objectives.1"))


class Returns(Objective):
    def __init__(self, returned: object) -> None:
        self.returned = returned

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        return call_with(lambda: self.returned, parameters, seed, report, "f")


def outcome(returned: object, first: str = "accuracy", needed: tuple[tuple[str, str], ...] = NEEDED) -> Outcome:
    attempt = Attempt(trial=0, arm=0, parameters={}, seed=0)
    return evaluate(WithMetrics(Returns(returned), first, needed), attempt, Limits())


def test_value_is_the_first_metric_and_a_returned_value_stays() -> None:
    result = of_type(TrialSucceeded, outcome({"value": 9.0, "accuracy": 0.5, "latency": 3, "other": 1.0}))
    assert result.value == 0.5
    assert result.metrics == {"latency": 3.0, "other": 1.0, "value": 9.0}


def test_reported_mapping_has_the_first_objective_as_its_value() -> None:
    class Reports(Objective):
        def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
            report({"latency": 3.0, "accuracy": 0.25}, 1)
            report(0.5, 2, latency=2.0)
            return Evaluation(math.nan, {"accuracy": 0.5, "latency": 2.0})

    attempt = Attempt(trial=0, arm=0, parameters={}, seed=0)
    result = of_type(TrialSucceeded, evaluate(WithMetrics(Reports(), "accuracy", NEEDED), attempt, Limits()))
    assert result.reports == (
        messages.Report(0, 1, 1, {"accuracy": 0.25, "latency": 3.0}),
        messages.Report(0, 1, 2, {"accuracy": 0.5, "latency": 2.0}),
    )


def test_mapping_of_metrics_alone_is_enough() -> None:
    result = of_type(TrialSucceeded, outcome({"accuracy": 0.5, "latency": 3}))
    assert (result.value, result.metrics) == (0.5, {"latency": 3.0})


def test_constraint_on_a_metric_beside_the_value() -> None:
    result = of_type(TrialSucceeded, outcome({"value": 2.0, "memory": 1.0}, "value", (("memory", "constraints.0"),)))
    assert (result.value, result.metrics) == (2.0, {"memory": 1.0})


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"accuracy": 0.5}, "returned no metric 'latency', which objectives.1 names; it has accuracy"),
        (0.5, "returned no metric 'accuracy', which objectives.0 names; it has value"),
        ({"accuracy": 0.5, "latency": math.nan}, "'latency', which objectives.1 names, must be finite, got nan"),
        ({"accuracy": "high", "latency": 1}, "'accuracy', which objectives.0 names, is a str, not a number"),
    ],
)
def test_result_without_a_metric_of_a_goal_is_a_failure(returned: object, message: str) -> None:
    result = of_type(TrialFailed, outcome(returned))
    assert result.failure is FailureKind.INVALID_VALUE
    assert message in result.message


def test_metrics_of_goals_are_kept_when_there_are_too_many() -> None:
    many = {f"metric {number}": 1.0 for number in range(150)}
    result = of_type(TrialSucceeded, outcome({**many, "accuracy": 0.5, "latency": 3}))
    assert result.metrics["latency"] == 3.0
    assert len(result.metrics) == 100


def test_mapping_without_goals_must_have_a_value() -> None:
    with pytest.raises(InvalidValueError, match="must return a mapping with 'value', got keys"):
        as_evaluation({"accuracy": 1.0}, "f")


def test_error_can_be_pickled() -> None:
    with pytest.raises(MissingValueError) as raised:
        as_evaluation({"accuracy": 1.0}, "f")
    copy = pickle.loads(pickle.dumps(raised.value))
    assert str(copy) == str(raised.value)
    assert copy.evaluation.metrics == {"accuracy": 1.0}
