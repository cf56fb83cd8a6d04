"""The `bbkb` command. Exit codes: 0 finished, 2 a user's mistake, 1 the campaign failed, 130 interrupted."""

import contextlib
import dataclasses
import functools
import inspect
import json
import os
import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from objectives.objective import ObjectiveError
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.campaign.commands import Close, Stop
from orchestrator.campaign.events import Event, ExistingTaken, SessionOpened
from orchestrator.campaign.policy import decide
from orchestrator.campaign.state import CampaignState, apply
from orchestrator.campaign.status import idle_text, status_of
from orchestrator.cli.attach import Ending, check_held, follow, last_ending, unheld
from orchestrator.cli.launch import launch
from orchestrator.cli.live import render, shown, view
from orchestrator.cli.replay_view import show_replay
from orchestrator.errors import BbkbError, RunError, UserError
from orchestrator.history.export import export
from orchestrator.history.fold import fold
from orchestrator.report.page import write_report
from orchestrator.session.assemble import Parts, build, existing
from orchestrator.session.replaying import replay_until
from orchestrator.settings.changes import differences, may_change
from orchestrator.settings.model import Settings, from_mapping, load
from orchestrator.settings.schema import schema
from orchestrator.store import runs
from orchestrator.store.event_store import EventStore
from orchestrator.store.lease import find_free
from orchestrator.store.verify import verify
from orchestrator.version import __version__
from orchestrator.wording import duration

EXIT_CODES = {"finished": 0, "failed": 1, "interrupted": 130}
FAILED, USERS_MISTAKE, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="bbkb",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

CampaignFile = Annotated[Path, typer.Argument(help="Campaign file (YAML).", show_default=False)]
RunFolder = Annotated[Path, typer.Argument(help="A run's folder, as `bbkb run` made it.", show_default=False)]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key: strategy.ratio_threshold=3.")
]
Workers = Annotated[int | None, typer.Option("--workers", help="Evaluations at the same time: workers.count.")]
Address = Annotated[
    str | None, typer.Option("--address", help="Ray cluster to join; else RAY_ADDRESS; else a local one is started.")
]


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


class Format(StrEnum):
    """What `bbkb export` writes."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@app.command()
def run(file: CampaignFile, set_: Overrides = None, workers: Workers = None, address: Address = None) -> None:
    """Run a campaign file to its end."""
    console = Console()
    settings = load(file, _overrides(set_, workers))
    parts = build(settings)
    optimum = parts.optimum(settings.objective.direction == "maximize")
    began = shlex.join(sys.argv)
    known = existing(settings, parts)
    new = runs.create(settings.resolved(), parts.problem.candidates, parts.description, optimum, began, known)
    _say(console, f"{settings.name}: {_described(settings, parts)}")
    _say_existing(console, known)
    _say(console, f"run {_short(new.folder)}")
    _session(console, new, settings, parts, address)


@app.command()
def resume(
    folder: RunFolder,
    config: Annotated[
        Path | None, typer.Option("--config", help="Campaign file to take budget and workers from.")
    ] = None,
    set_: Overrides = None,
    workers: Workers = None,
    address: Address = None,
) -> None:
    """Go on with a run: finished results stay, what was running runs again.

    Only budget, workers and computing may change.
    """
    console = Console()
    old = runs.open_run(folder)
    events = old.events()
    history = fold(events)
    settings = load(config or old.settings_file, _overrides(set_, workers))
    _check_changes(console, old, history.settings, settings)
    with old.store() as store:  # now: not when the workers have been started, nor after its file was written anew
        find_free(store, old.name, functools.partial(_say, console))
    ended = _ended(events, settings)
    if ended is not None:
        _say(console, f"{_short(old.folder)} is over: {ended}. To go on, raise its budget: --set budget.evaluations=…")
        return
    parts = build(settings)
    runs.write_settings(old, settings.resolved())
    _say(console, f"resuming {_short(old.folder)}: {history.finished_count} of {settings.budget.evaluations} done")
    _session(console, old, settings, parts, address)


@app.command()
def attach(folder: RunFolder) -> None:
    """Watch a run that goes on in another process, from its log alone. Ctrl-C leaves it running."""
    console, watched = Console(), runs.open_run(folder)
    with watched.store() as store:
        why = unheld(watched, store, functools.partial(_say, console))
        if why is None:
            try:
                ending = follow(watched, store, functools.partial(view, console))
            except KeyboardInterrupt:
                _say(console, f"the run goes on; `bbkb stop {_short(watched.folder)}` ends it")
                raise
        else:
            over = last_ending(watched, store)
            if over is None:
                _say(console, why)
                raise typer.Exit(FAILED)
            ending = over
    _end(console, watched, ending)
    raise typer.Exit(EXIT_CODES.get(ending.outcome, FAILED))


@app.command()
def stop(
    folder: RunFolder,
    now: Annotated[bool, typer.Option("--now", help="Give running evaluations back instead of waiting.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it has stopped.")] = True,
) -> None:
    """Stop a run that goes on in another process: nothing more is begun, and it ends when what is running has ended."""
    console, watched = Console(), runs.open_run(folder)
    with watched.store() as store:
        held = check_held(watched, store, functools.partial(_say, console))
        store.ask_to_stop(watched.name, held.epoch, "now" if now else "drain")
        _say(console, f"asked {held.holder} to stop{' at once' if now else ' when what is running has ended'}")
        if not wait:
            return
        try:
            ending = follow(watched, store, functools.partial(view, console), "now" if now else "drain")
        except KeyboardInterrupt:
            _say(console, f"the request stays; `bbkb attach {_short(watched.folder)}` shows what becomes of it")
            raise
    _end(console, watched, ending)
    if not ending.outcome:
        raise typer.Exit(FAILED)


@app.command("verify")
def verify_command(folder: RunFolder) -> None:
    """Check a run's log: order, checksums, epochs, counts, and what a resume would run again. Exit code 1: damaged."""
    console, checked = Console(), runs.open_run(folder)
    with contextlib.closing(EventStore(checked.store_url, is_salvage=True)) as store:
        findings = verify(store, checked.name)
    for line in findings.lines():
        _say(console, line)
    if findings.problems:
        raise typer.Exit(FAILED)


