"""Campaigns whose trials report intermediate values: recorded reports and early stops, on every
executor."""

import os
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from bbkb import Result, load
from bbkb.objectives.objective import EvaluationStopped
from bbkb.orchestrator.campaign.events import TrialStopped
from bbkb.orchestrator.report.progress import best_so_far
from bbkb.orchestrator.store.runs import open_run
from bbkb.orchestrator.store.verify import verify
from tests.examples import spread
from tests.executors import HERE, workers_of
from tests.orchestrator.runs import history_of, tune_here
from tests.present import present
from tests.waiting import wait_until

STEPS = 9
ASHA = {"rule": "asha", "reduction": 3, "after": 1}


def report_curve(x: float, report: Callable[..., None]) -> float:
    """A curve that rises to x."""
    for step in range(1, STEPS + 1):
        report(x * step / STEPS, step)
    return x


def run(
    folder: Path,
    function: Any = report_curve,
    evaluations: int = 20,
    executor: str = "inline",
    **arguments: Any,
) -> Result:
    """Run a campaign of uniform draws that ASHA stops, unless the settings say otherwise."""
    settings = {"workers": {"executor": executor}, "early_stopping": ASHA, **arguments.pop("settings", {})}
    return tune_here(folder / "runs", function, evaluations=evaluations, settings=settings, **arguments)


def reports_of(result: Result, trial: int) -> list[tuple[int, float]]:
    return list(history_of(result).trials[trial].training.reports.items())


@pytest.mark.parametrize("executor", HERE)
def test_poor_trials_stop_early_and_the_best_is_complete(tmp_path: Path, executor: str) -> None:
    result = run(tmp_path, evaluations=40, executor=executor, workers=workers_of(executor))
    rows = result.rows()
    stopped = [row for row in rows if row["status"] == "stopped"]
    assert len(stopped) >= 15
    assert len(stopped) + sum(row["status"] == "succeeded" for row in rows) == 40
    assert result.best.value == max(row["value"] for row in rows if row["status"] == "succeeded")
    assert len(reports_of(result, cast(int, result.best.trial))) == STEPS
    for stop in open_run(result.folder).events():
        if isinstance(stop, TrialStopped):
            trial = history_of(result).trials[stop.trial]
            assert (trial.training.stopped_at, trial.value) == reports_of(result, stop.trial)[-1]
            assert stop.step < STEPS
    with open_run(result.folder).store() as store:
        assert verify(store, result.folder.name).problems == []


def test_trial_at_its_last_step_is_not_stopped(tmp_path: Path) -> None:
    result = run(tmp_path, settings={"early_stopping": {"rule": "median", "after": STEPS}})
    assert {row["status"] for row in result.rows()} == {"succeeded"}


def test_stopped_trial_uses_its_share_of_the_duration_in_virtual_time(tmp_path: Path) -> None:
    result = run(tmp_path, evaluations=30, executor="simulated", workers=2)
    for trial in history_of(result).trials:
        if (step := trial.training.stopped_at) is not None:
            assert trial.seconds == pytest.approx(step / (STEPS + 1))


@pytest.mark.parametrize(
    ("steps", "rule"),
    spread([(None,), (0,), (-3, -2), (0, 0), (5, 3), (2**53,)], [None, "median", "asha", "model"]),
)
def test_trials_may_report_at_any_steps(tmp_path: Path, steps: tuple[int | None, ...], rule: str | None) -> None:
    def report_at(x: float, report: Callable[..., None]) -> float:
        for step in steps:
            report(x, step)
        return x

    settings = {"early_stopping": rule and {"rule": rule}, "strategy": {"name": "bbkb"}}
    result = run(tmp_path, report_at, evaluations=6, settings=settings)
    assert result.outcome == "finished"
    assert {row["status"] for row in result.rows()} <= {"succeeded", "stopped"}


def test_very_many_reports_are_thinned_out(tmp_path: Path) -> None:
    def report_very_often(x: float, report: Callable[..., None]) -> float:
        for _ in range(20_000):
            report(x)
        return x

    result = run(tmp_path, report_very_often, evaluations=2, settings={"early_stopping": None})
    assert 500 <= len(reports_of(result, 0)) <= 4000


def test_objective_may_clean_up_when_stopped(tmp_path: Path) -> None:
    def clean_up(x: float, report: Callable[..., None]) -> float:
        try:
            return report_curve(x, report)
        except EvaluationStopped:
            (tmp_path / f"{x}.cleaned").touch()
            return 1e9  # a value returned after the stop is not used

    result = run(tmp_path, clean_up)
    stopped = [row for row in result.rows() if row["status"] == "stopped"]
    assert len(list(tmp_path.glob("*.cleaned"))) == len(stopped) > 0
    assert max(row["value"] for row in result.rows()) <= 1.0


COMMAND = """
import os, signal, sys, time
x = float(sys.argv[1])
def end(*_):
    open(sys.argv[2] + f"/{x}.cleaned", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
for step in range(1, 10):
    print("BBKB_REPORT", step, x * step / 9, flush=True)
    time.sleep(0.02)
print("BBKB_REPORT is no report")
print(x)
"""


