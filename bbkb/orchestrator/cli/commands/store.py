"""`bbkb store`: the commands about a database that campaigns share."""

import contextlib
from typing import Annotated

import typer

from bbkb.orchestrator.credentials import stored
from bbkb.orchestrator.display.console import SafeConsole
from bbkb.orchestrator.display.terminal import say
from bbkb.orchestrator.store.store import EventStore

app = typer.Typer(help="A database that campaigns share.", no_args_is_help=True, add_completion=False)


@app.callback()
def store() -> None:
    """A database that campaigns share."""


@app.command()
def init(
    url: Annotated[str, typer.Argument(help="postgresql://…, or sqlite:///FILE; ${VAR} is read from the environment.")],
) -> None:
    """Create the tables.

    This needs a role that may create tables. Campaigns only need a role that may read and write
    rows.
    """
    with contextlib.closing(EventStore(url)) as tables:
        tables.make_tables()
    say(SafeConsole(), f"the tables are there: {stored(url)}")
