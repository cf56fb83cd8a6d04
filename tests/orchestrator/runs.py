"""Runs of quick campaigns, and commands, in this process."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner
from typer.testing import Result as Done

from bbkb import Result, tune
from bbkb.objectives.parameters import Range
from bbkb.orchestrator.api.campaign import Space
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.engine.engine import Engine, Problem
from bbkb.orchestrator.history.fold import History, read_history
from bbkb.orchestrator.session.open import rebuild
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import open_run
from bbkb.orchestrator.store.store import EventStore

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


def check_rebuilt(problem: Problem, store: EventStore, campaign: str, every: int) -> Engine:
    """Check that a log is resumed equally from a snapshot after each `every` events, and from its events alone, after
    each of which the engine has been restored. Return that engine."""
    whole = problem.engine()
    writer = store.claim(campaign, "test")
    events = list(store.read(campaign))
    states: dict[int, CampaignState] = {}
    for position, event in enumerate(events, start=1):
        whole.restore(event)
        if position % every == 0 or position == len(events):
            states[position] = whole.state
    for position, state in states.items():
        snapshots.save(writer, position, state)
        assert snapshots.load(store, campaign)[0] == position
        rebuilt = rebuild(problem, store, campaign)
        assert (rebuilt.state, rebuilt.model, rebuilt.is_deterministic) == (
            whole.state, whole.model, whole.is_deterministic,
        )  # fmt: skip
        assert np.array_equal(rebuilt.pool.candidates.features, whole.pool.candidates.features)
    return whole


def history_of(result: Result) -> History:
    """Fold the event log of a result's run."""
    return read_history(open_run(result.folder))


def bbkb(*arguments: object, columns: int = 200) -> Done:
    """Run a command that must succeed. Raises the command's errors."""
    texts, wide = [str(argument) for argument in arguments], {"COLUMNS": str(columns)}
    done = CliRunner().invoke(app, texts, catch_exceptions=False, env=wide)
    assert done.exit_code == 0, done.output
    return done
