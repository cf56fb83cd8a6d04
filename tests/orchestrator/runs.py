"""Runs of quick campaigns, and commands, in this process."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from typer.testing import CliRunner
from typer.testing import Result as Done

from bbkb import Result, tune
from bbkb.objectives.parameters import Range
from bbkb.orchestrator.api.campaign import Space
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.history.fold import History, read_history
from bbkb.orchestrator.store.runs import open_run

LINE: Space = {"x": Range(0.0, 1.0)}


def tune_here(
    folder: Path,
    function: Callable[..., Any],
    space: Space = LINE,
    settings: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Result:
    """Run a campaign of uniform draws in this process; its run is below `folder`."""
    workers, strategy = {"executor": "inline"}, {"name": "uniform"}
    base = {"runs": str(folder), "workers": workers, "strategy": strategy}
    if "objectives" not in arguments:
        arguments.setdefault("direction", "maximize")
    return tune(function, space, progress=False, settings=base | dict(settings or {}), **arguments)


def history_of(result: Result) -> History:
    """Fold the event log of a result's run."""
    return read_history(open_run(result.folder))


def bbkb(*arguments: object, columns: int = 200) -> Done:
    """Run a command that must succeed. Raises the command's errors."""
    texts, wide = [str(argument) for argument in arguments], {"COLUMNS": str(columns)}
    done = CliRunner().invoke(app, texts, catch_exceptions=False, env=wide)
    assert done.exit_code == 0, done.output
    return done