@app.command()
def status(
    folder: RunFolder, as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False
) -> None:
    """Show where a run stands, from its log: also while it runs elsewhere."""
    events = runs.open_run(folder).events()
    history, state = fold(events), functools.reduce(apply, events, CampaignState())
    now = status_of(history.created.name, state)
    if as_json:
        print(json.dumps({**dataclasses.asdict(now), "log_time": state.last_time}, indent=2))
        return
    console = Console()
    parameters = {row.arm: row.parameters for row in history.trials}
    activity = f"{now.phase}, last sign of life {duration(max(0.0, time.time() - state.last_time))} ago"
    console.print(render(dataclasses.replace(now, activity=activity), lambda arm: parameters[arm]))


@app.command()
def replay(
    folder: RunFolder,
    until: Annotated[int | None, typer.Option("--until", help="Take the first N events only; else all.")] = None,
    check: Annotated[bool, typer.Option(help="Repeat every choice and refresh on this machine and compare.")] = True,
    top: Annotated[int, typer.Option(min=1, help="How many arms of the posterior to show.")] = 10,
) -> None:
    """Show the model and its reasons at any point of a run's log; exit 1 when this machine would decide otherwise."""
    old = runs.open_run(folder)
    problem = build(load(old.settings_file)).problem
    replayed = replay_until(problem, old.events(), until, check)
    show_replay(Console(), replayed, problem, top)
    if replayed.differences:
        raise typer.Exit(FAILED)


@app.command()
def report(folder: RunFolder, output: Annotated[Path | None, typer.Option(help="Where to write it.")] = None) -> None:
    """Write a run's report: one HTML file that needs no network."""
    old = runs.open_run(folder)
    path = output or old.report_file
    _write_report(old, path)
    _say(Console(), f"report {_short(path)}")


@app.command("export")
def export_command(
    folder: RunFolder,
    format_: Annotated[Format, typer.Option("--format", help="csv, json or parquet.")] = Format.CSV,
    output: Annotated[Path | None, typer.Option(help="File to write; else standard output.")] = None,
    known: Annotated[
        bool, typer.Option("--existing", help="Write the existing data that the run began with instead.")
    ] = False,
) -> None:
    """Write one row a trial."""
    rows = export(fold(runs.open_run(folder).events()), format_.value, known)
    if output is None:
        sys.stdout.buffer.write(rows)
        sys.stdout.buffer.flush()
    else:
        _writing(output, lambda path: path.write_bytes(rows))


@app.command()
def validate(file: CampaignFile, set_: Overrides = None, workers: Workers = None) -> None:
    """Check a campaign file, its data and its code without running anything."""
    console, settings = Console(), load(file, _overrides(set_, workers))
    parts = build(settings)
    known = existing(settings, parts)
    _say(console, f"{file} is valid: {_described(settings, parts)}")
    _say_existing(console, known)


@app.command("schema")
def schema_command() -> None:
    """Print the campaign file's JSON Schema, for editors."""
    print(json.dumps(schema(), indent=2))


@app.command("strategies")
def strategies_command() -> None:
    """List the strategies: name, source and options with their defaults."""
    console = Console()
    for name, strategy in STRATEGIES.items():
        source = (inspect.getdoc(sys.modules[strategy.__module__]) or "").split("\n\n")[0]
        console.print(Text.assemble((name, "bold"), "  ", " ".join(source.split())), soft_wrap=True)
        options = ", ".join(f"{field.name}={_default(field.default)}" for field in dataclasses.fields(strategy))
        console.print(Text(f"    {options or 'no options'}", "dim"), soft_wrap=True)


