"""`bbkb attach` and `bbkb stop`: commands for a run in another process."""

import functools
from typing import Annotated

import typer

from bbkb.orchestrator.cli.arguments import RunFolder
from bbkb.orchestrator.cli.summary import say_ending
from bbkb.orchestrator.report.terminal import EXIT_CODES, FAILED, SafeConsole, say, view
from bbkb.orchestrator.running.follow import check_held, last_ending, reason_not_to_follow
from bbkb.orchestrator.running.follow import follow as follow_run
from bbkb.orchestrator.store import runs


def attach(folder: RunFolder) -> None:
    """Watch a run in another process through its log. Ctrl-C leaves the run running."""
    console = SafeConsole()
    watched = runs.open_run(folder)
    with watched.store() as store:
        why = reason_not_to_follow(watched, store, functools.partial(say, console))
        if why is None:
            try:
                ending = follow_run(watched, store, view(console))
            except KeyboardInterrupt:
                say(console, f"the run continues; `{watched.command('stop')}` ends it")
                raise
        else:
            recorded = last_ending(watched, store)
            if recorded is None:
                say(console, why)
                raise typer.Exit(FAILED)
            ending = recorded
    say_ending(console, watched, ending)
    raise typer.Exit(EXIT_CODES.get(ending.outcome, FAILED))


def stop(
    folder: RunFolder,
    now: Annotated[
        bool,
        typer.Option("--now", help="Cancel running evaluations instead of waiting for them; a resume repeats them."),
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it has stopped.")] = True,
) -> None:
    """Drain the running evaluations of a run in another process, then stop it; `--now` cancels
    them."""
    console = SafeConsole()
    watched = runs.open_run(folder)
    with watched.store() as store:
        running = check_held(watched, store, functools.partial(say, console))
        store.ask_to_stop(watched.name, running.epoch, "now" if now else "drain")
        say(console, f"asked {running.holder} to stop{' at once' if now else ' after its running evaluations'}")
        if not wait:
            return
        try:
            ending = follow_run(watched, store, view(console), "now" if now else "drain")
        except KeyboardInterrupt:
            say(console, f"the request stays; `{watched.command('attach')}` shows its effect")
            raise
    say_ending(console, watched, ending)
    if not ending.outcome:
        raise typer.Exit(FAILED)
