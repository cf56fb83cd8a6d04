"""`python -m benchmarks.speed.phases`: where a search spends its time, and how much of it the
arithmetic needs.

The papers' BBKB runs on a data set with a clock around each phase. For each call the floating-point
operations and the bytes that any implementation must move are counted from the shapes. The least
time of a phase is the larger of its operations at this machine's rate of matrix products and its
bytes at this machine's rate of copying, both measured in the same process. What a phase takes
beyond that is the cost of small calls, of gathering rows, and of Python.
"""

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.command import run as run_command
from benchmarks.speed.measure import play
from benchmarks.speed.problems import load
from orchestrator.bandit.sparse.batch import BatchPosterior
from orchestrator.bandit.sparse.blocks import Block
from orchestrator.bandit.sparse.columns import KernelColumns
from orchestrator.bandit.sparse.posterior import SparseModel

FLOAT_BYTES = 8
EXPONENTIAL = 20  # operations that count for one exponential function


@dataclass
class Phase:
    """What the calls of one phase took and needed."""

    calls: int = 0  # number of calls
    seconds: float = 0.0  # processor seconds, without those of other phases that it calls
    operations: float = 0.0  # floating-point operations
    moved: float = 0.0  # bytes that are read or written


@dataclass(frozen=True)
class Watched:
    """A method whose calls are a phase."""

    phase: str  # name of the phase
    owner: type  # class of the method
    method: str  # its name
    # operations and bytes of one call, from its object, its arguments and its result
    work: Callable[..., tuple[float, float]]


def _fill(columns: Any, points: Any, slots: Any, _: object) -> tuple[float, float]:
    arms, features = columns._features.shape
    return arms * len(points) * (3.0 * features + EXPONENTIAL), FLOAT_BYTES * arms * (features + len(points))


def _sweep(block: Any, fit: Any, _: object) -> tuple[float, float]:
    arms, atoms, rank = len(block.features), len(fit.basis.arms), len(fit.spectrum)
    return 2.0 * arms * atoms * (rank + 1) + 2.0 * arms * rank, FLOAT_BYTES * arms * (atoms + 2)


def _moments(block: Any, fit: Any, positions: Any, _: object) -> tuple[float, float]:
    arms, atoms, rank = len(positions), len(fit.basis.arms), len(fit.spectrum)
    return 2.0 * arms * rank * (atoms + 2), FLOAT_BYTES * arms * (atoms + rank)


def _tighten(block: Any, fit: Any, line: Any, positions: Any, _: object) -> tuple[float, float]:
    return 2.0 * len(positions) * len(fit.basis.arms), FLOAT_BYTES * len(positions) * len(fit.basis.arms)


def _bound(block: Any, request: Any, _: object) -> tuple[float, float]:
    arms = len(block.features)
    return 3.0 * arms, FLOAT_BYTES * 3.0 * arms


def _append(batch: Any, arm: Any, _: object) -> tuple[float, float]:
    arms, rank = batch.rows.shape
    return 2.0 * arms * rank + 3.0 * arms + 4.0 * rank * rank, FLOAT_BYTES * arms * (rank + 2)


def _fit(model: Any, pulls: Any, dictionary: Any, result: Any) -> tuple[float, float]:
    rank, arms = len(result.fit.spectrum), len(pulls.arms)
    # pivoted Cholesky, two triangular solutions, a product, the eigenvectors of a symmetric matrix
    return rank**3 / 3 + rank**2 * arms * 3.0 + rank**3 + 9.0 * rank**3, FLOAT_BYTES * (4.0 * rank**2 + rank * arms)


def _local(block: Any, fit: Any, positions: Any, pulled: Any, *_: object) -> tuple[float, float]:
    arms = len(block.features) if positions is None else len(positions)
    atoms, rank, points = len(fit.basis.arms), len(fit.spectrum), len(pulled.counts)
    operations = 2.0 * arms * rank * (atoms + 1) + 4.0 * arms * rank * points + 6.0 * arms * points
    return operations, FLOAT_BYTES * arms * (atoms + points)


WATCHED = (
    Watched("kernel columns of new atoms", KernelColumns, "_fill", _fill),
    Watched("sweep over all arms", Block, "sweep", _sweep),
    Watched("bounds of all arms", Block, "_bound", _bound),
    Watched("tighter bounds of some arms", Block, "tighten", _tighten),
    Watched("moments of the arms that are looked at", Block, "moments", _moments),
    Watched("a pull: variances of the arms that are looked at", BatchPosterior, "append", _append),
    Watched("fit of the posterior", SparseModel, "fit", _fit),
    Watched("local rule: sums over the pulls", Block, "local_sums", _local),
)
REST = "everything else"