def _default(value: Any) -> str:
    """A default as it is written in a campaign file."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return str(value)
    options = dataclasses.asdict(value)  # a kernel or a warm start: its name first
    return "{" + ", ".join(f"{key}: {options[key]}" for key in sorted(options, key=lambda key: key != "name")) + "}"


def _overrides(set_: list[str] | None, workers: int | None) -> list[str]:
    return [*(set_ or ()), *([] if workers is None else [f"workers.count={workers}"])]


def _session(console: Console, run_: runs.Run, settings: Settings, parts: Parts, address: str | None) -> None:
    """Run one session, report, summarise, and leave with the exit code of its outcome."""
    try:
        outcome, reason = launch(run_, settings, parts.problem.candidates.parameters, console, address)
    finally:
        _write_report(run_, run_.report_file)
    _summarise(console, run_, outcome, reason)
    raise typer.Exit(EXIT_CODES[outcome])


def _end(console: Console, run_: runs.Run, ending: Ending) -> None:
    """How a session that was followed ended."""
    if ending.outcome:
        _summarise(console, run_, ending.outcome, ending.reason)
    else:
        _say(console, f"{ending.reason}. What had finished is in the log: bbkb resume {_short(run_.folder)}")


def _summarise(console: Console, run_: runs.Run, outcome: str, reason: str) -> None:
    history = fold(run_.events())
    best = history.best
    lines: list[tuple[str, str]] = [("outcome", f"{outcome}: {reason}")]
    if best is not None and best.value is not None:
        lines += [
            ("best value", f"{best.value:.6g} (trial {best.trial})"),
            ("best parameters", _named(best.parameters)),
        ]
    lines += [
        ("evaluations", f"{history.finished_count}, {history.failed_count} of them failed"),
        *([] if history.existing is None else [("existing data", str(history.existing))]),
        ("utilisation", f"{history.utilization:.0%} of the workers' time in {duration(history.elapsed_seconds)}"),
        *([("idle", idle)] if (idle := idle_text(history.idle_seconds)) else []),
        ("report", str(_short(run_.report_file))),
    ]
    if outcome != "finished":
        lines.append(("go on with", f"bbkb resume {_short(run_.folder)}"))
    for name, text in lines:
        console.print(Text.assemble((f"{name:<16}", "dim"), text), soft_wrap=True)


def _check_changes(console: Console, run_: runs.Run, old: Mapping[str, Any], settings: Settings) -> None:
    # keys that are newer than the run had their defaults then
    changes = differences(from_mapping(old).resolved(), settings.resolved())
    refused = [change for change in changes if not may_change(change.key)]
    if refused:
        keys = "\n".join(f"  {change.key}: {change.old!r} became {change.new!r}" for change in refused)
        raise RunError(
            f"a resume may change budget, workers and computing only, but of {_short(run_.folder)} these differ:\n"
            f"{keys}\n"
            f"Put them back, or begin a new campaign with `bbkb run`"
        )
    for change in changes:
        _say(console, f"{change.key}: {change.old} becomes {change.new}")


def _ended(events: Iterable[Event], settings: Settings) -> str | None:
    """Why a further session would have nothing to do; None when it has."""
    state = functools.reduce(apply, events, CampaignState())
    opened = SessionOpened(
        time=state.last_time, epoch=state.epoch, executor="", slots=settings.workers.count, settings=settings.resolved()
    )
    command = decide(apply(state, opened), now=state.last_time)
    return command.reason if isinstance(command, (Close, Stop)) else None


def _write_report(run_: runs.Run, path: Path) -> None:
    history = fold(run_.events())
    _writing(path, lambda target: write_report(history, target))


def _writing(path: Path, write: Any) -> None:
    try:
        write(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


def _described(settings: Settings, parts: Parts) -> str:
    arms, dimensions = parts.problem.candidates.features.shape
    return (
        f"{arms} candidates in {dimensions} dimensions, strategy {settings.resolved()['strategy']['name']}, "
        f"{settings.budget.evaluations} evaluations on {settings.workers.count} workers"
        + (f"; {parts.description}" if parts.description else "")
    )


def _say_existing(console: Console, known: ExistingTaken | None) -> None:
    if known is not None:
        _say(console, f"existing data: {known}")


def _named(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={shown(value)}" for name, value in parameters.items())


def _short(path: Path) -> Path:
    """The path as a person would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)


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
    Console(stderr=True).print(Text.assemble(("bbkb: ", "bold red"), str(error)), soft_wrap=True)
    sys.exit(code)
