"""`bbkb.objectives.returned`: returned values, lines of reports, and metrics that a campaign requires."""

import math
import pickle
import warnings
from decimal import Decimal
from fractions import Fraction
from typing import NoReturn

import numpy as np
import pytest

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.external import call_with
from bbkb.objectives.objective import (
    MOST_METRICS,
    NAME_CHARACTERS,
    Evaluation,
    InvalidValueError,
    Objective,
    Parameters,
    Report,
)
from bbkb.objectives.returned import LONGEST_LINE, MissingValueError, ReportLines, WithMetrics, as_evaluation
from bbkb.workers import messages
from bbkb.workers.evaluate import Reports, check_result, evaluate
from bbkb.workers.messages import Attempt, FailureKind, Limits, Outcome, TrialFailed, TrialSucceeded
from tests.present import of_type
from tests.reported import reported


class Unprintable:
    def __repr__(self) -> NoReturn:
        raise RuntimeError("no")


class Measurement:
    """An object that Python's `float` accepts, as a tensor without dimensions is."""

    def __float__(self) -> float:
        return 2.0


class Tensor:
    """A tensor without dimensions that has a gradient: `float` of it warns, `float` of `detach()`
    does not."""

    ndim = 0

    def __init__(self, has_gradient: bool = True) -> None:
        self._has_gradient = has_gradient

    def detach(self) -> "Tensor":
        return Tensor(has_gradient=False)

    def __float__(self) -> float:
        if self._has_gradient:
            warnings.warn("converting a tensor with a gradient", UserWarning, stacklevel=2)
        return 2.0


PYTHONS = (2, 2.0, Fraction(4, 2), Decimal(2), Measurement(), Tensor())
NUMPYS = (np.float32(2), np.int64(2), np.array(2.0))


@pytest.mark.parametrize("number", [*PYTHONS, *NUMPYS], ids=lambda number: type(number).__name__)
def test_returned_number_of_any_type_is_a_value(number: object) -> None:
    evaluation = as_evaluation(number, "f")
    assert evaluation.value == 2.0
    assert type(evaluation.value) is float


def test_nan_and_infinity_are_passed_on_unchanged() -> None:
    assert np.isnan(as_evaluation(float("nan"), "f").value)
    assert as_evaluation(-np.inf, "f").value == -np.inf


