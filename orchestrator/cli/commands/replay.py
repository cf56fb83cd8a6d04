"""`bbkb replay`: repeats a run's decisions on this machine."""

from typing import Annotated

import typer

from orchestrator.cli.arguments import RunFolder
from orchestrator.cli.replay_view import show_replay
from orchestrator.display.console import SafeConsole
from orchestrator.display.terminal import FAILED
from orchestrator.errors import UserError
from orchestrator.session.build import build
from orchestrator.session.replaying import replay_until
from orchestrator.settings.loading import load
from orchestrator.store import runs
from orchestrator.store.trusted import is_own


def replay(
    folder: RunFolder,
    until: Annotated[int | None, typer.Option("--until", help="Use only the first N events; default: all.")] = None,
    check: Annotated[bool, typer.Option(help="Repeat every choice and refresh on this machine and compare.")] = True,
    top: Annotated[int, typer.Option(min=1, help="The number of arms of the posterior to show.")] = 10,
    runs_code: Annotated[
        bool, typer.Option("--run-code", help="Import the code of another user's run, with your rights.")
    ] = False,
) -> None:
    """Show the model and the reasons at any point of a run's log. Exit code 1: this machine decides
    differently."""
    old = runs.open_run(folder)
    if not (runs_code or is_own(old.folder)):
        raise UserError(
            f"{old.folder} is another user's run, and a replay imports the code that its campaign file names: read "
            "it, and give --run-code"
        )
    problem = build(load(old.settings_file)).problem
    replayed = replay_until(problem, old.events(), until, check)
    show_replay(SafeConsole(), replayed, problem, top)
    if replayed.differences:
        raise typer.Exit(FAILED)
