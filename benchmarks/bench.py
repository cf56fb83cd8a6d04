"""`make bench`: one page of short measurements, as ratios to another commit, in about ten minutes.

Each measurement runs in a process of its own, in this working tree and in a checkout of the other
commit, alternately, so that other load on the machine affects both equally. The page has processor
seconds (medians) and their ratio, says whether both made the same picks, and names the machine and
its load. Without another commit it has the seconds only.

    python -m benchmarks.bench --base HEAD~1 --data DATA
"""

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bbkb.orchestrator.errors import BbkbError, UserError
from benchmarks.command import THREADS, Data
from benchmarks.command import run as run_command

_HERE = Path(__file__).resolve().parent.parent
# the processor seconds of a measurement alone, without imports, and a digest of its picks
_MEASURE = """
import hashlib, json, sys, time
from benchmarks.speed.measure import MEASUREMENTS
began = time.process_time()
answer = MEASUREMENTS[sys.argv[1]](**json.loads(sys.argv[2]))
seconds = answer.get("suggestion", time.process_time() - began)
picks = hashlib.sha256(json.dumps(answer.get("arms")).encode()).hexdigest() if "arms" in answer else ""
print(json.dumps([seconds, picks]))
"""
_CAMPAIGN = """
name: bench
objective: {{name: branin}}
space:
  x: {{low: 0.0, high: 1.0}}
  y: {{low: 0.0, high: 1.0}}
candidates: {{size: 4096}}
strategy: {{name: {strategy}}}
budget: {{evaluations: {trials}}}
workers: {{executor: simulated, count: 32, simulation: {{seconds: 100.0, sigma: 0.5, failure_rate: 0.01}}}}
runs: runs
run: bench
"""


Seconds = tuple[float, str]  # processor seconds of one process, and a digest of its picks, which may be empty


@dataclass(frozen=True)
class Measurement:
    """A short measurement in its own process."""

    words: str  # for the page
    name: str  # key of `benchmarks.speed.measure.MEASUREMENTS`
    options: dict[str, object]  # arguments of the measurement
    data_set: str | None = None  # folder of the data that it needs; None if it needs none

    def seconds(self, tree: Path, scratch: Path, data: Path | None) -> Seconds:
        """Measure in `tree`. Raises BbkbError with the end of its output."""
        command = [sys.executable, "-c", _MEASURE, self.name, json.dumps(self.options)]
        done = subprocess.run(command, cwd=tree, env=_environment(tree, data), capture_output=True, text=True)
        if done.returncode:
            raise BbkbError(f"measuring {self.words} in {tree} failed: {(done.stderr.strip() or 'no output')[-500:]}")
        seconds, picks = json.loads(done.stdout.strip().splitlines()[-1])
        return seconds, picks


@dataclass(frozen=True)
class CommandMeasurement:
    """The processor seconds of `bbkb` commands on a simulated campaign, imports included."""

    words: str  # for the page
    strategy: str  # of the campaign
    trials: int  # evaluations of the campaign
    command: tuple[str, ...]  # arguments of `bbkb`; the campaign is run first, unless this is its run
    data_set: None = None  # needs no data

    def seconds(self, tree: Path, scratch: Path, data: Path | None) -> Seconds:
        """Measure in a folder in which the campaign is run once if the command reads it."""
        folder = scratch / f"{self.strategy}-{self.trials}"
        is_run = self.command[0] == "run"
        if is_run and folder.exists():
            shutil.rmtree(folder)
        if not folder.exists():
            folder.mkdir(parents=True)
            campaign = _CAMPAIGN.format(strategy=self.strategy, trials=max(self.trials, 1))
            (folder / "bench.yaml").write_text(campaign, encoding="utf-8")
            if not is_run and self.trials:
                _measure_command(("run", "bench.yaml"), folder, tree)
        return _measure_command(self.command, folder, tree), ""


_PAPER = "papers' BBKB, "
_NASBENCH101 = {"name": "nasbench101", "horizon": 10_000, "rule": "global"}
_CADATA = {"name": "cadata", "horizon": 2000, "rule": "global"}
_LOCAL = _CADATA | {"rule": "global_then_local", "covariance": "paper"}
MEASUREMENTS = (
    Measurement(_PAPER + "Cadata, T = 2000, global rule: whole search", "ours", _CADATA, "cadata"),
    Measurement(_PAPER + "Cadata, T = 2000, global then local rule: whole search", "ours", _LOCAL, "cadata"),
    Measurement(_PAPER + "NAS-Bench-101's space, T = 10⁴: whole search", "ours", _NASBENCH101, "nasbench101"),
    *(
        Measurement(
            f"default, {arms} candidates, {workers} workers, T = {horizon}: one suggestion",
            "defaults",
            {"arms": arms, "workers": workers, "horizon": horizon},
        )
        for arms, workers, horizon in ((4096, 16, 200), (15_625, 64, 200), (20_000, 512, 1500))
    ),
    Measurement(
        "default, two objectives, Cadata, after 1000 results: one suggestion",
        "goals",
        {"objectives": 2, "results": 1000, "cycles": 2},
        "cadata",
    ),
)
COMMANDS = (
    CommandMeasurement("`bbkb run`, simulated, random search, 5000 trials", "uniform", 5000, ("run", "bench.yaml")),
    CommandMeasurement("`bbkb run`, simulated, default strategy, 300 trials", "bbkb", 300, ("run", "bench.yaml")),
    CommandMeasurement("`bbkb resume` of 5000 finished trials", "uniform", 5000, ("resume", "runs/bench")),
    CommandMeasurement("`bbkb status` of 5000 trials", "uniform", 5000, ("status", "runs/bench")),
    CommandMeasurement("`bbkb report` of 5000 trials", "uniform", 5000, ("report", "runs/bench")),
    CommandMeasurement("`bbkb verify` of 5000 trials", "uniform", 5000, ("verify", "runs/bench")),
    CommandMeasurement("`bbkb --help`", "uniform", 0, ("--help",)),
)

