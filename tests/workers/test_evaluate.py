"""`bbkb.workers.evaluate`: Runs one attempt under its limits and turns every result or failure into an
`Outcome`.
"""

import math
import os
import pickle
import socket
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.objectives.command import CommandFailedError
from bbkb.objectives.objective import MOST_METRICS, NAME_CHARACTERS, Evaluation, InvalidValueError, Parameters, Report
from bbkb.workers.evaluate import RECORDED_WHOLE, SteadyClock, evaluate, worker_name
from bbkb.workers.messages import Attempt, FailureKind, Outcome, TrialStopped, TrialSucceeded
from tests.present import of_type
from tests.workers.evaluations import (
    UNLIMITED,
    Doing,
    Published,
    failure_of,
    outcome_of,
    outcome_of_raising,
    outcome_of_value,
)


def test_evaluation_becomes_a_success_with_all_it_reported() -> None:
    def action(parameters: Parameters, seed: int, report: Report) -> Evaluation:
        report(0.5)
        report(math.nan)
        report(0.75, step=10)
        metrics: Any = {"noise_free": np.float32(1.5)}
        return Evaluation(parameters["x"] + seed, metrics)

    outcome = of_type(TrialSucceeded, outcome_of(action, now=iter([100.0, 103.0]).__next__, worker="here:1"))
    assert (outcome.trial, outcome.attempt, outcome.value) == (7, 4, 13.0)
    assert (outcome.started, outcome.finished, outcome.worker) == (100.0, 103.0, "here:1")
    assert outcome.metrics == {"noise_free": 1.5}
    assert [reported.step for reported in outcome.reports] == [0, 1, 10]
    assert math.isnan(outcome.reports[1].values["value"])
    assert type(pickle.loads(pickle.dumps(outcome)).metrics["noise_free"]) is float


def test_clock_set_back_gives_no_negative_duration_and_the_worker_is_this_process() -> None:
    outcome = outcome_of(lambda *_: Evaluation(1.0), now=iter([100.0, 40.0]).__next__)
    assert outcome.finished == outcome.started == 100.0
    assert outcome.worker == worker_name() == f"{socket.gethostname()}:{os.getpid()}"


@given(
    st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**300), 10**300)),
    st.sampled_from([lambda x: x, np.float64]),
)
def test_finite_number_is_a_value(number: float, convert: Callable[[float], Any]) -> None:
    outcome = of_type(TrialSucceeded, outcome_of_value(convert(number)))
    assert type(outcome.value) is float
    assert outcome.value == float(number)


class WithoutRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (np.float64("nan"), "nan"),
        (Decimal("nan"), "nan"),
        ("0.5", "'0.5' (str); write float(...) if it is meant as a number"),
        (None, "None (NoneType)"),
        (True, "True (bool); write float(...) if it is meant as a number"),
        (np.True_, "bool"),
        (1j, "1j (complex)"),
        (np.array([1.0]), "array([1.]) (ndarray); give one of its numbers, such as its mean"),
        pytest.param(1 << 3_321_928, "an int of 3321929 bits", id="million digits"),
        (10**400, "an int of 1329 bits"),
        pytest.param("a" * 10**6, "...", id="a million letters"),
        (WithoutRepr(), "(WithoutRepr)"),
        (np.longdouble("1e400"), "inf"),
    ],
)
def test_value_that_is_not_a_finite_number_is_invalid_and_shown(value: Any, shown: str) -> None:
    failure = failure_of(outcome_of_value(value))
    assert failure.failure is FailureKind.INVALID_VALUE
    assert failure.message.startswith("value must be a finite number, got ")
    assert shown in failure.message
    assert len(failure.message) < 200


@pytest.mark.parametrize(
    ("metrics", "kept", "remark"),
    [
        ({"loss": 1.0, "gap": math.nan}, {"loss": 1.0}, "gap (float, not a finite number)"),
        ([1.0], {}, "they must be a mapping, got list"),
    ],
)
def test_invalid_metric_is_omitted_and_the_value_kept(metrics: Any, kept: dict[str, float], remark: str) -> None:
    outcome = of_type(TrialSucceeded, outcome_of_value(0.5, metrics))
    assert (outcome.value, outcome.metrics, outcome.remark) == (0.5, kept, f"metrics left out: {remark}")