def test_command_reports_by_lines_and_is_stopped_by_sigterm(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(COMMAND)
    command = {"command": f"{shlex.quote(sys.executable)} {script} {{x}} {tmp_path}", "direction": "maximize"}
    result = run(tmp_path, command, evaluations=12, direction=None)
    stopped = [row for row in result.rows() if row["status"] == "stopped"]
    assert len(list(tmp_path.glob("*.cleaned"))) == len(stopped) > 0
    assert [step for step, _ in reports_of(result, cast(int, result.best.trial))] == list(range(1, 10))


def test_attempts_of_a_trial_share_its_folder(tmp_path: Path) -> None:
    def train(x: float, folder: Path) -> float:
        checkpoint = folder / "checkpoint"
        if not checkpoint.exists():
            checkpoint.write_text(str(x))
            raise RuntimeError("the first attempt always fails")
        assert checkpoint.read_text() == str(x)
        return x

    workers = {"executor": "inline", "trial_folders": True, "retries": 1}
    result = run(tmp_path, train, evaluations=3, settings={"workers": workers, "early_stopping": None})
    assert [row["attempts"] for row in result.rows()] == [2, 2, 2]
    assert sorted(path.name for path in (result.folder / "trials").iterdir()) == ["000000", "000001", "000002"]


ON_RAY = """
    import os, time
    from bbkb.objectives.parameters import Range
    from bbkb import tune

    def objective(x, report, folder):
        (folder / "pid").write_text(str(os.getpid()))
        checkpoint = folder / "step"
        first = int(checkpoint.read_text()) if checkpoint.exists() else 0
        with open(folder / "starts", "a") as starts:
            starts.write(f"{first}\\n")
        # the first attempt of trial 0 lasts until it is killed
        last = 2000 if first == 0 and folder.name == "000000" else first + 10
        for step in range(first + 1, last + 1):
            time.sleep(0.1)
            report(x, step)
            (folder / "next").write_text(str(step))
            (folder / "next").replace(checkpoint)  # a kill leaves this checkpoint or the one before, never half of one
        return x

    if __name__ == "__main__":
        tune(objective, {"x": Range(0.0, 1.0)}, direction="maximize", evaluations=2, workers=2,
             name="checkpoints", progress=False, settings={"runs": "runs", "strategy": {"name": "uniform"},
                       "workers": {"trial_folders": True, "kind": "actor"}})
"""


def test_killed_evaluation_continues_from_its_checkpoint_and_its_curve_has_no_gap(
    tmp_path: Path, ray_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster)
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(ON_RAY))
    process = subprocess.Popen([sys.executable, script], cwd=tmp_path)
    try:

        def folder() -> Path | None:
            return next(iter((tmp_path / "runs").glob("checkpoints-*/trials/000000")), None)

        def step() -> int:
            trial_folder = folder()
            text = (trial_folder / "step").read_text() if trial_folder and (trial_folder / "step").exists() else ""
            return int(text or 0)

        def has_live_reports() -> bool:
            trial_folder = folder()
            return trial_folder is not None and bool(
                history_of(load(trial_folder.parent.parent)).trials[0].training.reports
            )

        assert wait_until(lambda: step() >= 5)
        assert wait_until(has_live_reports)
        found = folder()
        assert found is not None
        os.kill(int((found / "pid").read_text()), signal.SIGKILL)
        assert process.wait(timeout=200) == 0
    finally:
        process.kill()
        process.wait()
    rows = load(found.parent.parent).rows()
    assert [row["status"] for row in rows] == ["succeeded", "succeeded"], rows
    starts = [int(line) for line in (found / "starts").read_text().split()]
    assert len(starts) == 2
    assert starts[0] == 0
    assert starts[1] >= 5
    reports = history_of(load(found.parent.parent)).trials[0].training.reports
    assert list(reports) == [*range(1, starts[1] + 11)]  # none is missing


STOPPED_ON_RAY = """
    import time
    from bbkb.objectives.parameters import Range
    from bbkb import tune

    def objective(x, report):
        for step in range(1, 61):
            time.sleep(0.1)
            report(x, step)
        return x

    if __name__ == "__main__":
        result = tune(objective, {"x": Range(0.0, 1.0)}, direction="maximize", evaluations=8, workers=4, progress=False,
                      settings={"runs": "runs", "strategy": {"name": "uniform"}, "workers": {"kind": "KIND"},
                                "early_stopping": {"rule": "asha", "reduction": 3, "after": 1}})
        print(sum(row["status"] == "stopped" for row in result.rows()))
"""


@pytest.mark.parametrize("kind", ["actor", pytest.param("task", marks=pytest.mark.slow)])
def test_stop_reaches_the_worker_on_ray(
    tmp_path: Path, ray_cluster: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster)
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(STOPPED_ON_RAY.replace("KIND", kind)))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) >= 2


def test_budget_of_steps_pays_for_more_trials_if_poor_ones_stop(tmp_path: Path) -> None:
    counts = []
    for rule in (None, ASHA):
        settings = {"early_stopping": rule, "budget": {"steps": 20 * STEPS}}
        result = run(tmp_path, evaluations=500, executor="simulated", workers=2, settings=settings)
        begun = [trial for trial in history_of(result).trials if trial.training.reports]
        taken = sum(max(trial.training.reports) for trial in begun)
        assert 20 * STEPS <= taken < 20 * STEPS + 2 * STEPS  # running trials finish
        counts.append(len(begun))
    assert 20 <= counts[0] <= 22
    assert counts[1] > 2 * counts[0]


def test_pictures_say_that_stopped_trials_are_left_out(tmp_path: Path) -> None:
    result = run(tmp_path, evaluations=60, settings={"early_stopping": {"rule": "median"}})
    stopped = history_of(result).campaign.totals.stopped
    assert stopped > 1
    assert f"Without {stopped} trials that stopped early" in present(best_so_far(history_of(result))).caption
