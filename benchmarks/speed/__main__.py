"""`python -m benchmarks.speed [rows …]`: measure, print the table, and store it."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.command import Data, numbers
from benchmarks.command import run as run_command
from benchmarks.speed.rows import ROWS, Bench
from benchmarks.tables import Table, write
from orchestrator.errors import UserError

Rows = Annotated[list[str] | None, typer.Argument(metavar="ROWS", help="Names of rows; all when none is given.")]
Threads = Annotated[str, typer.Option(help="Numbers of BLAS threads, separated by commas.")]
Repeats = Annotated[int, typer.Option(min=1, help="Number of measurements; the table has their median.")]
Authors = Annotated[Path | None, typer.Option(help="A checkout of luigicarratino/batch-bkb, for the comparison.")]
Out = Annotated[Path, typer.Option(help="Folder to which the measurements are added.")]


def main(
    rows: Rows = None,
    threads: Threads = "1",
    repeats: Repeats = 5,
    authors: Authors = None,
    data: Data = None,
    out: Out = Path("runs", "speed"),
) -> None:
    """Measure the speed of BBKB. Ratios come from alternating measurements on this machine; times
    depend on it."""
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
