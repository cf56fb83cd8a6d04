"""Real campaigns of trainings of `own` on Ray, whose coordinators are killed twice.

Candidates and seeds are those of the recorded curves. Every reported value must therefore equal the
recorded one, and the regrets can be compared with those of `python -m benchmarks.curves`.
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from threadpoolctl import threadpool_limits

from bbkb.objectives.datasets import DataSource
from bbkb.objectives.machines import folder_of
from bbkb.objectives.objective import Candidates, Evaluation, Parameters, Report
from bbkb.orchestrator.history.reading import read_history
from bbkb.orchestrator.store.runs import open_run
from benchmarks.chaos.processes import Mark, title_of
from benchmarks.command import run as run_command
from benchmarks.curves import own
from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.trainings import STEPS, Rows, load_rows
from benchmarks.tables import Cell, Table, write

PROBLEMS = "boosting-cancer,linear-digits,perceptron-digits"
Row = tuple[Cell, ...]
KILLS = (0.25, 0.6)  # shares of the budget after which the coordinator is killed
COLUMNS = (
    *("problem", "seed", "sessions", "regret", "begun", "to the end"),
    *("failed", "reports", "wrong", "missing"),
)
_COORDINATOR = "ray::Orchestrator"
_DEADLINE = 1200.0  # seconds of a session
_AFTER_KILL = 10.0  # seconds until the local Ray has ended


@dataclass(frozen=True)
class OwnTraining:
    """Options of the objective: a problem of OWN, and the folder of its recorded curves."""

    problem: str
    own: str

    def default_space(self) -> None:
        """No space: the candidates are the recorded ones."""

    def load(self, source: DataSource) -> "Training":
        curves = own.load(self.problem, Path(self.own))
        rows = load_rows(own.OWN[self.problem].data, is_scaled=own.OWN[self.problem].is_scaled)
        return Training(self.problem, curves, rows)


@dataclass(frozen=True)
class Training:
    """The objective: trains a recorded configuration again, with the seed of the record."""

    name: str
    recorded: CurveProblem
    rows: Rows

    def candidates(self) -> Candidates:
        return arms_of(self.recorded)

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """The last value. The file `step` in the trial's folder is the checkpoint: the steps before
        it are trained again, but not reported again."""
        checkpoint = folder / "step" if (folder := folder_of(report)) else None
        first = int(checkpoint.read_text()) if checkpoint and checkpoint.exists() else 0
        value = math.nan
        for step, value in enumerate(self._values(parameters), start=1):
            if step < first:  # the report of `first` may have been lost
                continue
            if checkpoint is not None:
                (checkpoint.parent / "next").write_text(str(step))
                (checkpoint.parent / "next").replace(checkpoint)
            report(value, step)
        return Evaluation(value)

    def _values(self, parameters: Parameters) -> Iterator[float]:
        """The values of the training; the least recorded one from the step at which it diverges."""
        arms = arms_of(self.recorded)
        wanted = dict(parameters)
        seed = next(arm for arm in range(len(arms)) if arms.parameters(arm) == wanted)
        step = 0
        with np.errstate(all="ignore"), threadpool_limits(1):
            for value in own.OWN[self.name].train(self.rows, wanted, seed):
                if not math.isfinite(value):
                    break
                step += 1
                yield float(value)
        curve = self.recorded.curve(wanted)
        yield from map(float, curve[step:])


def arms_of(problem: CurveProblem) -> Candidates:
    """The recorded configurations."""
    assert problem.arms is not None
    return problem.arms


def search(name: str, folder: Path, own_folder: Path, seed: int, trainings: int, workers: int) -> Row:
    """Run a campaign that is killed at KILLS, and return its row of `COLUMNS`."""
    run = f"{name}-{seed}"
    budget = trainings * STEPS
    settings = {
        "name": run,
        "seed": seed,
        "objective": {
            "name": "benchmarks.curves.on_ray:OwnTraining",
            "options": {"problem": name, "own": str(own_folder)},
            "deterministic": True,
            "direction": "maximize",
        },
        "budget": {"steps": budget, "evaluations": 1000},
        "early_stopping": {"rule": "model", "last_step": STEPS, "continue": True},
        "workers": {"count": workers, "cpus": 0.5},
        "runs": str(folder),
    }
    file = folder / f"{run}.yaml"
    file.write_text(json.dumps(settings))
    for share in KILLS:
        _run(file, run, folder, share * budget)
    _run(file, run, folder, math.inf)
    return _account(run, folder, own.load(name, own_folder), seed)


def _run(file: Path, run: str, folder: Path, until: float) -> None:
    """Run or resume the campaign, and kill its coordinator after `until` steps."""
    mark = Mark()
    command = [sys.executable, "-m", "bbkb", "run", str(file), "--run", run, "--or-resume", "--quiet"]
    process = subprocess.Popen(command, env=mark.environment())
    deadline = time.monotonic() + _DEADLINE
    while process.poll() is None and time.monotonic() < deadline:
        steps = sum(int(path.read_text() or 0) for path in (folder / run).glob("trials/*/step"))
        if steps >= until:
            coordinators = [pid for pid in mark.pids() if title_of(pid).startswith(_COORDINATOR)]
            if sum(mark.kill(pid) for pid in coordinators):
                break
        time.sleep(0.2)
    process.kill()
    process.wait()
    time.sleep(_AFTER_KILL if until < math.inf else 0.0)
    mark.end_all()


def _account(run: str, folder: Path, problem: CurveProblem, seed: int) -> Row:
    """Return the row of `COLUMNS`. A value that differs from the recorded one is wrong."""
    history = read_history(open_run(folder / run))
    rows = [row for row in history.trials if row.training.reports]
    arms = arms_of(problem)
    curves = {row.trial: problem.curve(arms.parameters(row.arm)) for row in rows}
    reports = {row.trial: dict(sorted(row.training.reports.items())) for row in rows}
    pairs = [(curves[trial][step - 1], value) for trial in reports for step, value in reports[trial].items()]
    latest = {trial: list(values.items())[-1] for trial, values in reports.items()}
    best = max(latest, key=lambda trial: (latest[trial][1], -trial))
    return (
        run.rpartition("-")[0],
        seed,
        len(history.sessions),
        problem.regret(float(curves[best][-1])),
        len(reports),
        sum(step == len(curves[trial]) for trial, (step, _) in latest.items()),
        sum(row.status == "failed" for row in history.trials),
        len(pairs),
        sum(not math.isclose(*pair, rel_tol=1e-6, abs_tol=1e-9) for pair in pairs),
        sum(step - len(reports[trial]) for trial, (step, _) in latest.items()),
    )


def main(
    folder: Annotated[Path, typer.Argument(help="Folder for the runs.")],
    problems: Annotated[str, typer.Option(help="Problems of own.")] = PROBLEMS,
    own_folder: Annotated[Path, typer.Option("--own", help="Folder with the curves.")] = own.FOLDER,
    seeds: Annotated[int, typer.Option(min=1)] = 1,
    trainings: Annotated[int, typer.Option(min=1, help="Budget, in full trainings.")] = 10,
    workers: Annotated[int, typer.Option(min=1)] = 2,
) -> None:
    """Run the campaigns one after the other, and print their accounts."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed in range(seeds):
        for name in problems.split(","):
            row = search(name, folder.resolve(), own_folder.resolve(), seed, trainings, workers)
            typer.echo(row)
            rows.append(row)
    table = Table("on-ray", "campaigns on Ray, killed twice", COLUMNS, rows)
    write([table], folder / "results", Console(width=140))


if __name__ == "__main__":
    run_command(main, "benchmarks.curves.on_ray")
