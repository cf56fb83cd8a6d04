"""`bbkb.workers.evaluate`: the reports of a trial that its folder keeps."""

import math
from pathlib import Path

import pytest

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers import messages
from bbkb.workers.evaluate import evaluate
from bbkb.workers.messages import Attempt, TrialFailed, TrialSucceeded
from bbkb.workers.output import KEPT_REPORTS
from tests.workers.evaluations import UNLIMITED, Doing, Published


def attempt_of(
    folder: Path,
    steps: range,
    recorded_step: int = 0,
    is_killed: bool = False,
) -> tuple[list[messages.Report], object]:
    """Return the published reports and the outcome of an attempt that reports these steps."""

    def trains(_: Parameters, _seed: int, report: Report) -> Evaluation:
        for step in steps:
            report(math.nan if step == 4 else step / 10, step, loss=1.0)
        if is_killed:
            raise SystemExit
        return Evaluation(1.0)

    published = Published()
    attempt = Attempt(0, 0, {}, 0, folder=folder, recorded_step=recorded_step)
    outcome = evaluate(Doing(trains), attempt, UNLIMITED, publish=published)
    return [reported for reported in published if reported], outcome


def steps_of(reports: list[messages.Report]) -> list[int]:
    return [reported.step for reported in reports]


def test_attempt_reports_the_steps_of_a_killed_one_that_the_log_lacks(tmp_path: Path) -> None:
    killed, failure = attempt_of(tmp_path, range(1, 7), is_killed=True)
    assert isinstance(failure, TrialFailed)
    published, success = attempt_of(tmp_path, range(6, 9), recorded_step=2)
    assert steps_of(published) == [3, 4, 5, 6, 7, 8]
    assert str(published[:3]) == str(killed[2:5])  # with NaN and the metrics
    assert isinstance(success, TrialSucceeded)
    assert steps_of(list(success.reports)) == [3, 4, 5, 6, 7, 8]


def test_attempt_that_was_killed_again_leaves_its_reports_and_those_before(tmp_path: Path) -> None:
    attempt_of(tmp_path, range(1, 5), is_killed=True)
    attempt_of(tmp_path, range(4, 7), recorded_step=1, is_killed=True)
    published, _ = attempt_of(tmp_path, range(7, 8), recorded_step=1)
    assert steps_of(published) == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(("steps", "expected"), [(range(1, 3), [1, 2]), (range(0), [])])
def test_attempt_that_restarts_reports_only_its_own_steps(tmp_path: Path, steps: range, expected: list[int]) -> None:
    attempt_of(tmp_path, range(1, 6), is_killed=True)
    published, _ = attempt_of(tmp_path, steps, recorded_step=1)
    assert steps_of(published) == expected


def test_training_that_has_no_step_left_gives_the_missing_reports_with_its_result(tmp_path: Path) -> None:
    attempt_of(tmp_path, range(1, 6), is_killed=True)
    _, success = attempt_of(tmp_path, range(0), recorded_step=3)
    assert isinstance(success, TrialSucceeded)
    assert steps_of(list(success.reports)) == [4, 5]


@pytest.mark.parametrize("end", ["[4, 0.4, [", "[4]\n", "[]\nnull\n", "\x00\n", '{"a": 1}\n', '["x", 1, []]'])
def test_damaged_line_costs_one_report(tmp_path: Path, end: str) -> None:
    attempt_of(tmp_path, range(1, 4), is_killed=True)
    with (tmp_path / KEPT_REPORTS).open("a") as file:
        file.write(end)
    assert steps_of(attempt_of(tmp_path, range(6, 7), recorded_step=1)[0]) == [2, 3, 6]


def test_unusable_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / KEPT_REPORTS).mkdir()
    published, success = attempt_of(tmp_path, range(1, 4))
    assert isinstance(success, TrialSucceeded)
    assert steps_of(published) == [1, 2, 3]
