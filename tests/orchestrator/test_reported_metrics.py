"""Further numbers that trials report beside the value, from the objective to all that shows them."""

import io
import json
import math
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bbkb import Result, tune
from bbkb.objectives.objective import Report
from bbkb.objectives.parameters import Range
from bbkb.orchestrator.campaign.events import ReportsArrived, TrialSucceeded, body_of, event_of
from bbkb.orchestrator.cli.trackers import _reports
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.tables import export
from bbkb.orchestrator.report.one_trial import describe_trial
from tests.executors import HERE
from tests.orchestrator.runs import history_of
from tests.present import present
from tests.reported import reported

Bbkb = Callable[..., subprocess.CompletedProcess[str]]

STEPS = 3
SCRIPT = """
import sys
x = float(sys.argv[1])
for step in range(1, 4):
    print("BBKB_REPORT", step, x * step, f"loss={1 / step!r}", "val/auc=nan", flush=True)
print("BBKB_REPORT 9 0.5 loss")
print("BBKB_REPORT 9 0.5 loss=low")
print(x)
"""


def train(x: float, report: Report) -> float:
    for step in range(1, STEPS + 1):
        report(x * step, step, loss=1 / step, **{"val/auc": math.nan})
    return x


def run(objective: Any, folder: Path, executor: str = "inline") -> Result:
    settings = {"workers": {"executor": executor}, "runs": str(folder / "runs"), "strategy": {"name": "uniform"}}
    space = {"x": Range(0.0, 1.0)}
    return tune(objective, space, direction="maximize", evaluations=4, progress=False, settings=settings)


@pytest.fixture(params=[*(f"function {name}" for name in HERE), "command inline"])
def result(request: pytest.FixtureRequest, tmp_path: Path) -> Result:
    kind, executor = request.param.split()
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = {"command": f"{shlex.quote(sys.executable)} {script} {{x}}", "direction": "maximize"}
    return run(train if kind == "function" else command, tmp_path, executor)


def test_metrics_of_reports_are_recorded_with_their_step(result: Result) -> None:
    for row in history_of(result).trials:
        assert row.value is not None
        assert row.training.reports == {step: row.value * step for step in range(1, STEPS + 1)}
        assert {step: dict(metrics) for step, metrics in row.training.metrics.items()} == {
            step: pytest.approx({"loss": 1 / step, "val/auc": math.nan}, nan_ok=True) for step in range(1, STEPS + 1)
        }


def test_result_has_a_row_for_each_reported_step(result: Result) -> None:
    rows = result.rows(reports=True)
    reported = [
        (row.trial, step, value) for row in history_of(result).trials for step, value in row.training.reports.items()
    ]
    assert [(row["trial"], row["step"], row["value"]) for row in rows] == reported
    assert len(rows) == STEPS * len(result)
    frame = result.dataframe(reports=True)
    assert [*frame.columns] == [*rows[0]]
    assert frame["metric.loss"].tolist() == [1 / step for step in range(1, STEPS + 1)] * len(result)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return history_of(run(train, tmp_path_factory.mktemp("runs")))


def test_status_shows_a_trial_with_the_metrics_of_its_reports(bbkb: Bbkb, tmp_path: Path) -> None:
    folder = str(run(train, tmp_path).folder)
    lines = bbkb(tmp_path, "status", folder, "--trial", "0").stdout.splitlines()
    assert [line.partition(", ")[2] for line in lines if line.startswith("  step")] == [
        f"loss {1 / step}, val/auc None" for step in range(1, STEPS + 1)
    ]
    shown = json.loads(bbkb(tmp_path, "status", folder, "--trial", "0", "--json").stdout)
    assert shown["report_metrics"]["2"] == {"loss": 0.5, "val/auc": None}


def test_page_gets_the_metrics_of_reports(history: History) -> None:
    described = present(describe_trial(history, 1))
    assert described["report_metrics"] == {step: {"loss": 1 / step, "val/auc": None} for step in range(1, STEPS + 1)}


def test_reports_that_are_too_many_are_left_out_with_their_metrics(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bbkb.orchestrator.report.one_trial.MOST_REPORTS", 2)
    described = present(describe_trial(history, 1))
    assert [step for step, _ in described["reports"]] == [*described["report_metrics"]] == [2, 3]


def test_reports_are_exported_as_a_table_of_steps(history: History) -> None:
    rows = json.loads(b"".join(export(history, "json", "reports")))
    assert len(rows) == STEPS * len(history.trials)
    assert rows[1] == {"trial": 0, "step": 2, "value": rows[0]["value"] * 2, "metric.loss": 0.5, "metric.val/auc": None}
    text = b"".join(export(history, "csv", "reports")).decode().splitlines()
    assert text[0] == "trial,step,value,metric.loss,metric.val/auc"
    table = pq.read_table(io.BytesIO(b"".join(export(history, "parquet", "reports"))))
    assert [str(kind) for kind in table.schema.types] == ["int64", "int64", "double", "double", "double"]
    assert ("reported.loss", 0.5, 2) in _reports(history.trials[0])


def test_command_exports_the_table_of_steps(bbkb: Bbkb, tmp_path: Path) -> None:
    folder = str(run(train, tmp_path).folder)
    text = bbkb(tmp_path, "export", folder, "--reports").stdout
    assert text.startswith("trial,step,value,metric.loss")
    both = bbkb(tmp_path, "export", folder, "--reports", "--existing")
    assert both.returncode == 2
    assert "--existing and --reports cannot be combined" in both.stderr


def test_log_keeps_reports_with_their_numbers() -> None:
    arrived = ReportsArrived(time=1.0, reports=(reported(2, 0.5, 0, 1),))
    assert body_of(arrived) == '{"time":1.0,"reports":[[0,1,2,{"value":0.5}]]}'
    ended = TrialSucceeded(time=1.0, trial=0, value=0.5, started=0.0, finished=1.0, worker="w", reports=arrived.reports)
    assert "metrics" not in body_of(ended)
    for event in (arrived, ended):
        assert event_of(event.kind, body_of(event)) == event
