"""The `bbkb` command.

Exit codes: 0 finished, 1 the campaign failed, 2 a mistake of the user, 130 interrupted.
"""

import gc
import importlib
import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from bbkb.objectives.errors import ObjectiveError
from bbkb.orchestrator import __version__
from bbkb.orchestrator.errors import BbkbError, UserError
from bbkb.orchestrator.report.terminal import FAILED, USERS_MISTAKE, SafeConsole

# In the order of `bbkb --help`: name, then module and function in `bbkb.orchestrator.cli.commands`, then
# the function's summary, so that help and completion import no command.
_COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("run:run", "Run a campaign file to its end."),
    "resume": ("run:resume", "Continue a run: finished results are kept, interrupted evaluations are repeated."),
    "attach": ("follow:attach", "Watch a run in another process through its log. Ctrl-C leaves the run running."),
    "stop": (
        "follow:stop",
        "Drain the running evaluations of a run in another process, then stop it; `--now` cancels them.",
    ),
    "serve": (
        "report:serve",
        "Show campaigns in a browser while they run. The printed address contains the token for the page.",
    ),
    "verify": (
        "log:verify",
        "Check a run's log: checksums, order and counts. Print the evaluations that a resume would "
        "repeat. Exit code 1: the log is damaged or differs from the copy.",
    ),
    "logs": (
        "log:logs_",
        "Print the output of a trial, standard error included, from trials/000026/output-1.txt. Without --trial, "
        "print the program's own log.",
    ),
    "status": (
        "results:status",
        "Show the state of a run from its log, also while another process runs it. With --trial, show one trial.",
    ),
    "replay": (
        "replay:replay",
        "Show the model and the reasons at any point of a run's log. Exit code 1: this machine decides differently.",
    ),
    "report": ("report:report", "Write a run's report: one HTML file that needs no network."),
    "export": (
        "report:export",
        "Write one row for each trial; for tensorboard and mlflow one run, for optuna one trial of a study. A "
        "repeated export to any of these three adds only new trials.",
    ),
    "best": (
        "results:best",
        "Print the best configuration of a run, for scripts: the one that the strategy recommends "
        "if values are noisy, else the one with the best value. Notes on standard error say if another one has the "
        "best single value, or if it comes from known results.",
    ),
    "list": ("results:list_", "List the runs in a folder: start, progress, best value and tags."),
    "compare": (
        "report:compare",
        "Compare runs: strategy, evaluations, best value and its origin, the recommended configuration if values "
        "are noisy, time and utilization.",
    ),
    "init": ("init:init", "Write a commented campaign file to start from, and an example objective beside it."),
    "validate": ("file:validate", "Check a campaign file, its data and its code without running anything."),
    "schema": ("file:schema", "Print the campaign file's JSON Schema, for editors."),
    "strategies": (
        "file:strategies",
        "List the strategies, one on each line; or explain the options of one.",
    ),
    "launch": ("launchers:app", "Write the script or manifest that starts a campaign on a cluster, and submit it."),
    "store": ("log:app", "A database that campaigns share."),
}


class LazyGroup(TyperGroup):
    """A group that imports a command only to run it. Typer knows only names and summaries."""

    # Any, because Typer uses its own copy of click or click itself, depending on its version
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name, the command and the remaining arguments."""
        name, command, arguments = super().resolve_command(ctx, args)
        return name, command if name is None else load(name), arguments


def load(name: str) -> Any:
    """Import and return the command with this name, or its group of commands."""
    module, _, function = _COMMANDS[name][0].partition(":")
    # imports create objects that stay; searching them for garbage takes a tenth of the time
    gc.disable()
    command = getattr(importlib.import_module(f"bbkb.orchestrator.cli.commands.{module}"), function)
    gc.enable()
    if isinstance(command, typer.Typer):
        return typer.main.get_command(command)
    single = typer.Typer(add_completion=False)
    single.command(name)(command)
    return typer.main.get_command(single)


app = typer.Typer(name="bbkb", cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False)


def _stand_in() -> None:
    """The placeholder of every command until `LazyGroup` loads it."""


for _name, (_, _summary) in _COMMANDS.items():
    app.command(_name, help=_summary)(_stand_in)


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
    """Tune expensive functions on a cluster: batched Gaussian-process bandits, every result in a
    database."""


def main() -> None:
    """Run the command line. Errors of this project are one line on standard error."""
    sys.path.insert(0, os.getcwd())  # for `package.module:Name` in a campaign file
    try:
        app(prog_name="bbkb")
    except (UserError, ObjectiveError) as error:
        _complain(error, USERS_MISTAKE)
    except BbkbError as error:
        _complain(error, FAILED)


def _complain(error: Exception, code: int) -> None:
    SafeConsole(stderr=True).print(Text.assemble(("bbkb: ", "bold red"), str(error)), soft_wrap=True)
    sys.exit(code)
