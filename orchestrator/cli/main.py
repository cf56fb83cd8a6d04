"""The `bbkb` command. Exit codes: 0 finished, 2 a user's mistake, 1 the campaign failed, 130 interrupted."""

import os
import sys
from typing import Annotated

import typer
from rich.text import Text

from objectives.objective import ObjectiveError
from orchestrator.cli.commands import file, follow, init, launchers, log, note, results, run, serve, store
from orchestrator.cli.console import SafeConsole
from orchestrator.cli.terminal import FAILED, INTERRUPTED, USERS_MISTAKE
from orchestrator.errors import BbkbError, UserError
from orchestrator.version import __version__

app = typer.Typer(name="bbkb", no_args_is_help=True, pretty_exceptions_enable=False)

# in the order of `bbkb --help`; a function's name is its command's, and its docstring the help
for _command in (
    run.run,
    run.resume,
    follow.attach,
    follow.stop,
    serve.serve,
    log.verify,
    log.status,
    log.replay,
    log.report,
    log.export,
    results.best,
    results.compare,
    note.note,
    init.init,
    file.validate,
    file.schema,
    file.strategies,
):
    app.command()(_command)
app.command("list")(results.list_)  # `list` is a Python name
app.add_typer(launchers.app, name="launch")
app.add_typer(store.app, name="store")


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"bbkb {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Tune expensive things on a cluster: batched Gaussian-process bandits, every result in a database."""


def main() -> None:
    """Entry point: errors of ours as one line on standard error, no traceback."""
    sys.path.insert(0, os.getcwd())  # `package.module:Name` in a campaign file may name a module lying here
    try:
        app(prog_name="bbkb")
    except (UserError, ObjectiveError) as error:
        _complain(error, USERS_MISTAKE)
    except BbkbError as error:
        _complain(error, FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _complain(error: Exception, code: int) -> None:
    SafeConsole(stderr=True).print(Text.assemble(("bbkb: ", "bold red"), str(error)), soft_wrap=True)
    sys.exit(code)
