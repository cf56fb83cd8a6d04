"""The command line of a benchmark: a mistake of the user is reported in one line, without a
traceback."""

import sys

import typer
from rich.console import Console
from rich.text import Text

from objectives.objective import ObjectiveError
from orchestrator.errors import BbkbError, UserError

FAILED, USERS_MISTAKE, INTERRUPTED = 1, 2, 130


def run(app: typer.Typer, name: str) -> None:
    """Run `app`, the command of `python -m name`, and exit with bbkb's exit codes."""
    try:
        app()
    except (BbkbError, ObjectiveError) as error:
        Console(stderr=True).print(Text.assemble((f"{name}: ", "bold red"), str(error)), soft_wrap=True)
        sys.exit(USERS_MISTAKE if isinstance(error, UserError | ObjectiveError) else FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
