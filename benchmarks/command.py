"""The command line of a benchmark: a mistake of the user is reported in one line, without a traceback."""

import sys
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from objectives.objective import ObjectiveError
from orchestrator.errors import BbkbError, UserError

FAILED, USERS_MISTAKE, INTERRUPTED = 1, 2, 130
_BESIDE = Path(__file__).parents[2] / "shared" / "data"


def data_folder(named: Path | None) -> Path | None:
    """The folder with the data sets: `named`, else the one beside the repository; None when there is neither."""
    return named or (_BESIDE if _BESIDE.is_dir() else None)


def run(app: typer.Typer, name: str) -> None:
    """Run `app`, the command of `python -m name`, and exit with bbkb's exit codes."""
    try:
        app()
    except (BbkbError, ObjectiveError) as error:
        Console(stderr=True).print(Text.assemble((f"{name}: ", "bold red"), str(error)), soft_wrap=True)
        sys.exit(USERS_MISTAKE if isinstance(error, UserError | ObjectiveError) else FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
