"""`python -m benchmarks.peers.estimates …`: how often the truth is within one and two of the
standard deviations that are shown with a recommended configuration.

The problems are those of benchmarks.peers; a function with another noise, `branin:0.1`; and
`branin:0.3:0.15:200`, 200 random configurations of a function with noise 0.3, each of which
differs from the function by N(0, 0.15²). All in units of (best − median).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.command import run as run_command
from benchmarks.papers.findings import Cell, Findings, Table
from benchmarks.papers.writing import write
from benchmarks.peers.functions import SHAPES, Function
from benchmarks.peers.methods.ours import Floats, Ours, OursInSpace, ours
from benchmarks.peers.problems import Evaluation, Group, Point, Problem
from benchmarks.peers.search import search
from benchmarks.peers.settings import make_problem, problems
from objectives.conditions import Scalar
from objectives.datasets import DataSource
from objectives.objective import Candidates
from objectives.parameters import Space
from objectives.sampling import make_candidates

_STREAM, _FIRST_SEED = 3, 5000
FUNCTIONS = ",".join(f"{name}:{noise}" for noise in (0.1, 0.01) for name in SHAPES)
FINITE = (
    "branin:0.1:0:200,branin:0.3:0.15:200,hartmann6:0.3:0:200,hartmann6:0.1:0.15:200,ackley10:0.3:0.1:200,"
    "rosenbrock8:0.2:0.1:2000"
)


@dataclass(frozen=True)
class Finite:
    """`size` random configurations of `function` with noise of their values, each of which differs
    from the function by N(0, `own`²)."""

    function: Function
    noise: float
    own: float
    size: int
    group = Group.NOISY
    is_deterministic = False

    @property
    def space(self) -> Space:
        return self.function.space

    @cached_property
    def arms(self) -> Candidates:
        sampled = make_candidates(self.space, self.size, "random", _FIRST_SEED + self.function.seed)
        return Candidates(sampled.features, sampled.columns)  # which may be evaluated again

    @cached_property
    def _values(self) -> dict[tuple[Scalar, ...], float]:
        """The value of each configuration; 1 is the best and 0 the median."""
        still, points = np.random.default_rng(0), [self.arms.parameters(arm) for arm in range(self.size)]
        values = _scaled(np.array([self.function.evaluate(point, still).expected for point in points]))
        effects = np.random.default_rng([self.function.seed, _STREAM]).standard_normal(self.size)
        worth = _scaled(values + self.own * effects).tolist()
        return dict(zip((tuple(point.values()) for point in points), worth, strict=True))

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        """Evaluate one of the configurations."""
        value = self._values[tuple(point.values())]
        return Evaluation(value + self.noise * float(rng.standard_normal()), value, 1.0 - value)


def _scaled(values: Floats) -> Floats:
    middle = np.median(values)
    scaled: Floats = (values - middle) / (values.max() - middle)
    return scaled


def named(name: str, seed: int, source: DataSource) -> Problem:
    """The problem of a name; see the module's text."""
    function, *numbers = name.split(":")
    if not numbers:
        return make_problem(name, seed, source)
    if len(numbers) == 1:
        return Function(function, seed, noise=float(numbers[0]))
    return Finite(Function(function, seed), float(numbers[0]), float(numbers[1]), int(numbers[2]))


def errors(problem: Problem, workers: int, marks: Sequence[int], seed: int) -> list[tuple[int, float, float]]:
    """Run a search; for each of `marks`, a number of results, at which the recommendation is shown
    with an estimate: the mark, truth − estimate, and the deviation shown."""
    method, shown = ours(problem, seed, {"name": "bbkb"}), list[tuple[int, float, float]]()

    def watch(done: int) -> None:
        if done in marks and (estimate := _shown(method)) is not None:
            point, mean, deviation = estimate
            truth = problem.evaluate(point, np.random.default_rng(0)).expected
            shown.append((done, truth - mean, deviation))

    search(problem, method, workers, max(marks), seed, ("", ""), watch)
    return shown


def _shown(method: Ours | OursInSpace) -> tuple[Point, float, float] | None:
    """The recommended configuration with estimate and deviation; None where it is that of the best
    value."""
    optimizer: Any = method._optimizer
    learner = optimizer._search.learner if isinstance(method, OursInSpace) else optimizer._learner
    arm = learner.strategy.recommend(learner.view)
    estimate = None if arm is None else learner.strategy.estimate(learner.view, arm)
    candidates = optimizer.candidates if isinstance(method, OursInSpace) else method._candidates
    return None if estimate is None else (candidates.parameters(arm), *estimate)


def main(
    problem: Annotated[str, typer.Option("--problems", help="See above; tables, finite, functions: sets.")] = "tables",
    workers: Annotated[int, typer.Option(min=1)] = 8,
    marks: Annotated[str, typer.Option(help="Numbers of results.")] = "40,80,200",
    seeds: Annotated[int, typer.Option(min=1)] = 7,
    out: Annotated[Path, typer.Option(help="Folder for results.")] = Path("runs/estimates"),
    data: Annotated[Path | None, typer.Option(envvar="BBKB_DATA", help="Folder with the data sets.")] = None,
) -> None:
    """Measure how honest the estimate of the recommended configuration is."""
    source, at = DataSource.find(data), tuple(int(mark) for mark in marks.split(","))
    listed = {"finite": FINITE, "functions": FUNCTIONS}.get(problem, problem)
    names = tuple(listed.split(",")) if ":" in listed else problems(listed)
    measured = [
        error
        for seed in range(seeds)
        for name in names
        for error in errors(named(name, seed, source), workers, at, seed)
    ]
    columns = ("results", "shown", "within one", "within two", "mean error", "rms error", "median error")
    rows = [_row(str(mark), [error for error in measured if error[0] == mark]) for mark in at]
    title = f"W = {workers}, {problem}: (truth − estimate)/deviation, {len(names) * seeds} searches"
    write(Findings([Table("estimates", title, columns, [*rows, _row("all", measured)])], []), out, Console(width=160))


def _row(label: str, errors: Sequence[tuple[int, float, float]]) -> tuple[Cell, ...]:
    """Shares within one and two deviations; errors in deviations, as the units of problems differ."""
    ratios = np.array([error / max(deviation, 1e-300) for _, error, deviation in errors])
    if not len(ratios):
        return (label, 0, *[float("nan")] * 5)
    inside = [float(np.mean(np.abs(ratios) <= width)) for width in (1.0, 2.0)]
    return (
        label,
        len(ratios),
        *inside,
        float(ratios.mean()),
        float(np.sqrt(np.mean(ratios**2))),
        float(np.median(ratios)),
    )


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)


if __name__ == "__main__":
    run_command(app, "benchmarks.peers.estimates")
