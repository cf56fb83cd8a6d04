"""`bbkb status`, `best` and `list`: the state and the results of runs, from their logs. They start
quickly, because they read without numpy."""

import dataclasses
import json
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from bbkb.objectives.parameters import as_given
from bbkb.orchestrator.campaign.events import Recommendation
from bbkb.orchestrator.campaign.state import Best, CampaignState
from bbkb.orchestrator.campaign.status import status_of, without_process
from bbkb.orchestrator.cli.arguments import RunFolder
from bbkb.orchestrator.errors import RunError, UserError, reason_of
from bbkb.orchestrator.history.facts import as_arguments, as_plain, trials_text
from bbkb.orchestrator.history.fold import Overview, read_overview
from bbkb.orchestrator.report.terminal import SafeConsole, render, say, write_output
from bbkb.orchestrator.store.lease import Watch
from bbkb.orchestrator.store.runs import Run, looks_like_run, open_run
from bbkb.orchestrator.store.snapshots import current
from bbkb.orchestrator.wording import duration, is_wall_clock, moment, one_line, plural, printable, size_text
from bbkb.workers.output import checkpoints_in


def status(
    folder: RunFolder,
    trial: Annotated[int | None, typer.Option("--trial", min=0, help="Show all details of this trial.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the state of a run from its log, also while another process runs it. With --trial, show
    one trial."""
    run = open_run(folder)
    if trial is not None:
        _show_trial(run, trial, as_json)
        return
    with run.store() as store:
        # read the holder before the log: a session may close in between
        holding = store.holding(run.name)
        has_ended = Watch().is_held(holding) is False  # checked once: a remote one may be alive
        state = current(run, store)
    # long evaluations may log no event for hours, but the heartbeat shows a live process
    is_held = bool(holding.holder) and is_wall_clock(state.clock.last_time)
    last_sign = max(state.clock.last_time, holding.last_beat) if is_held else state.clock.last_time
    now = status_of(state, last_sign)
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


def _show_trial(run: Run, number: int, as_json: bool) -> None:
    # imported here, because these imports take longer than the status of a run
    from bbkb.orchestrator.history.fold import read_history
    from bbkb.orchestrator.report.one_trial import describe_trial, result_text, trial_lines
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


class BestFormat(StrEnum):
    """The output formats of `bbkb best`."""

    YAML = "yaml"
    JSON = "json"
    ARGS = "args"


_LONGEST_CELL = 1000  # characters of a name or of all tags of a run
_TO_THE_MINUTE = len("2026-03-01 14:05")

RunsFolder = Annotated[Path, typer.Argument(help="A folder of runs.")]


def best(
    folder: RunFolder,
    format_: Annotated[
        BestFormat,
        typer.Option("--format", help="yaml, json, or args: --name value, quoted for a shell."),
    ] = BestFormat.YAML,
) -> None:
    """Print the best configuration of a run, for scripts: the one that the strategy recommends if
    values are noisy, else the one with the best value. Notes on standard error say if another one
    has the best single value, or if it comes from known results.

    With several objectives, print the front as a list, sorted by the first objective: the values of
    the objectives and the parameters of each configuration. With --format args, one line for each
    configuration.
    """
    run = open_run(folder)
    with run.store() as store:
        state = current(run, store)
    best = state.best_known
    taken = state.refresh.recommended or best
    if best is None or taken is None:
        raise RunError(f"{folder} has no best configuration: {state.missing_best}")
    objectives = state.settings.goals.objectives
    for note in _notes(run, state, best, taken):
        say(SafeConsole(stderr=True), note)
    front = state.results.front.ordered
    given = [
        as_given(state.settings.space, member.parameters) for member in ([taken] if len(objectives) == 1 else front)
    ]
    active = [{name: value for name, value in each.items() if value is not None} for each in given]
    names = [objective.metric for objective in objectives]
    plain = (
        active[0]
        if len(objectives) == 1
        else [
            {"objectives": dict(zip(names, member.values, strict=True)), "parameters": parameters}
            for member, parameters in zip(front, active, strict=True)
        ]
    )
    if format_ is BestFormat.ARGS:
        text = "\n".join(map(as_arguments, active))
    elif format_ is BestFormat.JSON:
        text = json.dumps(plain)
    else:
        copied = json.loads(json.dumps(plain))  # a value that occurs twice would become an alias
        text = yaml.safe_dump(copied, sort_keys=False, allow_unicode=True).rstrip()
    write_output(f"{text}\n".encode())


def _notes(run: Run, state: CampaignState, best: Best, taken: Best | Recommendation) -> Iterator[str]:
    """Return the value of the printed configuration `taken`, and how it relates to the `best`
    single value."""
    if taken is best and best.trial is None:
        yield f"the best value, {best.value:.6g}, comes from {best.origin}"
    objectives = state.settings.goals.objectives
    if len(objectives) == 1:
        text = f"{taken}, {objectives[0].direction}d"
        yield f"value {status_of(state).best.text if taken is best else text}"
    if taken is not best and best.parameters != taken.parameters:
        yield (
            f"the best single value, {best.value:.6g}, belongs to another configuration (see `bbkb status`), and may "
            "be due to noise. If equal configurations have equal values, set objective.deterministic: true"
        )


def list_(
    folder: RunsFolder = Path("runs"),
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Only runs with this tag; if repeated, with all of them.")
    ] = None,
) -> None:
    """List the runs in a folder: start, progress, best value and tags."""
    tags = set(tag or ())
    console = SafeConsole()
    overviews, unreadable = _read_runs(folder)
    listed = [(path, found) for path, found in overviews if tags <= set(found.tags)]
    for name, reason in unreadable.items():
        say(SafeConsole(stderr=True), f"{name} is unreadable: {reason}")
    if not listed and not unreadable:
        tagged = f" with the tag {', '.join(sorted(tags))}" if tags else ""
        say(console, f"{folder} has no runs{tagged}")
        return
    rows = [("run", "began (UTC)", "state", "trials", "best", "tags")]
    for path, found in listed:
        began = moment(found.began)[:_TO_THE_MINUTE]
        trials = trials_text(found.status)
        rows.append((path.name, began, found.state, trials, found.best, " ".join(found.tags)))
    rows += [(name, "", "unreadable", "", "", "") for name in unreadable]
    # each row is one line, however narrow the terminal is, so that `grep` finds whole rows
    cells = [[printable(one_line(cell, _LONGEST_CELL)) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    header, *lines = ("  ".join(map(set_cell_size, row, widths)).rstrip() for row in cells)
    console.print(Text("\n").join([Text(header, "bold"), *map(Text, lines)]), soft_wrap=True)


def _read_runs(folder: Path) -> tuple[list[tuple[Path, Overview]], dict[str, str]]:
    """Return the runs below `folder`, the oldest first, and the errors of others by name."""
    if not folder.is_dir():
        raise UserError(f"{folder} must be a folder of runs: folder not found")
    overviews = []
    unreadable = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir() and looks_like_run(path):
            try:
                run = open_run(path)
                with run.store() as store:
                    overviews.append((path, read_overview(run, store)))
            except Exception as error:  # one unreadable folder should not hide the others
                unreadable[path.name] = reason_of(error)
    return sorted(overviews, key=lambda entry: entry[1].began), unreadable
