"""`python -m benchmarks.peers.transfer …`: what `earlier` gains from runs on other tasks of LCBench,
and what it costs when they mislead.

Each search begins with the configurations that `earlier` takes of four runs on other tasks: of runs
that maximised the accuracy (related), or that minimised it (hostile).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from benchmarks.command import run as run_command
from benchmarks.papers.findings import Cell, Findings, Table
from benchmarks.papers.writing import write
from benchmarks.peers.methods.ours import OursInSpace
from benchmarks.peers.problems import Point, Problem
from benchmarks.peers.search import MARKS, search
from benchmarks.peers.trainings import NAMES, load_training
from objectives.datasets import DataSource
from objectives.space import SearchSpace
from orchestrator.session.earlier import MOST, SHARE, EarlierRun, portfolio

SIGNS: Mapping[str, int] = {"without": 0, "related": 1, "hostile": -1}  # of the earlier runs' rewards
RUNS = 4
AFTER = (5, 10, 25, 50)  # results
_EARLIER_SEED, _STREAM = 100, 5


@dataclass
class Noted:
    """A method of this project with the opposite or the same rewards; its results are noted."""

    method: OursInSpace
    sign: int

    def __post_init__(self) -> None:
        self.asked: dict[int, Point] = {}
        self.rewards: dict[int, float] = {}

    def ask(self, number: int) -> Point | None:
        point = self.method.ask(number)
        if point is not None:
            self.asked[number] = point
        return point

    def tell(self, number: int, reward: float | None) -> None:
        if reward is not None:
            self.rewards[number] = self.sign * reward
        self.method.tell(number, None if reward is None else self.sign * reward)

    def recommend(self) -> Point:
        return self.method.recommend()


def earlier_run(name: str, problem: Problem, sign: int, seed: int, workers: int, evaluations: int) -> EarlierRun:
    """The results of a search of `problem`, which maximises or minimises (`sign`)."""
    noted = Noted(OursInSpace(problem.space, seed, {"name": "bbkb"}), sign)
    search(problem, noted, workers, evaluations, seed, (name, "bbkb"))
    return EarlierRun(name, [noted.asked[number] for number in noted.rewards], list(noted.rewards.values()))


def regrets(
    problem: Problem, runs: Sequence[EarlierRun], seed: int, workers: int, evaluations: int
) -> tuple[float, ...]:
    """The regret of the recommendation after each of `AFTER` results in a search of `evaluations`,
    at least the last of these, that begins with a portfolio of `runs`."""
    space = SearchSpace(dict(problem.space))
    first = portfolio(space, runs, min(MOST, evaluations // SHARE)) if runs else []
    method = OursInSpace(problem.space, seed, {"name": "bbkb", "enqueue": first})
    found = search(problem, method, workers, evaluations, seed, ("", "")).recommended
    return tuple(found[-(-MARKS * after // evaluations) - 1] for after in AFTER)


def main(
    tasks: Annotated[int, typer.Option(min=1, max=len(NAMES), help="The first so many tasks are searched.")] = 8,
    workers: Annotated[int, typer.Option(min=1)] = 8,
    evaluations: Annotated[int, typer.Option(min=AFTER[-1])] = AFTER[-1],
    seeds: Annotated[int, typer.Option(min=1)] = 5,
    out: Annotated[Path, typer.Option(help="Folder for results.")] = Path("runs/transfer"),
    data: Annotated[Path | None, typer.Option(envvar="BBKB_DATA", help="Folder with the data sets.")] = None,
) -> None:
    """Measure the regret with and without earlier runs, on the same tasks and seeds."""
    source = DataSource.find(data)

    @cache
    def run_of(name: str, sign: int, seed: int) -> EarlierRun:
        return earlier_run(name, load_training(name, source), sign, _EARLIER_SEED + seed, workers, evaluations)

    found: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in SIGNS}
    for seed in range(seeds):
        for place, name in enumerate(NAMES[:tasks]):
            others = np.random.default_rng([seed, place, _STREAM]).permutation(np.delete(np.arange(len(NAMES)), place))
            for kind, sign in SIGNS.items():
                runs = [run_of(NAMES[other], sign, seed) for other in others[:RUNS].tolist()] if sign else []
                found[kind].append(regrets(load_training(name, source), runs, seed, workers, evaluations))
    write(Findings([_table(found, f"W = {workers}, T = {evaluations}")], []), out, Console(width=160))


def _table(found: Mapping[str, Sequence[tuple[float, ...]]], setting: str) -> Table:
    """Mean regrets, and the differences to the searches without earlier runs with their standard
    errors."""
    plain, rows = np.array(found["without"]), list[tuple[Cell, ...]]()
    for kind, values in found.items():
        differences = np.array(values) - plain
        errors = differences.std(axis=0, ddof=1) / np.sqrt(len(plain)) if len(plain) > 1 else np.zeros(len(AFTER))
        several = zip(np.mean(values, axis=0), differences.mean(axis=0), errors, strict=True)
        rows.append((kind, *(f"{mean:.3f} ({change:+.3f} ± {error:.3f})" for mean, change, error in several)))
    columns = ("earlier runs", *(f"after {after}" for after in AFTER))
    return Table("transfer", f"{setting}, regret (difference ± standard error): {len(plain)} searches", columns, rows)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)


if __name__ == "__main__":
    run_command(app, "benchmarks.peers.transfer")