def test_metrics_are_bounded_in_number_and_in_the_length_of_their_names() -> None:
    many = {"x" * 50_000_000: 1.0, **{f"m{number}": 1.0 for number in range(5000)}}
    outcome = of_type(TrialSucceeded, outcome_of_value(0.5, many))
    assert len(outcome.metrics) == MOST_METRICS
    assert max(map(len, outcome.metrics)) <= NAME_CHARACTERS
    assert len(outcome.remark) < 500
    assert "and 4898 more" in outcome.remark


@pytest.mark.parametrize("result", [0.5, None, (0.5, {}), {"value": 0.5}])
def test_result_that_is_not_an_evaluation_is_invalid(result: Any) -> None:
    assert failure_of(outcome_of(lambda *_: result)).failure is FailureKind.INVALID_VALUE


@pytest.mark.parametrize("kind", [FailureKind.ERROR, FailureKind.INVALID_VALUE])
def test_error_about_a_command_or_a_value_is_its_message_without_a_traceback(kind: FailureKind) -> None:
    error = CommandFailedError if kind is FailureKind.ERROR else InvalidValueError
    failure = failure_of(outcome_of_raising(error("the last line is no number, got 'done'")))
    assert (failure.failure, failure.message) == (kind, "the last line is no number, got 'done'")


def reporting(*reports: Sequence[Any], **metrics: Any) -> Doing:
    """Return an objective that calls `report` with each of these positional arguments."""

    def trains(_: Parameters, _seed: int, report: Report) -> Evaluation:
        for arguments in reports:
            report(*arguments, **metrics)
        return Evaluation(1.0)

    return Doing(trains)


def outcome_of_reports(*reports: Sequence[Any], **metrics: Any) -> Outcome:
    return outcome_of(reporting(*reports, **metrics).action)


def test_attempt_with_a_step_limit_ends_at_the_report_that_reaches_it() -> None:
    published = Published()
    attempt = Attempt(trial=0, arm=0, parameters={}, seed=0, step_limit=5)
    objective = reporting(*((0.1 * step, step) for step in (2, 4, 6, 8)))
    outcome = of_type(TrialStopped, evaluate(objective, attempt, UNLIMITED, publish=published))
    assert outcome.step == 6
    assert [reported and reported.step for reported in published] == [2, 4, 6]


def test_reports_are_recorded_at_growing_intervals_and_at_the_end() -> None:
    count, published = 32 * RECORDED_WHOLE + 2, Published()
    attempt = Attempt(trial=0, arm=0, parameters={}, seed=0)
    objective = reporting(*((float(step),) for step in range(count)))
    outcome = of_type(TrialSucceeded, evaluate(objective, attempt, UNLIMITED, publish=published))
    steps = [reported.step for reported in outcome.reports]
    assert steps[: RECORDED_WHOLE + 2] == [*range(RECORDED_WHOLE), RECORDED_WHOLE, RECORDED_WHOLE + 2]
    assert steps[-1] == count - 1
    assert len(steps) == RECORDED_WHOLE * 7 // 2 + 2
    assert [reported for reported in published if reported is not None] == list(outcome.reports[:-1])
    assert len(published) == count, "each report asks whether the campaign stops the trial"


def test_report_takes_further_numbers_by_name() -> None:
    outcome = of_type(TrialSucceeded, outcome_of_reports((0.5, 1.0), (0.75, 2), **{"loss": math.inf, "val rate": 3}))
    metrics = {"loss": math.inf, "val rate": 3.0}
    assert [(each.step, each.values) for each in outcome.reports] == [
        (1, {"value": 0.5, **metrics}),
        (2, {"value": 0.75, **metrics}),
    ]


