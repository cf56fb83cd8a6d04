"""`python -m benchmarks.speed.log --trials 100000`: time and memory to read a long log, and its
size.

The campaign is a random search over two parameters in virtual time, with 32 workers. It is run once
and stored. Each command runs in its own process, whose processor seconds and largest memory are
measured.
"""

import sqlite3
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.bench import measure_command, write_campaign
from benchmarks.command import run as run_command

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
    run = folder / "runs" / "bench"
    if not run.is_dir():
        write_campaign(folder, "uniform", trials)
        run_quietly = ("run", "bench.yaml", "--log-level", "error", "--quiet")
        seconds, mebibytes = measure_command(run_quietly, folder)
        print(f"made {trials} trials in {seconds:.1f} s of processor time, {mebibytes:.0f} MiB", flush=True)
    table = Table("what", "seconds", "MiB", f"goal at 10⁵ (here × {trials / 1e5:g})")
    for what, (arguments, seconds_goal, mebibytes_goal) in _GOALS.items():
        seconds, mebibytes = measure_command([arguments[0], str(run), *arguments[1:]], folder)
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


if __name__ == "__main__":
    run_command(main, "benchmarks.speed.log")