Name = Annotated[str, typer.Option(help="Data set: cadata, abalone, nasbench101 or synthetic.")]
Horizon = Annotated[int, typer.Option(min=2, help="Number of evaluations T.")]
Rule = Annotated[str, typer.Option(help="Rule that ends a batch: global or global_then_local.")]
Data = Annotated[Path | None, typer.Option(envvar="BBKB_DATA", help="Folder with the data sets.")]


def main(name: Name = "cadata", horizon: Horizon = 10_000, rule: Rule = "global", data: Data = None) -> None:
    """Print the table of phases of one search."""
    if data is not None:
        os.environ["BBKB_DATA"] = str(data)
    rate, bandwidth = matrix_rate(), copy_rate()
    phases = measure(name, horizon, rule)
    table = Table("phase", "calls", "seconds", "operations", "bytes", "least seconds", "times the least")
    for phase, measured in phases.items():
        least = max(measured.operations / rate, measured.moved / bandwidth)
        table.add_row(
            phase,
            f"{measured.calls}" if measured.calls else "",
            f"{measured.seconds:.2f}",
            f"{measured.operations:.2g}" if measured.calls else "",
            f"{measured.moved:.2g}" if measured.calls else "",
            f"{least:.3f}" if measured.calls else "",
            f"{measured.seconds / least:.1f}" if least else "",
        )
    console = Console(width=150)
    console.print(table)
    total, least = sum(measured_phase.seconds for measured_phase in phases.values()), _least(phases, rate, bandwidth)
    console.print(f"{total:.2f} s in all, {total / least:.1f} times the least, {least:.2f} s.")
    console.print(
        f"This machine: {rate / 1e9:.1f}e9 operations and {bandwidth / 1e9:.1f}e9 bytes a second, one thread."
    )


def measure(name: str, horizon: int, rule: str) -> dict[str, Phase]:
    """Return what each phase took in one search.

    Args:
        name: of the data set.
        horizon: number of evaluations.
        rule: that ends a batch.

    """
    problem = load(name)
    strategy = problem.strategy(horizon, rule, "paper" if rule == "global_then_local" else "embedded")
    with _clocks() as phases:
        began = time.process_time()
        play(problem, strategy, horizon, 0)
        total = time.process_time() - began
    phases[REST] = Phase(seconds=total - sum(phase.seconds for phase in phases.values()))
    return phases


@contextmanager
def _clocks() -> Iterator[dict[str, Phase]]:
    """Yield the phases, which grow while calls of the watched methods are timed."""
    phases = {watched.phase: Phase() for watched in WATCHED}
    inner = [0.0]  # processor seconds of phases within those that are under way, a number for each level
    with ExitStack() as patches:
        for watched in WATCHED:
            patches.enter_context(patch.object(watched.owner, watched.method, _timed(watched, phases, inner)))
        yield phases


def _timed(watched: Watched, phases: dict[str, Phase], inner: list[float]) -> Callable[..., Any]:
    """Return the method with a clock around it."""
    method = getattr(watched.owner, watched.method)

    @functools.wraps(method)
    def timed(self: Any, *arguments: Any, **options: Any) -> Any:
        inner.append(0.0)
        began = time.process_time()
        result = method(self, *arguments, **options)
        seconds = time.process_time() - began
        phase, own_seconds = phases[watched.phase], seconds - inner.pop()
        inner[-1] += seconds
        operations, moved = watched.work(self, *arguments, *options.values(), result)
        phase.calls += 1
        phase.seconds += own_seconds
        phase.operations += operations
        phase.moved += moved
        return result

    return timed


def matrix_rate() -> float:
    """Return floating-point operations a second of a product of matrices (the best of five)."""
    size = 1000
    matrix = np.ones((size, size))
    return 2.0 * size**3 / _best(lambda: matrix @ matrix)


def copy_rate() -> float:
    """Return bytes a second that are read and written by a copy of 64 MiB (the best of five)."""
    source = np.ones(2**23)
    target = np.empty_like(source)
    return 2.0 * source.nbytes / _best(lambda: np.copyto(target, source))


def _best(call: Callable[[], object]) -> float:
    """Return the least processor seconds of five calls."""

    def seconds() -> float:
        began = time.process_time()
        call()
        return time.process_time() - began

    return min(seconds() for _ in range(5))


def _least(phases: dict[str, Phase], rate: float, bandwidth: float) -> float:
    """Return the seconds that the arithmetic of all phases needs."""
    return sum(max(phase.operations / rate, phase.moved / bandwidth) for phase in phases.values())


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)


if __name__ == "__main__":
    run_command(app, "benchmarks.speed.phases")
