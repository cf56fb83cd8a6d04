"""`bbkb status`, `verify` and `report`: the commands that read a run's log."""

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.campaign.status import as_plain, status_of, without_process
from orchestrator.cli.arguments import RunFolder
from orchestrator.cli.summary import save_report
from orchestrator.display.console import SafeConsole
from orchestrator.display.live import render
from orchestrator.display.terminal import FAILED, say
from orchestrator.errors import UserError
from orchestrator.history.one_trial import Plain, describe_trial
from orchestrator.history.reading import read_history
from orchestrator.store import runs, snapshots
from orchestrator.store.comparison import LogComparison, compare
from orchestrator.store.event_store import EventStore
from orchestrator.store.lease import Watch
from orchestrator.store.verify import verify as verify_log
from orchestrator.wording import duration, is_wall_clock, plural, size_text
from workers.checkpoints import checkpoints_in
from workers.output_files import written_attempts

# reports of a trial that are printed
_FIRST_REPORTS = 5
_LAST_REPORTS = 20


def verify(
    folder: RunFolder,
    against: Annotated[
        Path | None, typer.Option(help="A copy of the run's folder or of its SQLite file, to compare event by event.")
    ] = None,
) -> None:
    """Check a run's log: order, checksums, epochs, counts; print what a resume would run again.
    Exit code 1: it is damaged or differs from the copy."""
    console, checked = SafeConsole(), runs.open_run(folder)
    with contextlib.closing(EventStore(checked.store_url, is_salvage=True)) as store:
        findings = verify_log(store, checked.name)
        compared = None if against is None else _compare_with(store, checked.name, against)
    for line in findings.lines():
        say(console, line)
    if compared is not None:
        say(console, str(compared))
    if findings.problems or (compared is not None and not compared.is_same):
        raise typer.Exit(FAILED)


def _compare_with(store: EventStore, name: str, against: Path) -> LogComparison:
    file = against / "campaign.sqlite" if against.is_dir() else against
    with contextlib.closing(EventStore(f"sqlite:///{file.resolve()}", is_salvage=True)) as copy:
        return compare(store, copy, name)


def status(
    folder: RunFolder,
    trial: Annotated[int | None, typer.Option("--trial", min=0, help="Show everything about this trial.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the state of a run, from its log, also while it runs elsewhere; with --trial one of its
    trials."""
    run = runs.open_run(folder)
    if trial is not None:
        _show_trial(run, trial, as_json)
        return
    with run.store() as store:
        # the holder first: a session that closes in between has not ended without closing
        holding = store.holding(run.name)
        has_ended = Watch().is_held(holding) is False  # one look: a process elsewhere may live
        created, state = snapshots.current(run, store)
    # a campaign whose evaluations are long has no event for hours; the heartbeat shows that its
    # process lives
    is_held = bool(holding.holder) and is_wall_clock(state.clock.last_time)
    last_sign = max(state.clock.last_time, holding.last_beat) if is_held else state.clock.last_time
    now = status_of(created.name, state, last_sign)
    seen = f"last sign of life {duration(max(0.0, time.time() - last_sign))} ago"
    activity = f"{now.phase}, {seen}"
    if state.session.is_open and has_ended and state.session.epoch <= holding.epoch:  # no later session has begun
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


def _show_trial(run: runs.Run, number: int, as_json: bool) -> None:
    history = read_history(run)
    described = describe_trial(history, number)
    if described is None:
        raise UserError(f"--trial must be one of the {len(history.trials)} trials of {run.folder}, got {number}")
    printed = written_attempts(run.trials, number)
    if as_json:
        print(json.dumps({**described, "outputs": printed}, indent=2))
        return
    console = SafeConsole()
    for line in _lines_of(described):
        say(console, line)
    if printed:
        say(console, f"output of attempt {', '.join(map(str, printed))}: bbkb logs {run.folder} --trial {number}")


def _lines_of(trial: Plain) -> Iterator[str]:
    """Yield a trial as lines of text."""
    value = "" if trial["value"] is None else f", value {trial['value']:.6g}"
    yield f"trial {trial['trial']}: {trial['status']}{value}"
    yield trial["reason"]
    if trial["feasible"] is not None:
        yield trial["broken_constraints"] or "feasible: it satisfies all constraints"
    if trial["training"]:
        yield f"training: {trial['training']}"
    for title in ("parameters", "metrics"):
        if trial[title]:
            yield f"{title}:"
            yield from (f"  {name}: {value}" for name, value in trial[title].items())
    if trial["reports"]:
        yield "reports:"
        yield from _report_lines([_report_line(trial, step, value) for step, value in trial["reports"]])
    for attempt in trial["attempts"]:
        where = f"on {attempt['worker'] or 'an unknown worker'}, begun {attempt['started']}"
        yield f"attempt {attempt['attempt']}: {attempt['ended']} after {attempt['seconds']} {where}"
        yield from (f"  {line}" for line in attempt["message"].splitlines())
    if not trial["attempts"]:
        yield "no attempt has ended yet"
    yield from (f"note: {note}" for note in trial["notes"])


def _report_line(trial: Plain, step: int, value: object) -> str:
    """Return a report with its further numbers."""
    metrics = trial["report_metrics"].get(step, {})
    return f"  step {step}: {value}" + "".join(f", {name} {number}" for name, number in metrics.items())


def _report_lines(lines: list[str]) -> list[str]:
    """Return the first and last reports, with the number of those between."""
    if len(lines) <= _FIRST_REPORTS + _LAST_REPORTS + 1:
        return lines
    between = len(lines) - _FIRST_REPORTS - _LAST_REPORTS
    return [*lines[:_FIRST_REPORTS], f"  … {between:,} more", *lines[-_LAST_REPORTS:]]


def report(folder: RunFolder, output: Annotated[Path | None, typer.Option(help="Where to write it.")] = None) -> None:
    """Write a run's report: one HTML file that needs no network."""
    old = runs.open_run(folder)
    path = output or old.report_file
    if output is None and path.is_symlink():  # in another user's folder the link may lead to a file of this user
        raise UserError(f"{path} must not be a link, and leads to {path.readlink()}: name the file by --output")
    save_report(old, path)
    say(SafeConsole(), f"report {path.resolve()}")