Base = Annotated[str | None, typer.Option(help="Commit to compare with, such as HEAD~1; none: seconds only.")]
Repeats = Annotated[int, typer.Option(min=1, help="Processes for each number; the page has their median.")]
Out = Annotated[Path, typer.Option(help="File that is written, in Markdown.")]


def main(base: Base = None, repeats: Repeats = 3, data: Data = None, out: Out = Path("runs", "bench.md")) -> None:
    """Run short versions of the speed benchmarks, alternating with another commit."""
    with _checkout(base) as before, tempfile.TemporaryDirectory() as scratch:
        trees = [_HERE] if before is None else [_HERE, before]
        title = f"# Speed of {_commit('HEAD')}" + (f" beside {_commit(base)}" if base else "")
        machine = (
            f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
            f"Python {platform.python_version()}, NumPy {np.__version__}, one BLAS thread. "
            f"Load average at the start: {_load()}. Processor seconds, medians."
        )
        columns = ("what", "seconds", "before", "ratio", "picks") if base else ("what", "seconds")
        lines = [title, "", machine, "", f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
        measurements: list[Measurement | CommandMeasurement] = [*MEASUREMENTS, *COMMANDS]
        for one in measurements:
            has_data = one.data_set is None or (data is not None and (data / one.data_set).is_dir())
            durations = [
                [one.seconds(tree, Path(scratch, str(place)), data) for place, tree in enumerate(trees)]
                for _ in range(repeats if has_data else 0)
            ]
            lines.append(_row(one.words, durations, len(trees)))
            print(lines[-1], flush=True)
    lines += ["", f"Load average at the end: {_load()}."]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"written to {out}")


def _row(words: str, durations: Sequence[Sequence[Seconds]], trees: int) -> str:
    """A line of the table. `durations` has for each repetition the seconds in each of the
    `trees`; it is empty without data."""
    if not durations:
        return f"| {words} | no data: name their folder with `--data` |" + " |" * (3 if trees == 2 else 0)
    here = statistics.median(pair[0][0] for pair in durations)
    if trees == 1:
        return f"| {words} | {here:.3g} |"
    before = statistics.median(pair[1][0] for pair in durations)
    ratio = statistics.median(pair[0][0] / pair[1][0] for pair in durations)
    is_equal = all(pair[0][1] == pair[1][1] for pair in durations)
    picks = ("equal" if is_equal else "differ") if durations[0][0][1] else ""
    return f"| {words} | {here:.3g} | {before:.3g} | {ratio:.2f} | {picks} |"


def _measure_command(arguments: Sequence[str], folder: Path, tree: Path) -> float:
    """The processor seconds of `bbkb` with `arguments`. Raises BbkbError with the end of its errors."""
    command = [sys.executable, "-m", "bbkb", *arguments]
    before = os.times()
    done = subprocess.run(command, cwd=folder, env=_environment(tree, None), capture_output=True, text=True)
    after = os.times()
    if done.returncode:
        raise BbkbError(f"bbkb {' '.join(arguments)} in {tree} failed: {(done.stderr.strip() or 'no output')[-500:]}")
    return after.children_user + after.children_system - before.children_user - before.children_system


def _environment(tree: Path, data: Path | None) -> dict[str, str]:
    """The environment of a process that imports the packages of `tree`."""
    environment = dict(os.environ) | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": str(tree)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed
    return environment if data is None else environment | {"BBKB_DATA": str(data.absolute())}


@contextmanager
def _checkout(base: str | None) -> Iterator[Path | None]:
    """A folder with the files of commit `base`, removed at the end; None without one."""
    if base is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", base], cwd=_HERE, capture_output=True)
        if archive.returncode:
            raise UserError(
                f"--base must be a commit of this repository, got {base}: {archive.stderr.decode().strip()}"
            )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def _commit(name: str) -> str:
    """The short name of a commit, with a word if HEAD has changes that are not committed."""
    options = ["--dirty"] if name == "HEAD" else [name]
    done = subprocess.run(["git", "describe", "--always", *options], cwd=_HERE, capture_output=True, text=True)
    return done.stdout.strip() or name


def _load() -> str:
    return ", ".join(f"{load:.1f}" for load in os.getloadavg())


if __name__ == "__main__":
    run_command(main, "benchmarks.bench")
