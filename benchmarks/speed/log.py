"""`python -m benchmarks.speed.log --trials 100000`: time and memory to read a long log, and its
size.

The campaign is a random search over two parameters in virtual time, with 32 workers. It is run once
and stored. Each command runs in its own process, whose processor seconds and largest memory are
measured.
"""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.command import run as run_command

_CAMPAIGN = """
name: long
objective: {{name: branin}}
space:
  x: {{low: 0.0, high: 1.0}}
  y: {{low: 0.0, high: 1.0}}
candidates: {{size: 4096}}
strategy: {{name: uniform}}
budget: {{evaluations: {trials}}}
workers: {{executor: simulated, count: 32, simulation: {{seconds: 100.0, sigma: 0.5, failure_rate: 0.01}}}}
runs: {runs}
run: long
"""
# command → its arguments, and its limits at 10⁵ trials in seconds and MiB
_GOALS: dict[str, tuple[list[str], float, float]] = {
    "status": (["status"], 2.0, 300.0),
    "resume of a finished run": (["resume"], 5.0, 300.0),
    "verify": (["verify"], 15.0, 300.0),
    "report": (["report"], 8.0, 300.0),
    "export": (["export", "--output", "trials.csv"], 6.0, 300.0),
    "export to JSON": (["export", "--format", "json", "--output", "trials.json"], 6.0, 300.0),
}

Trials = Annotated[int, typer.Option(min=1, help="Trials of the campaign.")]
Folder = Annotated[Path, typer.Option(help="Folder of the campaign, which is run there unless it exists.")]


def main(trials: Trials = 100_000, folder: Folder = Path("runs/speed-log")) -> None:
    """Run the campaign unless it exists, and measure the commands that read its log."""
    folder = (folder / str(trials)).absolute()
    run = folder / "runs" / "long"
    if not run.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "campaign.yaml").write_text(_CAMPAIGN.format(trials=trials, runs=folder / "runs"))
        code, seconds, mebibytes = _measure_command(["run", "campaign.yaml", "--log-level", "error", "--quiet"], folder)
        if code != 0:
            raise SystemExit(f"`bbkb run` ended with exit code {code}: remove {run} and try again")
        print(f"made {trials} trials in {seconds:.1f} s of processor time, {mebibytes:.0f} MiB", flush=True)
    table = Table("what", "seconds", "MiB", f"goal at 10⁵ (here × {trials / 1e5:g})")
    for what, (arguments, seconds_goal, mebibytes_goal) in _GOALS.items():
        _, seconds, mebibytes = _measure_command([arguments[0], str(run), *arguments[1:]], folder)
        table.add_row(what, f"{seconds:.1f}", f"{mebibytes:.0f}", f"{seconds_goal:g} s, {mebibytes_goal:g} MiB")
    database, page = run / "campaign.sqlite", run / "report.html"
    table.add_row("log, bytes a trial", f"{_log_bytes(database) / trials:.0f}", "", "500")
    table.add_row("report, MB", f"{page.stat().st_size / 1e6:.1f}", "", "6")
    Console(width=120).print(table)


def _log_bytes(database: Path) -> int:
    """Bytes of the table of events with its index."""
    with sqlite3.connect(database) as connection:
        query = "SELECT SUM(pgsize) FROM dbstat WHERE name LIKE '%bbkb_events%'"
        try:
            return int(connection.execute(query).fetchone()[0])
        except sqlite3.OperationalError:  # this build of SQLite does not have dbstat
            return database.stat().st_size


def _measure_command(arguments: list[str], folder: Path) -> tuple[int, float, float]:
    """Exit code, processor seconds and largest memory in MiB of one command."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}  # as installed
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *arguments], cwd=folder, stdout=subprocess.DEVNULL, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024.0


if __name__ == "__main__":
    run_command(main, "benchmarks.speed.log")
