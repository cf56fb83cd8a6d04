"""`bbkb best` and `list`: the results of runs, for scripts and for a quick look."""

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from bbkb.orchestrator.campaign.events import Recommendation
from bbkb.orchestrator.campaign.state import Best, CampaignState
from bbkb.orchestrator.campaign.status import status_of
from bbkb.orchestrator.cli.arguments import RunFolder
from bbkb.orchestrator.display.console import SafeConsole
from bbkb.orchestrator.display.terminal import say, write_output
from bbkb.orchestrator.errors import RunError, UserError, reason_of
from bbkb.orchestrator.history.facts import as_arguments, trials_text
from bbkb.orchestrator.history.overview import Overview, read_overview
from bbkb.orchestrator.store.runs import Run, looks_like_run, open_run
from bbkb.orchestrator.store.snapshots import current
from bbkb.orchestrator.wording import moment, one_line, printable


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
        _, state = current(run, store)
    best = state.best_known
    taken = state.refresh.recommended or best
    if best is None or taken is None:
        raise RunError(f"{folder} has no best configuration: {state.missing_best}")
    is_single = len(state.settings.goals.objectives) == 1
    for note in _notes(run, state, best, taken):
        say(SafeConsole(stderr=True), note)
    text = _format(taken.parameters, format_) if is_single else _front_text(state, format_)
    write_output(f"{text}\n".encode())


def _notes(run: Run, state: CampaignState, best: Best, taken: Best | Recommendation) -> Iterator[str]:
    """Return the value of the printed configuration `taken`, and how it relates to the `best`
    single value."""
    if taken is best and best.trial is None:
        yield f"the best value, {best.value:.6g}, comes from {best.origin}"
    objectives = state.settings.goals.objectives
    if len(objectives) == 1:
        text = f"{taken}, {objectives[0].direction}d"
        yield f"value {status_of(run.name, state).best.text if taken is best else text}"
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
    console.print(_aligned(rows), soft_wrap=True)


def _aligned(rows: Sequence[Sequence[str]]) -> Text:
    """Return a table as text. Each row is one line, however narrow the terminal is, so that `grep`
    finds whole rows. The first row is the header."""
    cells = [[printable(one_line(cell, _LONGEST_CELL)) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    header, *lines = ("  ".join(map(set_cell_size, row, widths)).rstrip() for row in cells)
    return Text("\n").join([Text(header, "bold"), *map(Text, lines)])


def _active(parameters: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in parameters.items() if value is not None}


def _format(parameters: Mapping[str, object], format_: BestFormat) -> str:
    active = _active(parameters)
    if format_ is BestFormat.ARGS:
        return as_arguments(active)
    return _dump(active, format_)


def _dump(plain: object, format_: BestFormat) -> str:
    if format_ is BestFormat.JSON:
        return json.dumps(plain)
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip()


def _front_text(state: CampaignState, format_: BestFormat) -> str:
    if format_ is BestFormat.ARGS:
        return "\n".join(_format(member.parameters, format_) for member in state.results.front.ordered)
    names = [objective.metric for objective in state.settings.goals.objectives]
    front = [
        {"objectives": dict(zip(names, member.values, strict=True)), "parameters": _active(member.parameters)}
        for member in state.results.front.ordered
    ]
    return _dump(front, format_)


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
