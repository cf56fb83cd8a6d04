"""`bbkb replay`: a run's decisions, repeated on this machine."""

from typing import Annotated

import typer

from orchestrator.cli.arguments import RunFolder
from orchestrator.cli.replay_view import show_replay
from orchestrator.display.console import SafeConsole
from orchestrator.display.terminal import FAILED
from orchestrator.session.assemble import build
from orchestrator.session.replaying import replay_until
from orchestrator.settings.model import load
from orchestrator.store import runs


def replay(
    folder: RunFolder,
    until: Annotated[int | None, typer.Option("--until", help="Take the first N events only; else all.")] = None,
    check: Annotated[bool, typer.Option(help="Repeat every choice and refresh on this machine and compare.")] = True,
    top: Annotated[int, typer.Option(min=1, help="How many arms of the posterior to show.")] = 10,
) -> None:
    """Show the model and the reasons at any point of a run's log. Exit code 1: this machine decides differently."""
    old = runs.open_run(folder)
    problem = build(load(old.settings_file)).problem
    replayed = replay_until(problem, old.events(), until, check)
    show_replay(SafeConsole(), replayed, problem, top)
    if replayed.differences:
        raise typer.Exit(FAILED)
