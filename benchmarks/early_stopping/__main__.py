"""`python -m benchmarks.early_stopping`: seconds until a configuration close to the best one is
found.

Trains the learning curves once and stores them in `--out`. Then searches them in simulated time
with this project (each stopping rule, and none), Ray Tune's ASHA, and Optuna with and without
successive halving. Finished searches are kept.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from benchmarks.command import run as run_command
from benchmarks.early_stopping import ours, peers
from benchmarks.early_stopping.curves import TRAININGS, LearningCurve, load_curves
from benchmarks.early_stopping.ours import Found
from benchmarks.papers.findings import Findings, Interval, Table
from benchmarks.papers.writing import write
from objectives.reference import did_you_mean
from orchestrator.errors import UserError

MARGIN = 0.005  # an accuracy within this margin of the best final one counts as found
RULES: Mapping[str, Mapping[str, object] | None] = {
    "none": None,
    "asha": {"rule": "asha", "reduction": float(peers.REDUCTION), "first_step": 1},
    "median": {"rule": "median", "after": 3},
}
METHODS: Mapping[str, str] = {
    "bbkb-none": "bbkb, no stopping",
    "bbkb-asha": "bbkb, asha",
    "bbkb-median": "bbkb, median",
    "uniform-none": "uniform, no stopping",
    "uniform-asha": "uniform, asha",
    "uniform-median": "uniform, median",
    "ray-asha": "Ray Tune, random search, ASHA",
    "optuna-random-sha": "Optuna, random search, SuccessiveHalvingPruner",
    "optuna-tpe-none": "Optuna, TPE, no pruning",
    "optuna-tpe-sha": "Optuna, TPE, SuccessiveHalvingPruner",
}

ALL_TRAININGS, ALL_METHODS = ",".join(TRAININGS), ",".join(METHODS)

Trainings = Annotated[str, typer.Option(help=f"Some of {ALL_TRAININGS}, separated by commas.")]
Methods = Annotated[str, typer.Option(help=f"Some of {ALL_METHODS}, separated by commas.")]


def main(
    trainings: Trainings = ALL_TRAININGS,
    methods: Methods = ALL_METHODS,
    workers: Annotated[int, typer.Option(min=1, help="Simulated workers.")] = 8,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions.")] = 10,
    out: Annotated[Path, typer.Option(help="Folder for curves, searches and results.")] = Path("runs/early_stopping"),
) -> None:
    """Measure the seconds until a configuration close to the best one is found, with and without
    early stopping."""
    console = Console(stderr=True)
    selected = _known_names("--methods", methods, METHODS)
    tables = []
    for training in _known_names("--trainings", trainings, TRAININGS):
        curves = load_curves(training, out, lambda line: console.print(Text(line), soft_wrap=True))
        results = {
            name: [_search(name, training, curves, workers, seed, out) for seed in range(seeds)] for name in selected
        }
        tables.append(_table(training, curves, results, workers))
    write(Findings(tables, []), out / "results", Console(width=160))


def target_of(curves: list[LearningCurve]) -> float:
    """The accuracy that counts as found."""
    return max(curve.accuracies[-1] for curve in curves) - MARGIN


def _search(name: str, training: str, curves: list[LearningCurve], workers: int, seed: int, out: Path) -> Found:
    path = out / "searches" / f"{training}-{name}-w{workers}-seed{seed}.json"
    if path.is_file():
        return Found(**json.loads(path.read_text(encoding="utf-8")))
    target, (searcher, _, rule) = target_of(curves), name.partition("-")
    if searcher in ("bbkb", "uniform"):
        search = ours.search(training, out, searcher, RULES[rule], target, workers, seed)
    else:
        tuner = peers.make_tuner(name, TRAININGS[training]().grid, seed)
        search = peers.search(tuner, curves, target, workers)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(search)), encoding="utf-8")
    return search


def _table(training: str, curves: list[LearningCurve], searches: Mapping[str, list[Found]], workers: int) -> Table:
    mean = sum(curve.seconds for curve in curves) / len(curves)
    near = sum(curve.accuracies[-1] >= target_of(curves) for curve in curves)
    rows = [
        (
            METHODS[name],
            Interval.of([result.seconds for result in results]),
            Interval.of([result.seconds * workers / mean for result in results]),
            Interval.of([result.trials for result in results]),
            f"{sum(result.is_found for result in results)} of {len(results)}",
        )
        for name, results in searches.items()
    ]
    title = f"{training}: until one of the {near} of {len(curves)} configurations within {MARGIN} of the best is found"
    return Table(
        f"early-stopping-{training}", title, ("method", "seconds", "in mean trainings", "trials begun", "found"), rows
    )


def _known_names(option: str, text: str, known_by_name: Mapping[str, object]) -> list[str]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in known_by_name:
            raise UserError(
                f"{option} must be some of {','.join(known_by_name)}, got {name!r}{did_you_mean(name, known_by_name)}"
            )
    return names


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)


if __name__ == "__main__":
    run_command(app, "benchmarks.early_stopping")
