"""`python -m benchmarks.speed [rows …]`: measure the rows of the table, print it, and store it."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bbkb.orchestrator.errors import BbkbError, UserError
from benchmarks.command import THREADS, Data, numbers
from benchmarks.command import run as run_command
from benchmarks.speed.dispatching import Answer
from benchmarks.tables import Table, write


@dataclass(frozen=True)
class Bench:
    """BLAS `threads`, `repeats` (the table has medians), and folders of authors' code and data."""

    threads: int
    repeats: int
    authors: Path | None
    data: Path | None

    def measure(self, measurement: str, /, **options: object) -> Answer:
        """One measurement in its own process. Raises BbkbError with the last line of its output."""
        environment = dict(os.environ) | dict.fromkeys(THREADS, str(self.threads))
        if self.data is not None:
            environment["BBKB_DATA"] = str(self.data)
        command = [sys.executable, "-m", "benchmarks.speed.measure", measurement, json.dumps(options)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no output"]
            raise BbkbError(f"measuring {measurement} {options} failed: {lines[-1]}")
        answer: Answer = json.loads(done.stdout.strip().splitlines()[-1])
        return answer


Row = tuple[str, str, str]  # the measurement, its result in words, and the goal


def compare_with_authors(name: str, horizon: int, rule: str, goal: float) -> Callable[[Bench], list[Row]]:
    """A complete run and one of the authors' code, alternating: the median of the ratios."""

    def rows(bench: Bench) -> list[Row]:
        if bench.authors is None:
            raise UserError("--authors must name a checkout of luigicarratino/batch-bkb for the rows beside it")
        covariance = "paper" if rule == "global_then_local" else "embedded"  # their rule, for a fair comparison
        pairs = []
        for seed in range(bench.repeats):
            our_run = bench.measure("ours", name=name, horizon=horizon, rule=rule, covariance=covariance, seed=seed)
            their_run = bench.measure(
                "authors", name=name, horizon=horizon, rule=rule, folder=str(bench.authors), seed=seed
            )
            pairs.append((our_run, their_run))
        ratios = [their_run["seconds"] / our_run["seconds"] for our_run, their_run in pairs]

        def median(number: int, key: str) -> float:
            return float(statistics.median(pair[number][key] for pair in pairs))

        text = (
            f"{statistics.median(ratios):.1f} x faster "
            f"({median(0, 'seconds'):.2f} s, theirs {median(1, 'seconds'):.2f} s; "
            f"regret ratio {median(0, 'ratio'):.4f}, theirs {median(1, 'ratio'):.4f}; "
            f"batches {median(0, 'batches'):.0f}, theirs {median(1, 'batches'):.0f})"
        )
        return [(f"{name}, T = {horizon}, {rule}", text, f">= {goal:g} x")]

    return rows


def growth(bench: Bench) -> list[Row]:
    """Time and memory at T = 4·10⁴, divided by those at 10⁴."""
    options = {"name": "cadata", "rule": "global"}
    runs = [
        (bench.measure("ours", horizon=10_000, **options), bench.measure("ours", horizon=40_000, **options))
        for _ in range(bench.repeats)
    ]
    time = statistics.median(long["seconds"] / short["seconds"] for short, long in runs)
    memory = statistics.median(long["mebibytes"] / short["mebibytes"] for short, long in runs)
    amortised = statistics.median(short["seconds"] / 10_000 for short, _ in runs)
    return [
        ("cadata, time at T = 40000 over T = 10000", f"{time:.2f} (memory {memory:.2f})", "<= 4.4"),
        ("cadata, one suggestion at T = 10000", f"{amortised * 1e6:.0f} microseconds", "<= 100"),
    ]


def goals(bench: Bench) -> list[Row]:
    """The cost of a second and a third objective at T = 10⁴: medians of ratios."""
    seconds_by_goals: dict[int, list[float]] = {2: [], 3: []}
    for seed in range(bench.repeats):
        single = bench.measure("goals", objectives=1, results=10_000, cycles=2, seed=seed)
        for objectives, ratios in seconds_by_goals.items():
            several = bench.measure("goals", objectives=objectives, results=10_000, cycles=2, seed=seed)
            ratios.append(several["suggestion"] / single["suggestion"])
    return [
        (
            f"seconds of a suggestion with {objectives} objectives / with one, Cadata, T = 10^4",
            f"{statistics.median(ratios):.2f}",
            "<= 1.2" if objectives == 2 else "",
        )
        for objectives, ratios in seconds_by_goals.items()
    ]


def throughput(bench: Bench) -> list[Row]:
    """Evaluations without work per second on a local Ray, over those of raw tasks and Ray Tune."""
    runs = [bench.measure("throughput", evaluations=3000, tuned=200) for _ in range(bench.repeats)]
    rows = [
        (name, f"{statistics.median(run[name] for run in runs):.0f} a second", "")
        for name in runs[0]
        if not name.startswith(("uniform", "bbkb"))
    ]
    for name in runs[0]:
        if name.startswith(("uniform", "bbkb")):
            over_raw, over_tune = (statistics.median(run[name] / run[peer] for run in runs) for peer in ("raw", "tune"))
            rate = statistics.median(run[name] for run in runs)
            text = f"{rate:.0f} a second, {over_raw:.2f} of raw tasks, {over_tune:.0f} x Ray Tune"
            strategy, workers = name.split()
            what = f"no-op evaluations, strategy {strategy}, {workers} workers"
            rows.append((what, text, ">= 0.5 of raw, >= 20 x Tune"))
    return rows


def memory(bench: Bench) -> list[Row]:
    """Memory of the deciding process from 10³ to 10⁵ evaluations."""
    rows = []
    for strategy in ("uniform", "bbkb"):
        run = bench.measure("memory", strategy=strategy, counts=[1000, 10_000, 100_000])
        sizes = ", ".join(f"{size:.0f} MiB at {int(count):,}" for count, size in run["mebibytes"].items())
        rows.append((f"memory of the deciding process, {strategy}", sizes, "flat"))
    return rows


def defaults(bench: Bench) -> list[Row]:
    """CPU time of a suggestion at the defaults, by the number of candidates."""
    rows = []
    for arms, goal in ((4096, 5), (15_625, 10), (60_000, 15)):
        for workers in (16, 64):
            runs = [
                bench.measure("defaults", arms=arms, workers=workers, horizon=200, seed=seed)
                for seed in range(bench.repeats)
            ]
            milliseconds = 1e3 * statistics.median(run["suggestion"] for run in runs)
            what = f"a suggestion at the defaults, A = {arms}, {workers} workers, T = 200"
            rows.append((what, f"{milliseconds:.1f} ms CPU", f"<= {goal} ms"))
    return rows


ROWS: Mapping[str, Callable[[Bench], list[Row]]] = {
    "cadata-2000-global": compare_with_authors("cadata", 2000, "global", 15),
    "cadata-2000-local": compare_with_authors("cadata", 2000, "global_then_local", 15),
    "cadata-10000-global": compare_with_authors("cadata", 10_000, "global", 15),
    "cadata-10000-local": compare_with_authors("cadata", 10_000, "global_then_local", 15),
    "nasbench101-global": compare_with_authors("nasbench101", 10_000, "global", 10),
    "nasbench101-local": compare_with_authors("nasbench101", 10_000, "global_then_local", 10),
    "abalone-global": compare_with_authors("abalone", 10_000, "global", 5),
    "abalone-local": compare_with_authors("abalone", 10_000, "global_then_local", 5),
    "defaults": defaults,
    "growth": growth,
    "goals": goals,
    "throughput": throughput,
    "memory": memory,
}


_Rows = Annotated[list[str] | None, typer.Argument(metavar="ROWS", help="Names of rows; all when none is given.")]
Repeats = Annotated[int, typer.Option(min=1, help="Number of measurements; the table has their median.")]
Authors = Annotated[Path | None, typer.Option(help="A checkout of luigicarratino/batch-bkb, for the comparison.")]
Out = Annotated[Path, typer.Option(help="Folder to which the measurements are added.")]


def main(
    rows: _Rows = None,
    threads: Annotated[str, typer.Option(help="Numbers of BLAS threads, separated by commas.")] = "1",
    repeats: Repeats = 5,
    authors: Authors = None,
    data: Data = None,
    out: Out = Path("runs", "speed"),
) -> None:
    """Measure the speed of BBKB: times, and ratios of alternating measurements."""
    selected = rows or list(ROWS)
    unknown = [name for name in selected if name not in ROWS]
    if unknown:
        raise UserError(f"rows must be among {', '.join(ROWS)}, got {', '.join(unknown)}")
    console = Console(width=200)
    out.mkdir(parents=True, exist_ok=True)
    for count in numbers("--threads", threads):
        bench = Bench(count, repeats, authors, data)
        for name in selected:
            measured = ROWS[name](bench)
            title = f"{name}, {count} BLAS thread{'s' * (count > 1)}"
            write([Table(f"{name}-{count}", title, ("what", "found", "goal"), measured)], out, console)


if __name__ == "__main__":
    run_command(main, "benchmarks.speed")
