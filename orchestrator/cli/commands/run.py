"""`bbkb run` and `bbkb resume`: the commands that run a session of a campaign."""

import contextlib
import functools
import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.campaign.commands import Close
from orchestrator.cli.arguments import (
    Address,
    CampaignFile,
    JsonLines,
    LogLevelOption,
    OrResume,
    Overrides,
    Quiet,
    RunFolder,
    RunName,
    Serve,
    Tags,
    Workers,
    overrides,
)
from orchestrator.cli.plan import describe, say_existing, say_plan, say_warnings
from orchestrator.cli.summary import save_report, summarize
from orchestrator.display.console import console_for
from orchestrator.display.terminal import EXIT_CODES, say
from orchestrator.errors import UserError
from orchestrator.running.coordinator.fitting import check_room
from orchestrator.running.launch import launch
from orchestrator.running.resume import check_address, find_begun, prepare
from orchestrator.session.build import Parts, build_new, existing
from orchestrator.session.earlier import with_earlier
from orchestrator.session.open import create_run
from orchestrator.settings.loading import from_mapping, load, naming_places
from orchestrator.settings.model import Settings
from orchestrator.store import runs
from orchestrator.store.damage import missing_settings
from orchestrator.store.notes import check_tags, new_note
from workers.messages import FailureKind


def run(
    file: CampaignFile,
    set_: Overrides = None,
    workers: Workers = None,
    address: Address = None,
    name: RunName = None,
    or_resume: OrResume = False,
    log_level: LogLevelOption = None,
    serve: Serve = False,
    quiet: Quiet = False,
    as_json: JsonLines = False,
    tag: Tags = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print what would be run, and write nothing.")
    ] = False,
) -> None:
    """Run a campaign file to its end.

    With --run and --or-resume, the same command line starts a run and resumes it later.
    """
    console = console_for(quiet, as_json)
    named = [] if name is None else [f"run={json.dumps(name)}"]
    settings = load(file, [*overrides(set_, workers, log_level), *named])
    tags = check_tags(tag or ())
    check_address(settings, address)
    begun = find_begun(settings, or_resume)
    if begun is not None:
        settings, built = _resumable(console, begun, settings)
        if dry_run:
            say(console, "dry run: nothing was written and nothing runs")
            return
        runs.make_folder(begun)
        _session(console, begun, settings, address, serve=serve, parts=built)
        return
    with naming_places(file, overrides(set_, workers)):
        settings = with_earlier(settings)
        parts = build_new(settings)
        existing_results = existing(settings, parts)
        if dry_run:
            runs.check_writable(settings)
            check_room(settings, parts.problem.resources, address, or_here=True)
    if dry_run:
        say_plan(console, settings, parts, existing_results, address)
        return
    new = create_run(settings, parts, existing_results)
    say(console, f"{settings.name}: {describe(settings, parts)}")
    say_warnings(console, settings, parts)
    say_existing(console, settings, existing_results)
    say(console, f"run {new.folder}")
    if tags:
        with new.store() as store:
            store.add_note(new.name, new_note(tags=tags))
    _session(console, new, settings, address, serve=serve, parts=parts)


def resume(
    folder: RunFolder,
    config: Annotated[
        Path | None, typer.Option("--config", help="Campaign file to take budget, workers and computing from.")
    ] = None,
    set_: Overrides = None,
    workers: Workers = None,
    address: Address = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Evaluate trials that failed again.")] = False,
    kind: Annotated[
        list[FailureKind] | None, typer.Option(help="With --retry-failed: only failures of this kind; repeatable.")
    ] = None,
    log_level: LogLevelOption = None,
    serve: Serve = False,
    quiet: Quiet = False,
    as_json: JsonLines = False,
) -> None:
    """Continue a run: finished results are kept, evaluations that were running run again.

    Only budget, workers, computing and log may change.
    """
    old = runs.open_run(folder, runs_it=True)
    changed = overrides(set_, workers, log_level)
    warning = "" if config else missing_settings(old)
    if warning:
        with old.store() as store:
            settings = from_mapping(old.recorded_settings(store), changed)
    else:
        settings = load(config or old.settings_file, changed)
    check_address(settings, address)
    if kind and not retry_failed:
        raise UserError(f"--kind needs --retry-failed, got --kind {kind[0].value!r} alone: add --retry-failed")
    retried = frozenset(kind or FailureKind) if retry_failed else frozenset()
    console = console_for(quiet, as_json)
    if warning:
        say(console, f"warning: {warning}")
    settings, parts = _resumable(console, old, settings, retried)
    _session(console, old, settings, address, serve=serve, parts=parts)


def _resumable(
    console: Console, old: runs.Run, settings: Settings, retried: frozenset[FailureKind] = frozenset()
) -> tuple[Settings, Parts]:
    """Return the checked settings for a resume of `old`, and the parts that are built from them.

    Failures of the kinds `retried` are queued again. Exits if the run has nothing left to do.
    """
    prepared = prepare(old, settings, functools.partial(say, console), retried)
    if isinstance(prepared, Close):
        raise typer.Exit(EXIT_CODES[prepared.outcome])
    return prepared


def _session(
    console: Console, run_: runs.Run, settings: Settings, address: str | None, serve: bool, parts: Parts
) -> None:
    """Run one session, write report and summary, and exit with the code of its outcome."""
    began = time.monotonic()
    try:
        with _serve_page(console, run_) if serve else contextlib.nullcontext():
            outcome, reason = launch(run_, settings, console, address, parts)
    except BaseException:
        with contextlib.suppress(UserError):  # the first error is the one to report
            save_report(run_, run_.report_file)
        raise
    history = save_report(run_, run_.report_file)
    summarize(console, run_, history, outcome, reason, waited_seconds=time.monotonic() - began)
    raise typer.Exit(EXIT_CODES[outcome])


def _serve_page(console: Console, run_: runs.Run) -> contextlib.AbstractContextManager[None]:
    from orchestrator.serve.running import serve_in_thread  # loads aiohttp

    return serve_in_thread(str(run_.folder.parent), run_.name, functools.partial(say, console))
