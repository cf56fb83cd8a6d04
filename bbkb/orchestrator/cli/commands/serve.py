"""`bbkb serve`: the live page of all campaigns of a folder or database."""

import functools
from pathlib import Path
from typing import Annotated

import typer

from bbkb.orchestrator.cli.arguments import find_run
from bbkb.orchestrator.display.console import SafeConsole
from bbkb.orchestrator.display.terminal import say


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
    from bbkb.orchestrator.serve.app import serve as run_server  # loads aiohttp

    place = place if "://" in place else str(find_run(Path(place)))
    run_server(place, host, port, functools.partial(say, SafeConsole()))
