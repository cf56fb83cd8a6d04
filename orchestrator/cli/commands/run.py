"""`bbkb run` and `bbkb resume`: the commands that run a session of a campaign."""

import functools
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from orchestrator.campaign.commands import Close, Stop
from orchestrator.campaign.events import Event, SessionOpened
from orchestrator.campaign.policy import decide
from orchestrator.campaign.state import CampaignState, apply
from orchestrator.cli.arguments import Address, CampaignFile, Overrides, RunFolder, Workers, overrides
from orchestrator.cli.launch import launch
from orchestrator.cli.summary import describe, save_report, say_existing, summarize
from orchestrator.cli.terminal import EXIT_CODES, say, short
from orchestrator.errors import RunError
from orchestrator.history.fold import fold
from orchestrator.session.assemble import Parts, build, existing
from orchestrator.settings.changes import differences, may_change
from orchestrator.settings.model import Settings, from_mapping, load
from orchestrator.store import runs
from orchestrator.store.lease import find_free


def run(file: CampaignFile, set_: Overrides = None, workers: Workers = None, address: Address = None) -> None:
    """Run a campaign file to its end."""
    console = Console()
    settings = load(file, overrides(set_, workers))
    parts = build(settings)
    optimum = parts.optimum(settings.objective.direction == "maximize")
    began = shlex.join(sys.argv)
    known = existing(settings, parts)
    new = runs.create(settings.resolved(), parts.problem.candidates, parts.description, optimum, began, known)
    say(console, f"{settings.name}: {describe(settings, parts)}")
    say_existing(console, known)
    say(console, f"run {short(new.folder)}")
    _session(console, new, settings, parts, address)


def resume(
    folder: RunFolder,
    config: Annotated[
        Path | None, typer.Option("--config", help="Campaign file to take budget, workers and computing from.")
    ] = None,
    set_: Overrides = None,
    workers: Workers = None,
    address: Address = None,
) -> None:
    """Continue a run: finished results are kept, evaluations that were running run again.

    Only budget, workers and computing may change.
    """
    console = Console()
    old = runs.open_run(folder)
    events = old.events()
    history = fold(events)
    settings = load(config or old.settings_file, overrides(set_, workers))
    _check_changes(console, old, history.settings, settings)
    with old.store() as store:  # now: not when the workers have been started, nor after its file was written anew
        find_free(store, old.name, functools.partial(say, console))
    ended = _ended(events, settings)
    if ended is not None:
        say(console, f"{short(old.folder)} is over: {ended}. To go on, raise its budget: --set budget.evaluations=…")
        return
    parts = build(settings)
    runs.write_settings(old, settings.resolved())
    say(console, f"resuming {short(old.folder)}: {history.finished_count} of {settings.budget.evaluations} done")
    _session(console, old, settings, parts, address)


def _session(console: Console, run_: runs.Run, settings: Settings, parts: Parts, address: str | None) -> None:
    """Run one session, report, summarise, and leave with the exit code of its outcome."""
    try:
        outcome, reason = launch(run_, settings, parts.problem.candidates.parameters, console, address)
    finally:
        save_report(run_, run_.report_file)
    summarize(console, run_, outcome, reason)
    raise typer.Exit(EXIT_CODES[outcome])


def _check_changes(console: Console, run_: runs.Run, old: Mapping[str, Any], settings: Settings) -> None:
    # keys that are newer than the run had their defaults then
    changes = differences(from_mapping(old).resolved(), settings.resolved())
    refused = [change for change in changes if not may_change(change.key)]
    if refused:
        keys = "\n".join(f"  {change.key}: {change.old!r} became {change.new!r}" for change in refused)
        raise RunError(
            f"a resume may change budget, workers and computing only, but of {short(run_.folder)} these differ:\n"
            f"{keys}\n"
            f"Restore them, or begin a new campaign with `bbkb run`"
        )
    for change in changes:
        say(console, f"{change.key}: {change.old} becomes {change.new}")


def _ended(events: Iterable[Event], settings: Settings) -> str | None:
    """Why a further session would have nothing to do; None when it has."""
    state = functools.reduce(apply, events, CampaignState())
    opened = SessionOpened(
        time=state.last_time, epoch=state.epoch, executor="", slots=settings.workers.count, settings=settings.resolved()
    )
    command = decide(apply(state, opened), now=state.last_time)
    return command.reason if isinstance(command, (Close, Stop)) else None
