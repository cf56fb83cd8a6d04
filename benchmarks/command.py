"""The command line of a benchmark: common options, lists separated by commas, and mistakes of the
user, which are reported in one line without a traceback."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from bbkb.objectives.objective import ObjectiveError
from bbkb.orchestrator.errors import BbkbError, UserError

FAILED, USERS_MISTAKE, INTERRUPTED = 1, 2, 130
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Workers = Annotated[str, typer.Option(help="Numbers of simulated workers, separated by commas.")]
Seeds = Annotated[int, typer.Option(min=1, help="Repetitions.")]
FirstSeed = Annotated[
    int, typer.Option(min=0, help="Seed of the first repetition; each further one has the next seed.")
]
ReportOnly = Annotated[bool, typer.Option("--report", help="Run no search; print the tables of finished ones.")]
Out = Annotated[Path, typer.Option(help="Folder for finished searches and results.")]
Data = Annotated[Path | None, typer.Option(envvar="BBKB_DATA", help="Folder with the data sets.")]


def parts(text: str) -> tuple[str, ...]:
    """Return the different words of a list separated by commas."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def numbers(option: str, text: str) -> list[int]:
    """Return the positive whole numbers of a list separated by commas. Raises UserError."""
    words = parts(text)
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UserError(f"{option} must be whole numbers >= 1, separated by commas, got {text!r}")
    return list(map(int, words))


def app_of(main: Callable[..., None]) -> typer.Typer:
    """Return the application with `main` as its only command."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    return app


def run(main: Callable[..., None], name: str) -> None:
    """Run the command `python -m name`, and exit with bbkb's exit codes."""
    try:
        app_of(main)()
    except (BbkbError, ObjectiveError) as error:
        Console(stderr=True).print(Text.assemble((f"{name}: ", "bold red"), str(error)), soft_wrap=True)
        sys.exit(USERS_MISTAKE if isinstance(error, UserError | ObjectiveError) else FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
