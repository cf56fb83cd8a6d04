"""`bbkb verify` and `report`: commands that read the whole log of a run."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from bbkb.orchestrator.cli.arguments import RunFolder
from bbkb.orchestrator.cli.summary import save_report
from bbkb.orchestrator.display.console import SafeConsole
from bbkb.orchestrator.display.terminal import FAILED, say
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.store import runs
from bbkb.orchestrator.store.damage import lost_sessions, missing_settings
from bbkb.orchestrator.store.event_store import EventStore
from bbkb.orchestrator.store.verify import LogComparison, compare
from bbkb.orchestrator.store.verify import verify as verify_log


def verify(
    folder: RunFolder,
    against: Annotated[
        Path | None, typer.Option(help="A copy of the run's folder or of its SQLite file, to compare event by event.")
    ] = None,
) -> None:
    """Check a run's log: order, checksums, epochs and counts. Print the evaluations that a resume would
    repeat. Exit code 1: the log is damaged or differs from the copy."""
    console = SafeConsole()
    checked = runs.open_run(folder)
    with contextlib.closing(EventStore(checked.store_url, is_salvage=True)) as store:
        audit = verify_log(store, checked.name)
        if loss := lost_sessions(checked, store):
            audit.problems.append(loss)
        compared = None if against is None else _compare_with(store, checked.name, against)
    if warning := missing_settings(checked):
        say(console, f"warning: {warning}")
    for line in audit.lines():
        say(console, line)
    if compared is not None:
        say(console, str(compared))
    if audit.problems or (compared is not None and not compared.is_same):
        raise typer.Exit(FAILED)


def _compare_with(store: EventStore, name: str, against: Path) -> LogComparison:
    file = against / "campaign.sqlite" if against.is_dir() else against
    with contextlib.closing(EventStore(f"sqlite:///{file.resolve()}", is_salvage=True)) as copy:
        return compare(store, copy, name)


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
