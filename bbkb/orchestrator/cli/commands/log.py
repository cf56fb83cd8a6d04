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
from bbkb.orchestrator.store.store import EventStore
from bbkb.orchestrator.store.verify import compare
from bbkb.orchestrator.store.verify import verify as verify_log


def verify(
    folder: RunFolder,
    against: Annotated[
        Path | None, typer.Option(help="A copy of the run's folder or of its SQLite file, to compare event by event.")
    ] = None,
) -> None:
    """Check a run's log: checksums, order and counts. Print the evaluations that a resume would repeat.
    Exit code 1: the log is damaged or differs from the copy."""
    console = SafeConsole()
    checked = runs.open_run(folder)
    with checked.store() as store:
        found = verify_log(store, checked.name)
        say(console, str(found))
        is_same = True
        if against is not None:
            file = against / "campaign.sqlite" if against.is_dir() else against
            with contextlib.closing(EventStore(file)) as copy:
                is_same, comparison = compare(store, copy, checked.name)
            say(console, comparison)
    if found.problems or not is_same:
        raise typer.Exit(FAILED)


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
