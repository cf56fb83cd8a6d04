"""Tests of objectives/report_lines.py: which lines are reports, and which of their metrics are
recorded."""

import pytest

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.objective import MOST_METRICS, NAME_CHARACTERS
from bbkb.objectives.report_lines import LONGEST_LINE, ReportLines
from bbkb.workers.messages import Report
from bbkb.workers.reporting import Reports
from bbkb.workers.results import check_result
from tests.reported import reported

LONG = "n" * (NAME_CHARACTERS + 1)


def read(line: str) -> tuple[tuple[Report, ...], dict[str, str]]:
    return read_in_pieces(f"{line}\n".encode(), 65536)


def read_in_pieces(output: bytes, size: int) -> tuple[tuple[Report, ...], dict[str, str]]:
    reports = Reports()
    lines = ReportLines(reports, 0)
    for begin in range(0, len(output), size):
        lines.take(output[begin : begin + size])
    return reports.points(), lines.left_out


@pytest.mark.parametrize("name", ["value", "step", LONG])
def test_metric_that_cannot_be_recorded_is_left_out_and_the_value_reported(name: str) -> None:
    points, left_out = read(f"BBKB_REPORT 3 0.5 {name}=1 loss=0.25")
    assert points == (reported(3, 0.5, loss=0.25),)
    assert [*left_out] == [f"reported {name}"]


def test_report_with_too_many_metrics_keeps_the_first_ones() -> None:
    (point,), left_out = read("BBKB_REPORT 3 0.5 " + " ".join(f"m{number}={number}" for number in range(101)))
    assert (point.values["value"], len(point.values)) == (0.5, 1 + MOST_METRICS)
    assert left_out == {"reported m100": f"more than {MOST_METRICS}"}


@pytest.mark.parametrize("piece", [1, 1000, 4096, 65536])
def test_largest_report_is_read_however_it_is_split(piece: int) -> None:
    metrics = tuple((f"{number:03}" + "é" * (NAME_CHARACTERS - 3), 1 / (3 + number)) for number in range(MOST_METRICS))
    line = f"BBKB_REPORT 3 0.5 {' '.join(f'{name}={value!r}' for name, value in metrics)}\n".encode()
    assert read_in_pieces(line, piece) == ((Report(0, 1, 3, {"value": 0.5, **dict(metrics)}),), {})


def test_line_above_the_limit_is_not_a_report_however_it_is_split() -> None:
    line = b"BBKB_REPORT 3 0.5 " + b"a=1 " * (LONGEST_LINE // 4) + b"\nBBKB_REPORT 4 0.5\n"
    for piece in (LONGEST_LINE // 2, len(line)):
        points, left_out = read_in_pieces(line, piece)
        assert points == (reported(4, 0.5),)
        assert left_out == {"a report": f"a line of more than {LONGEST_LINE} bytes"}


def test_metric_may_have_the_name_self() -> None:
    assert read("BBKB_REPORT 3 0.5 self=1") == ((reported(3, 0.5, self=1.0),), {})


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
