"""`bbkb store`: the commands about a database that campaigns share."""

import contextlib
import reprlib
from pathlib import Path
from typing import Annotated

import typer

from bbkb.orchestrator.credentials import redact
from bbkb.orchestrator.display.console import SafeConsole
from bbkb.orchestrator.display.terminal import say
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.settings import file as campaign_file
from bbkb.orchestrator.store.event_store import EventStore
from bbkb.orchestrator.store.trusted import trust as trust_store

app = typer.Typer(help="A database that campaigns share.", no_args_is_help=True, add_completion=False)


@app.callback()
def store() -> None:
    """A database that campaigns share."""


@app.command()
def init(
    url: Annotated[str, typer.Argument(help="postgresql://…, or sqlite:///FILE; ${VAR} is read from the environment.")],
) -> None:
    """Create the tables, or migrate those of an older version.

    This needs a role that may create tables. Campaigns only need a role that may read and write
    rows.
    """
    with contextlib.closing(EventStore(url)) as tables:
        tables.make_tables()
    trust_store(url)
    say(SafeConsole(), f"the tables are there: {redact(url)}")


@app.command()
def trust(
    place: Annotated[str, typer.Argument(metavar="RUN|URL", help="A run's folder, or the URL as it has it.")],
) -> None:
    """Allow commands that read runs to connect to a database, and to send the variables that its
    URL names.

    A database in which you have run a campaign yourself is allowed already.
    """
    url = place
    if "://" not in place:
        file = Path(place) / "campaign.yaml"
        url = str(campaign_file.read(file).tree.get("store"))
        if "://" not in url:
            raise UserError(
                f"{file} must name a database as its store, got {reprlib.repr(url)}: its log needs no permission"
            )
    trust_store(url)
    say(SafeConsole(), f"readers of runs may connect to {redact(url)}")
