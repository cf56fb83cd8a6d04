"""`bbkb export`: a run's trials as a table, or in an experiment tracker."""

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, cast

import typer

from bbkb.orchestrator import files
from bbkb.orchestrator.cli.arguments import RunFolder
from bbkb.orchestrator.display.console import SafeConsole
from bbkb.orchestrator.display.terminal import say, write_file, write_output
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.export import Format as TableFormat
from bbkb.orchestrator.history.export import Table
from bbkb.orchestrator.history.export import export as export_rows
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.reading import read_history
from bbkb.orchestrator.interop import trackers
from bbkb.orchestrator.interop.optuna_study import to_optuna
from bbkb.orchestrator.store import runs


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
        _track(read_history(run), run.name, format_, output)
        return
    if existing and reports:
        raise UserError("--existing and --reports cannot be combined: each writes a separate table")
    table: Table = "reports" if reports else "existing" if existing else "trials"
    parts = export_rows(read_history(run), cast(TableFormat, format_.value), table, safe)
    if output is not None:
        write_file(Path(output), lambda path: files.write_parts(path, parts, is_private=False))
        return
    for part in parts:
        write_output(part)


def _track(history: History, run: str, tracker: Format, output: str | None) -> None:
    target = output or (os.environ.get("MLFLOW_TRACKING_URI") if tracker is Format.MLFLOW else None)
    if target is None:
        raise UserError(f"export to {tracker} needs --output, for example {_PLACES[tracker]}")
    if tracker is Format.MLFLOW:
        count = trackers.to_mlflow(history, run, target)
    elif tracker is Format.OPTUNA:
        count = to_optuna(history, run, target, Path.cwd())
    else:
        count = trackers.to_tensorboard(history, run, Path(target))
    say(SafeConsole(), f"exported {count} new trials to {target}")
