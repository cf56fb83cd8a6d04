"""`bbkb status`, `verify`, `replay`, `report` and `export`: the commands that read a run's log."""

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator import files
from orchestrator.campaign.status import as_plain, status_of
from orchestrator.cli.arguments import RunFolder
from orchestrator.cli.console import SafeConsole
from orchestrator.cli.live import render
from orchestrator.cli.replay_view import show_replay
from orchestrator.cli.summary import save_report
from orchestrator.cli.terminal import FAILED, say, write_file, write_output
from orchestrator.errors import UserError
from orchestrator.history import trackers
from orchestrator.history.export import Format as TableFormat
from orchestrator.history.export import export as export_rows
from orchestrator.history.fold import History
from orchestrator.history.optuna_study import to_optuna
from orchestrator.history.reading import read_history
from orchestrator.session.assemble import build
from orchestrator.session.replaying import replay_until
from orchestrator.settings.model import load
from orchestrator.store import runs, snapshots
from orchestrator.store.comparison import Comparison, compare
from orchestrator.store.event_store import EventStore
from orchestrator.store.store import Store
from orchestrator.store.verify import verify as verify_log
from orchestrator.wording import duration


class Format(StrEnum):
    """What `bbkb export` writes."""

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
_TABLES: Mapping[Format, TableFormat] = {Format.CSV: "csv", Format.JSON: "json", Format.PARQUET: "parquet"}


def verify(
    folder: RunFolder,
    against: Annotated[
        Path | None, typer.Option(help="A copy of the run's folder or of its SQLite file, to compare event by event.")
    ] = None,
) -> None:
    """Check a run's log: order, checksums, epochs, counts, and what a resume would run again. Exit code 1: damaged, or
    other than the copy."""
    console, checked = SafeConsole(), runs.open_run(folder)
    with contextlib.closing(EventStore(checked.store_url, is_salvage=True)) as store:
        findings = verify_log(store, checked.name)
        compared = None if against is None else _compare_with(store, checked.name, against)
    for line in findings.lines():
        say(console, line)
    if compared is not None:
        say(console, str(compared))
    if findings.problems or (compared is not None and not compared.is_same):
        raise typer.Exit(FAILED)


def _compare_with(store: Store, name: str, against: Path) -> Comparison:
    file = against / "campaign.sqlite" if against.is_dir() else against
    with contextlib.closing(EventStore(f"sqlite:///{file.resolve()}", is_salvage=True)) as copy:
        return compare(store, copy, name)


def status(
    folder: RunFolder, as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False
) -> None:
    """Show where a run stands, from its log: also while it runs elsewhere."""
    run = runs.open_run(folder)
    with run.store() as store:
        created, state = snapshots.current(run, store)
    now = status_of(created.name, state)
    if as_json:
        print(json.dumps(as_plain(now), indent=2))
        return
    activity = f"{now.phase}, last sign of life {duration(max(0.0, time.time() - state.last_time))} ago"
    SafeConsole().print(render(dataclasses.replace(now, activity=activity)))


def replay(
    folder: RunFolder,
    until: Annotated[int | None, typer.Option("--until", help="Take the first N events only; else all.")] = None,
    check: Annotated[bool, typer.Option(help="Repeat every choice and refresh on this machine and compare.")] = True,
    top: Annotated[int, typer.Option(min=1, help="How many arms of the posterior to show.")] = 10,
) -> None:
    """Show the model and its reasons at any point of a run's log; exit code 1: this machine would decide otherwise."""
    old = runs.open_run(folder)
    problem = build(load(old.settings_file)).problem
    replayed = replay_until(problem, old.events(), until, check)
    show_replay(SafeConsole(), replayed, problem, top)
    if replayed.differences:
        raise typer.Exit(FAILED)


def report(folder: RunFolder, output: Annotated[Path | None, typer.Option(help="Where to write it.")] = None) -> None:
    """Write a run's report: one HTML file that needs no network."""
    old = runs.open_run(folder)
    path = output or old.report_file
    save_report(old, path)
    say(SafeConsole(), f"report {path.resolve()}")


def export(
    folder: RunFolder,
    format_: Annotated[Format, typer.Option("--format", help="A table, or an experiment tracker.")] = Format.CSV,
    output: Annotated[
        str | None,
        typer.Option(
            help="File to write, else standard output; a folder for tensorboard; for mlflow the address of a server or "
            "database, else MLFLOW_TRACKING_URI; for optuna a database URL or a journal file."
        ),
    ] = None,
    known: Annotated[
        bool, typer.Option("--existing", help="Write the existing data that the run began with instead.")
    ] = False,
    safe: Annotated[
        bool, typer.Option(help="In CSV, put an apostrophe before texts that a spreadsheet would run as formulas.")
    ] = True,
) -> None:
    """Write one row a trial; to tensorboard and mlflow one run a trial, to optuna one trial of a study. There a
    repeated export adds what is new."""
    run = runs.open_run(folder)
    history = read_history(run)
    if format_ not in _TABLES:
        _track(history, run.name, format_, output)
        return
    rows = export_rows(history, _TABLES[format_], known, safe)
    if output is None:
        write_output(rows)
    else:
        write_file(Path(output), lambda path: files.write_bytes(path, rows, is_private=False))


def _track(history: History, run: str, tracker: Format, output: str | None) -> None:
    where = output or (os.environ.get("MLFLOW_TRACKING_URI") if tracker is Format.MLFLOW else None)
    if where is None:
        example = _PLACES[tracker]
        raise UserError(f"export to {tracker} must know where to: --output must be given, for example {example}")
    if tracker is Format.MLFLOW:
        count = trackers.to_mlflow(history, run, where)
    elif tracker is Format.OPTUNA:
        count = to_optuna(history, run, where, Path.cwd())
    else:
        count = trackers.to_tensorboard(history, run, Path(where))
    say(SafeConsole(), f"exported {count} new trials to {where}")
