"""`bbkb status`: the state of a run, or of one of its trials, from its log."""

import dataclasses
import json
import time
from typing import Annotated

import typer

from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import status_of, without_process
from bbkb.orchestrator.cli.arguments import RunFolder
from bbkb.orchestrator.display.console import SafeConsole
from bbkb.orchestrator.display.live import render
from bbkb.orchestrator.display.terminal import say
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.facts import as_plain
from bbkb.orchestrator.store import runs, snapshots
from bbkb.orchestrator.store.lease import Watch
from bbkb.orchestrator.store.store import Holding
from bbkb.orchestrator.wording import duration, is_wall_clock, plural, size_text
from bbkb.workers.checkpoints import checkpoints_in


def status(
    folder: RunFolder,
    trial: Annotated[int | None, typer.Option("--trial", min=0, help="Show all details of this trial.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the state of a run from its log, also while another process runs it. With --trial, show
    one trial."""
    run = runs.open_run(folder)
    if trial is not None:
        _show_trial(run, trial, as_json)
        return
    name, state, holding, has_ended = _read(run)
    # long evaluations may log no event for hours, but the heartbeat shows a live process
    is_held = bool(holding.holder) and is_wall_clock(state.clock.last_time)
    last_sign = max(state.clock.last_time, holding.last_beat) if is_held else state.clock.last_time
    now = status_of(name, state, last_sign)
    seen = f"last sign of life {duration(max(0.0, time.time() - last_sign))} ago"
    activity = f"{now.phase}, {seen}"
    # there is no later session
    if state.session.is_open and has_ended and state.session.epoch <= holding.epoch:
        activity = f"its process has ended, {seen}; continue with {run.resume_command}"
        now = without_process(now, activity)
    if as_json:
        print(json.dumps({**as_plain(now), "checkpoints": dataclasses.asdict(checkpoints_in(run.trials))}, indent=2))
        return
    console = SafeConsole()
    console.print(render(dataclasses.replace(now, activity=activity)))
    checkpoints = checkpoints_in(run.trials)
    if checkpoints.trials:
        folders = plural(checkpoints.trials, "trial")
        say(console, f"checkpoints   {size_text(checkpoints.size)} in the folders of {folders}")


def _read(run: runs.Run) -> tuple[str, CampaignState, Holding, bool]:
    """Return the campaign's name, its state, its holder, and whether the holder has ended."""
    with run.store() as store:
        # read the holder before the log: a session may close in between
        holding = store.holding(run.name)
        has_ended = Watch().is_held(holding) is False  # checked once: a remote one may be alive
        created, state = snapshots.current(run, store)
        return created.name, state, holding, has_ended


def _show_trial(run: runs.Run, number: int, as_json: bool) -> None:
    # imported here, because these imports take longer than the status of a run
    from bbkb.orchestrator.history.one_trial import describe_trial, result_text, trial_lines
    from bbkb.orchestrator.history.reading import read_history
    from bbkb.workers.output import written_attempts

    history = read_history(run)
    described = describe_trial(history, number)
    if described is None:
        raise UserError(f"--trial must be one of the {len(history.trials)} trials of {run.folder}, got {number}")
    printed = written_attempts(run.trials, number)
    if as_json:
        print(json.dumps({**described, "outputs": printed}, indent=2))
        return
    console = SafeConsole()
    say(console, f"trial {number}: {result_text(described)}")
    for line in trial_lines(described):
        say(console, line)
    if printed:
        attempts = ", ".join(map(str, printed))
        say(console, f"output of attempt {attempts}: {run.command('logs')} --trial {number}")