@pytest.mark.parametrize(
    ("report", "metrics", "message"),
    [
        (["high"], {}, "a reported value must be a finite number, got 'high' (str); write float(...)"),
        *(([3, step], {}, "a step must be a") for step in (0.75, math.nan, math.inf, "3", 10**30)),
        ([0.5], {"loss": "low"}, "the reported metric 'loss' must be a finite number, got 'low'"),
        ([0.5], {f"m{n}": 0.0 for n in range(MOST_METRICS + 1)}, f"more than {MOST_METRICS}"),
        ([0.5], {"n" * (NAME_CHARACTERS + 1): 0.0}, f"more than {NAME_CHARACTERS} characters"),
        ([{"accuracy": 0.5, "loss": 2.0}], {}, "a reported mapping must have 'value'"),
    ],
)
def test_report_that_cannot_be_recorded_makes_the_evaluation_fail(
    report: Sequence[Any], metrics: dict[str, Any], message: str
) -> None:
    failure = failure_of(outcome_of_reports(report, **metrics))
    assert failure.failure is FailureKind.INVALID_VALUE
    assert message in failure.message


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class _Nameless(type):
    def __getattribute__(cls, name: str) -> object:
        if name == "__qualname__":
            raise RuntimeError("no name")
        return super().__getattribute__(name)


class NamelessError(Exception, metaclass=_Nameless):
    pass


class Interrupting(KeyboardInterrupt):
    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize("is_expendable", [False, True])
@pytest.mark.parametrize(
    ("error", "kind", "beginning"),
    [
        (TypeError("a\nb"), FailureKind.ERROR, "TypeError: a\nb\nTraceback"),
        (ValueError(), FailureKind.ERROR, "ValueError\nTraceback"),
        (TimeoutError("socket"), FailureKind.ERROR, "TimeoutError: socket\n"),
        (SystemExit(3), FailureKind.ERROR, "SystemExit: 3\n"),
        (GeneratorExit("x"), FailureKind.ERROR, "GeneratorExit: x\n"),
        (KeyboardInterrupt(), FailureKind.ERROR, "KeyboardInterrupt\n"),
        (BaseException("odd"), FailureKind.ERROR, "BaseException: odd\n"),
        (Interrupting(), FailureKind.ERROR, "Interrupting: (its message cannot be printed)\n"),
        (MemoryError("no room"), FailureKind.OUT_OF_MEMORY, "MemoryError: no room\n"),
        (MuteError(), FailureKind.ERROR, "MuteError: (its message cannot be printed)\n"),
        (NamelessError("text"), FailureKind.ERROR, "NamelessError: text\n"),
        (RuntimeError("x" * 10**6), FailureKind.ERROR, "RuntimeError: xxx"),
        (RuntimeError("\udcff\0"), FailureKind.ERROR, "RuntimeError: \\udcff\\x00\n"),
    ],
)
def test_exception_of_any_type_is_a_failure_that_describes_it(
    error: BaseException, kind: FailureKind, beginning: str, is_expendable: bool
) -> None:
    failure = failure_of(outcome_of_raising(error, is_expendable=is_expendable))
    assert failure.failure is kind
    assert failure.message.startswith(beginning)


def test_traceback_ends_at_the_line_that_raised() -> None:
    def recurse(depth: int) -> None:
        if depth == 0:
            raise KeyError("the culprit")
        recurse(depth - 1)

    failure = failure_of(outcome_of(lambda *_: recurse(200)))
    assert failure.message.startswith("KeyError: 'the culprit'\nTraceback")
    assert failure.message.endswith("KeyError: 'the culprit'")


def test_objective_cannot_change_the_trial() -> None:
    attempt = Attempt(0, 0, {"x": 1.0}, seed=0)
    evaluate(Doing(lambda parameters, *_: parameters.clear()), attempt, UNLIMITED)
    assert attempt.parameters == {"x": 1.0}


def test_objective_that_replaces_functions_of_math_gives_no_value_that_is_not_finite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(math, "isfinite", lambda _: True)  # as an objective in this process may do
    assert failure_of(outcome_of_value(math.nan)).failure is FailureKind.INVALID_VALUE


def test_steady_clock_ignores_changes_of_the_machines_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, before = SteadyClock(), time.time()
    monkeypatch.setattr(time, "time", lambda: before + 86_400.0)
    assert abs(clock() - before) < 60.0
    first = clock()
    assert clock() >= first
