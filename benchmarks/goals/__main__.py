"""`python -m benchmarks.goals`: several objectives and constraints, compared with Optuna in
simulated time."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table as Shown
from scipy.stats import rankdata

from benchmarks.command import run as run_command
from benchmarks.goals.methods import LABELS, make_method
from benchmarks.goals.problems import LIMITED, PROBLEMS, load
from benchmarks.goals.search import MARKS, Record, search
from benchmarks.peers.settings import parts
from objectives.datasets import DataSource

Key = tuple[str, int]  # problem and seed
Found = dict[str, dict[Key, Record]]  # by method


def main(
    problems: Annotated[str, typer.Option(help="Problems, separated by commas.")] = ",".join(PROBLEMS),
    methods: Annotated[str, typer.Option(help="Methods, separated by commas.")] = ",".join(LABELS),
    workers: Annotated[int, typer.Option(min=1, help="Evaluations at the same time.")] = 16,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder for finished searches.")] = Path("runs/goals"),
    data: Annotated[Path | None, typer.Option(envvar="BBKB_DATA", help="Folder with the data sets.")] = None,
) -> None:
    """Run missing searches and print the tables. Finished searches are read from the folder."""
    source, console, file = DataSource.find(data), Console(width=160), out / "searches.jsonl"
    records = _read(file)
    for seed in range(seeds):
        for name in parts(problems):
            for method in parts(methods):
                if (name, seed) in records.setdefault(method, {}):
                    continue
                problem = load(name, source)
                record = search(problem, make_method(method, problem, seed), method, workers, seed)
                records[method][name, seed] = record
                _append(file, record)
                console.print(f"{name}, {method}, seed {seed}: {', '.join(f'{loss:.4f}' for loss in record.losses)}")
    shared = [(name, seed) for name in parts(problems) for seed in range(seeds)]
    selected = {method: records[method] for method in parts(methods)}
    console.print(_table("two objectives: 1 - hypervolume/best", selected, [key for key in shared if _is_pair(key)]))
    console.print(_table("one constraint: regret within it", selected, [key for key in shared if not _is_pair(key)]))


def _is_pair(key: Key) -> bool:
    return not key[0].endswith(LIMITED)


def _read(file: Path) -> Found:
    records: Found = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        record = Record(**json.loads(line))
        records.setdefault(record.method, {})[record.problem, record.seed] = record
    return records


def _append(file: Path, record: Record) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as target:
        target.write(json.dumps(asdict(record)) + "\n")


def _table(title: str, by_method: Mapping[str, Mapping[Key, Record]], keys: Sequence[Key]) -> Shown:
    """Mean loss and mean rank after each of MARKS, results until the first feasible and the best
    one, and CPU time."""
    heads = [*(f"loss {mark}" for mark in MARKS), *(f"rank {mark}" for mark in MARKS), "feasible", "best", "ms"]
    table = Shown("method", *heads, title=f"{title} ({len(keys)} searches)")
    if not keys:
        return table
    losses = np.array([[records[key].losses for key in keys] for records in by_method.values()])  # method, key, mark
    ranks = rankdata(np.round(losses, 9), axis=0).mean(axis=1)
    for place, (method, records) in enumerate(by_method.items()):
        selected = [records[key] for key in keys]
        table.add_row(
            LABELS.get(method, method),
            *(f"{loss:.4f}" for loss in losses[place].mean(axis=0)),
            *(f"{rank:.2f}" for rank in ranks[place]),
            f"{fmean(record.feasible for record in selected):.1f}",
            f"{fmean(record.best for record in selected):.0f}",
            f"{fmean(record.milliseconds for record in selected):.1f}",
        )
    return table


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)


if __name__ == "__main__":
    run_command(app, "benchmarks.goals")
