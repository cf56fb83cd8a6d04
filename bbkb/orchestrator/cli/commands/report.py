"""`bbkb report`, `compare`, `export` and `serve`: a run as a page, beside others, as a table or in a
tracker, and live in a browser."""

import functools
import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bbkb.orchestrator import files
from bbkb.orchestrator.cli import trackers
from bbkb.orchestrator.cli.arguments import RunFolder, find_run
from bbkb.orchestrator.cli.optuna_study import to_optuna
from bbkb.orchestrator.cli.summary import save_report
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history import tables
from bbkb.orchestrator.history.comparing import side_by_side
from bbkb.orchestrator.history.fold import read_history
from bbkb.orchestrator.report.terminal import SafeConsole, say, write_file, write_output
from bbkb.orchestrator.store import runs

_Output = Annotated[Path | None, typer.Option(help="Where to write it.")]
_Plotly = Annotated[
    Path | None,
    typer.Option(help="A file of plotly.js that several reports share. Written if it is missing."),
]


def report(folder: RunFolder, output: _Output = None, plotly: _Plotly = None) -> None:
    """Write a run's report: one HTML file that needs no network."""
    old = runs.open_run(folder)
    path = output or old.report_file
    # it may lead from another user's folder to a file of this user
    if output is None and path.is_symlink():
        raise UserError(f"{path} must not be a link, and leads to {path.readlink()}: name the file by --output")
    save_report(old, path, plotly)
    say(SafeConsole(), f"report {path.resolve()}")


_NARROWEST = 17  # characters of a column

Runs = Annotated[
    list[Path],
    typer.Argument(
        help="Folders of runs; NAME is short for runs/NAME.",
        show_default=False,
        callback=lambda folders: [find_run(folder) for folder in folders],
    ),
]


def compare(
    folders: Runs,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="Also draw the best values so far into this file: .html, .png, .svg or .pdf."),
    ] = None,
) -> None:
    """Compare runs: strategy, evaluations, best value and its origin, the recommended configuration
    if values are noisy, time and utilization."""
    names = [folder.resolve().name for folder in folders]
    histories = [read_history(runs.open_run(folder)) for folder in folders]
    rows = side_by_side(histories)
    console = SafeConsole()
    room = console.width - max(len(label) for label, _ in rows)
    count = max(1, room // _NARROWEST)  # the number of runs in one table
    for first in range(0, len(names), count):
        table = Table(box=None, pad_edge=False)
        for heading in ("", *names[first : first + count]):
            table.add_column(escape(heading), overflow="fold")
        for label, cells in rows:
            table.add_row(label, *map(Text, cells[first : first + count]))
        console.print(*([""] if first else []), table, sep="\n")
    if picture is not None:
        from bbkb.orchestrator.report.pictures import write_picture  # loads plotly

        named = list(zip(names, histories, strict=True))
        write_file(picture, lambda path: write_picture(named, path))
        say(console, f"picture {picture.resolve()}")


class Format(StrEnum):
    """The output formats of `bbkb export`."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    OPTUNA = "optuna"


_PLACES: Mapping[Format, str] = {
    Format.TENSORBOARD: "a folder",
    Format.MLFLOW: "sqlite:///mlflow.db",
    Format.OPTUNA: "sqlite:///study.db",
}


def export(
    folder: RunFolder,
    format_: Annotated[Format, typer.Option("--format", help="A table, or an experiment tracker.")] = Format.CSV,
    output: Annotated[
        str | None,
        typer.Option(
            help="File to write; default: standard output. A folder for tensorboard; the address of a server or "
            "database for mlflow, default: MLFLOW_TRACKING_URI; a database URL or a journal file for optuna."
        ),
    ] = None,
    existing: Annotated[bool, typer.Option("--existing", help="Write the run's known results instead.")] = False,
    reports: Annotated[
        bool, typer.Option("--reports", help="Write one row for each reported step of a trial instead.")
    ] = False,
    safe: Annotated[
        bool, typer.Option(help="In CSV, put an apostrophe before texts that a spreadsheet would run as formulas.")
    ] = True,
) -> None:
    """Write one row for each trial; for tensorboard and mlflow one run, for optuna one trial of a
    study. A repeated export to any of these three adds only new trials."""
    run = runs.open_run(folder)
    if format_ in _PLACES:
        target = output or (os.environ.get("MLFLOW_TRACKING_URI") if format_ is Format.MLFLOW else None)
        if target is None:
            raise UserError(f"export to {format_} needs --output, for example {_PLACES[format_]}")
        history = read_history(run)
        if format_ is Format.MLFLOW:
            count = trackers.to_mlflow(history, run.name, target)
        elif format_ is Format.OPTUNA:
            count = to_optuna(history, run.name, target, Path.cwd())
        else:
            count = trackers.to_tensorboard(history, run.name, Path(target))
        say(SafeConsole(), f"exported {count} new trials to {target}")
        return
    if existing and reports:
        raise UserError("--existing and --reports cannot be combined: each writes a separate table")
    table: tables.Table = "reports" if reports else "existing" if existing else "trials"
    parts = tables.export(read_history(run), cast(tables.Format, format_.value), table, safe)
    if output is not None:
        write_file(Path(output), lambda path: files.write_parts(path, parts, is_private=False))
        return
    for part in parts:
        write_output(part)


def serve(
    place: Annotated[
        str,
        typer.Argument(metavar="RUNS", help="Folder of runs, a run (NAME is short for runs/NAME), or a database URL."),
    ] = "runs",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any.")] = 8270,
    host: Annotated[
        str, typer.Option(help="Address to listen on; with 0.0.0.0, other machines can connect, unencrypted.")
    ] = "127.0.0.1",
) -> None:
    """Show campaigns in a browser while they run. The printed address contains the token for the
    page."""
    from bbkb.orchestrator.report.serve import serve as run_server  # loads aiohttp

    place = place if "://" in place else str(find_run(Path(place)))
    run_server(place, host, port, functools.partial(say, SafeConsole()))