@pytest.mark.parametrize(
    "returned",
    [None, "0.9", b"0.9", True, np.True_, 1j, np.complex64(1), [0.9], np.array([0.9]), (), object(), 10**1_000_000],
    ids=lambda returned: type(returned).__name__,
)
def test_returned_value_of_another_type_is_rejected_and_described(returned: object) -> None:
    with pytest.raises(InvalidValueError, match=f"f must return a number, got {type(returned).__name__} ") as caught:
        as_evaluation(returned, "f")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("returned", "remedy"),
    [
        (None, r"; is a return statement missing\?"),
        (True, r"; write float\(\.\.\.\) if it is meant as a number"),
        ("0.9", r"; write float\(\.\.\.\) if it is meant as a number"),
        (np.array([0.9, 0.8]), "; return one of its numbers, such as its mean"),
        ((0.9, {"seconds": 1}), "; write further numbers into one mapping: {'value': .*, 'seconds': .*}"),
        (Unprintable(), "got Unprintable that cannot be shown"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_rejected_value_is_named_with_the_remedy(returned: object, remedy: str) -> None:
    with pytest.raises(InvalidValueError, match=f"{remedy}$"):
        as_evaluation(returned, "f")


def test_tensor_with_a_gradient_is_a_number_without_a_warning() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert as_evaluation(torch.tensor(0.5, requires_grad=True), "f").value == 0.5


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            {"accuracy": 0.9},
            r"f must return a mapping with 'value', got keys \['accuracy'\]; call .* \[\{metric: accuracy, …\}\]",
        ),
        ({"value": "high"}, "f must return a number, got str 'high'"),
    ],
)
def test_wrong_mapping_is_rejected(returned: object, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        as_evaluation(returned, "f")


def test_invalid_metric_does_not_discard_the_value() -> None:
    folds = np.array([0.9, 0.97, 0.98])
    evaluation = as_evaluation({"value": 1, "folds": folds, "model": "x.pt", "loss": np.float32(0.5), "n": 3}, "f")
    assert (evaluation.value, dict(evaluation.metrics)) == (1.0, {"loss": 0.5, "n": 3.0})
    assert evaluation.left_out == {"folds": "ndarray, not a number", "model": "str, not a number"}


LONG = "n" * (NAME_CHARACTERS + 1)


def read(line: str) -> tuple[tuple[messages.Report, ...], dict[str, str]]:
    return read_in_pieces(f"{line}\n".encode(), 65536)


def read_in_pieces(output: bytes, size: int) -> tuple[tuple[messages.Report, ...], dict[str, str]]:
    reports = Reports()
    lines = ReportLines(reports, 0)
    for begin in range(0, len(output), size):
        lines.take(output[begin : begin + size])
    return reports.points(), lines.left_out


@pytest.mark.parametrize("name", ["value", "step", LONG])
def test_metric_that_cannot_be_recorded_is_left_out_and_the_value_reported(name: str) -> None:
    points, left_out = read(f"BBKB_REPORT 3 0.5 {name}=1 loss=0.25 self=1")
    assert points == (reported(3, 0.5, loss=0.25, self=1.0),)
    assert [*left_out] == [f"reported {name}"]


def test_report_with_too_many_metrics_keeps_the_first_ones() -> None:
    (point,), left_out = read("BBKB_REPORT 3 0.5 " + " ".join(f"m{number}={number}" for number in range(101)))
    assert (point.values["value"], len(point.values)) == (0.5, 1 + MOST_METRICS)
    assert left_out == {"reported m100": f"more than {MOST_METRICS}"}


@pytest.mark.parametrize("piece", [1, 1000, 4096, 65536])
def test_largest_report_is_read_however_it_is_split(piece: int) -> None:
    metrics = tuple((f"{number:03}" + "é" * (NAME_CHARACTERS - 3), 1 / (3 + number)) for number in range(MOST_METRICS))
    line = f"BBKB_REPORT 3 0.5 {' '.join(f'{name}={value!r}' for name, value in metrics)}\n".encode()
    assert read_in_pieces(line, piece) == ((messages.Report(0, 1, 3, {"value": 0.5, **dict(metrics)}),), {})


def test_line_above_the_limit_is_not_a_report_however_it_is_split() -> None:
    line = b"BBKB_REPORT 3 0.5 " + b"a=1 " * (LONGEST_LINE // 4) + b"\nBBKB_REPORT 4 0.5\n"
    for piece in (LONGEST_LINE // 2, len(line)):
        points, left_out = read_in_pieces(line, piece)
        assert points == (reported(4, 0.5),)
        assert left_out == {"a report": f"a line of more than {LONGEST_LINE} bytes"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (" 3 0.5 loss", "got 'loss'"),
        (" 3 0.5 loss=low", "could not convert string to float: 'low'"),
        (" 3 0.5 =1", "got '=1'"),
        (" three 0.5", "invalid literal for int() with base 10: 'three'"),
        (": 3 0.5", "invalid literal for int() with base 10: ':'"),
        (" 4", "not enough values to unpack (expected at least 2, got 1)"),
    ],
)
def test_line_of_another_form_is_left_out_with_the_first_reason(line: str, why: str) -> None:
    points, left_out = read(f"BBKB_REPORT{line}\nBBKB_REPORT 4 x\nBBKB_REPORT\t5 0.5")
    assert points == (reported(5, 0.5),)
    assert left_out == {"a report": f"it must be `BBKB_REPORT step value name=number`: {why}"}


def test_result_of_a_command_has_a_remark_on_omitted_parts() -> None:
    evaluation = ShellCommand("echo BBKB_REPORT 1 0.5 step=1; echo 2").evaluate({}, 0, Reports())
    remark = check_result(evaluation).remark
    assert remark == "metrics left out: reported step (an argument of report has this name)"


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


def test_metric_may_stand_alone_or_beside_the_value() -> None:
    result = of_type(TrialSucceeded, outcome({"accuracy": 0.5, "latency": 3}))
    assert (result.value, result.metrics) == (0.5, {"latency": 3.0})
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


def test_error_can_be_pickled() -> None:
    with pytest.raises(MissingValueError) as raised:
        as_evaluation({"accuracy": 1.0}, "f")
    copy = pickle.loads(pickle.dumps(raised.value))
    assert str(copy) == str(raised.value)
    assert copy.evaluation.metrics == {"accuracy": 1.0}
