"""The callback of each library in a small real training: reports, stop, checkpoint, lines of a
command."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bbkb.objectives.objective import Report
from bbkb.workers.evaluate import Reports
from tests.integrations.trainings import STEPS, TRAININGS, train_lightgbm, train_xgboost

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries

Training = Callable[[Report | None, Path | None], None]


@pytest.fixture(params=TRAININGS)
def training(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Training:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.delenv("BBKB_FOLDER", raising=False)
    return TRAININGS[request.param]


def stopping_at(last: int, folder: Path) -> Reports:
    return Reports(lambda reported: reported is not None and reported.step == last, folder)


def test_training_stopped_and_continued_reports_as_without_a_stop(training: Training, tmp_path: Path) -> None:
    whole = Reports(folder=tmp_path / "whole")
    training(whole, None)
    assert [reported.step for reported in whole.points()] == list(range(1, STEPS + 1))
    stopped = stopping_at(3, tmp_path / "stopped")
    training(stopped, None)
    assert [reported[:2] for reported in stopped.points()] == [reported[:2] for reported in whole.points()[:3]]
    continued = Reports(folder=tmp_path / "stopped")
    training(continued, None)
    for again, reported in zip(continued.points(), whole.points()[3:], strict=True):
        np.testing.assert_allclose(again[:2], reported[:2], rtol=1e-5)
    checkpoints = [path for path in (tmp_path / "stopped").iterdir() if path.name != "trainer"]
    assert [path.name.partition(".")[0] for path in checkpoints] == [f"step-{STEPS}"]


def test_callback_prints_the_lines_of_a_command_without_a_report(
    training: Training, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = Reports()
    training(expected, None)
    capfd.readouterr()
    training(None, None)
    printed = re.findall(r"^BBKB_REPORT (\d+) (\S+)", capfd.readouterr().out, re.MULTILINE)
    assert [(int(step), float(value)) for step, value in printed] == [
        (reported.step, reported.values["value"]) for reported in expected.points()
    ]


@pytest.mark.parametrize("train", [train_xgboost, train_lightgbm])
def test_last_round_is_always_reported_and_saved(train: Callable[..., None], tmp_path: Path) -> None:
    reports, whole = Reports(folder=tmp_path), Reports()
    train(reports, None, every=4)
    train(whole, None)
    assert [reported.step for reported in reports.points()] == [4, STEPS]
    assert reports.points()[-1] == whole.points()[-1]
    assert [path.name.partition(".")[0] for path in tmp_path.iterdir()] == [f"step-{STEPS}"]
    stopped = Reports(lambda reported: reported is not None and reported.step == 4)
    train(stopped, None, every=4)
    assert [reported.step for reported in stopped.points()] == [4]
