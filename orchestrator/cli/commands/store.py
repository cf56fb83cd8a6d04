"""`bbkb store`: the commands about a database that campaigns share."""

import contextlib
from typing import Annotated

import typer

from orchestrator.credentials import redact
from orchestrator.display.console import SafeConsole
from orchestrator.display.terminal import say
from orchestrator.store.event_store import EventStore

app = typer.Typer(help="A database that campaigns share.", no_args_is_help=True, add_completion=False)


@app.callback()
def store() -> None:
    """A database that campaigns share."""


@app.command()
def init(
    url: Annotated[
        str, typer.Argument(help="postgresql://…, or sqlite:///FILE; ${VAR} is taken from the environment.")
    ],
) -> None:
    """Create the tables, or migrate those of an older version.

    This needs a role that may create tables. Campaigns need one that may read and write their rows only.
    """
    with contextlib.closing(EventStore(url)) as tables:
        tables.make_tables()
    say(SafeConsole(), f"the tables are there: {redact(url)}")
