"""The callback of each library in a small real training: reports, stop, checkpoint, lines of a command; and in a
training of two processes, where the first one reports each step once."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from bbkb.objectives.external import Trial
from bbkb.objectives.objective import Report
from bbkb.workers.evaluate import Reports
from tests.integrations.trainings import STEPS, TRAININGS, train_lightgbm, train_xgboost

Training = Callable[[Report | None, Path | None], None]


@pytest.fixture(params=TRAININGS)
def training(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Training:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.delenv("BBKB_FOLDER", raising=False)
    return TRAININGS[request.param]


def stopping_at(last: int, folder: Path) -> Reports:
    return Reports(lambda reported: reported is not None and reported.step == last, folder)


@pytest.mark.filterwarnings("ignore")
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


@pytest.mark.filterwarnings("ignore")
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


@pytest.mark.filterwarnings("ignore")
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


ROOT = Path(__file__).parents[2]
ALL = list(range(1, STEPS + 1))
NEEDED = {
    "keras": ["keras"],
    "lightning": ["lightning"],
    "huggingface": ["transformers", "accelerate"],
    "own loop": [],
}

OF_LIBRARY = """
    import sys
    from tests.integrations.trainings import TRAININGS
    TRAININGS[sys.argv[1]](None, None)
"""

OWN_LOOP = f"""
    from pathlib import Path
    import torch
    from bbkb.integrations.trial import Trial
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer, trial = torch.optim.SGD(model.parameters(), 0.01), Trial()
    for step in range(trial.step + 1, {STEPS} + 1):
        loss = (model(torch.ones(8, 4) * (1 + torch.distributed.get_rank())) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trial.save(lambda path: torch.save(model.state_dict(), path), step, ".pt")
        trial.report({{"loss": loss.item()}}, "loss", step)
    torch.distributed.destroy_process_group()
"""

OF_XGBOOST = """
    import multiprocessing
    from xgboost import collective
    from xgboost.tracker import RabitTracker
    from tests.integrations.trainings import train_xgboost

    def train(arguments):
        with collective.CommunicatorContext(**arguments):
            train_xgboost(None, None)

    if __name__ == "__main__":
        tracker = RabitTracker(host_ip="127.0.0.1", n_workers=2)
        tracker.start()
        processes = [multiprocessing.Process(target=train, args=(tracker.worker_args(),)) for _ in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0]
"""


def run(tmp_path: Path, script: str, command: Sequence[str], *arguments: str) -> str:
    """Run `script` with `command` and a folder for checkpoints; return its output."""
    lines = script.splitlines()
    file = tmp_path / "script.py"
    file.write_text("\n".join(line.removeprefix("    ") for line in lines))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "BBKB_FOLDER": str(tmp_path / "folder"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, *command, str(file), *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def check(printed: str, folder: Path) -> None:
    assert [int(step) for step in re.findall(r"^BBKB_REPORT (\d+) ", printed, re.MULTILINE)] == ALL
    checkpoints = [path.name.partition(".")[0] for path in folder.iterdir() if path.name != "trainer"]
    assert checkpoints == [f"step-{STEPS}"]


@pytest.mark.thorough
@pytest.mark.parametrize("library", NEEDED)
def test_first_process_of_torchrun_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    for needed in ("torch", *NEEDED[library]):
        pytest.importorskip(needed)
    script = OWN_LOOP if library == "own loop" else OF_LIBRARY
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    check(run(tmp_path, script, torchrun, library), tmp_path / "folder")


@pytest.mark.thorough
def test_first_process_of_xgboost_reports(tmp_path: Path) -> None:
    pytest.importorskip("xgboost")
    check(run(tmp_path, OF_XGBOOST, []), tmp_path / "folder")


@pytest.mark.parametrize("variable", ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"])
def test_process_after_the_first_neither_reports_nor_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str
) -> None:
    for rank, is_first in (("1", False), ("0", True)):
        monkeypatch.setenv(variable, rank)
        trial = Trial(folder=tmp_path)
        assert trial.is_first == is_first
        trial.save(lambda path: Path(path).write_text("weights"), 1)
        assert not trial.report({"loss": 0.5}, "loss", 1)
        assert [path.name for path in tmp_path.iterdir()] == ["step-1"] * is_first
        assert capsys.readouterr().out.count("BBKB_REPORT") == is_first


def test_rank_that_is_not_a_number_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "first")
    assert Trial().is_first
