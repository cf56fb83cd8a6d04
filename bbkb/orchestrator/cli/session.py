"""The sessions of `bbkb run` and `bbkb resume`: their preparation, report and summary."""

import contextlib
import functools
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from bbkb.orchestrator.campaign.policy import Close
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.cli.plan import describe, say_plan, say_remarks
from bbkb.orchestrator.cli.summary import save_report, summarize
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.fold import read_history
from bbkb.orchestrator.report.terminal import EXIT_CODES, say
from bbkb.orchestrator.running.launch import launch
from bbkb.orchestrator.running.ray_start import check_room, join
from bbkb.orchestrator.running.resume import prepare
from bbkb.orchestrator.session.build import Parts, build_new
from bbkb.orchestrator.session.open import create_run
from bbkb.orchestrator.settings.loading import naming_places
from bbkb.orchestrator.store import runs
from bbkb.workers.messages import FailureKind

if TYPE_CHECKING:  # it imports Ray
    from bbkb.orchestrator.running.coordinator.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The options that `bbkb run` and `bbkb resume` share.

    console: for progress and summary.
    address: the Ray cluster to join; None for a local one.
    serves: whether to serve the live page during the session.
    ray: the local Ray that is already starting, or the joined cluster; None if there is none yet.
    """

    console: Console
    address: str | None
    serves: bool
    ray: "Future[Cluster] | None" = None


def run_new(
    file: Path,
    settings: Settings,
    options: SessionOptions,
    assignments: Sequence[str],
    is_dry: bool,
) -> None:
    """Create a run and run its first session, or check everything and print the plan if `is_dry`.

    `assignments` are the options that override keys of the file, for messages.
    """
    console = options.console
    with naming_places(file, assignments):
        settings, parts, known = build_new(settings)
        if is_dry:
            runs.check_writable(settings)
        else:
            say_here = functools.partial(say, console)
            options = replace(options, ray=options.ray or join(settings, options.address, say_here))
        check_room(settings, parts.largest, options.address, or_here=True)
    if is_dry:
        say_plan(console, settings, parts, known, options.address)
        return
    new = create_run(settings, parts, known)
    say(console, f"{settings.name}: {describe(settings, parts)}")
    say_remarks(console, settings, parts, known)
    say(console, f"run {new.folder}")
    _run_session(new, settings, options, parts)


def run_again(
    old: runs.Run,
    settings: Settings,
    options: SessionOptions,
    retried: frozenset[FailureKind] = frozenset(),
    is_dry: bool = False,
) -> None:
    """Run the next session of a run, or only check its settings if `is_dry`. Exit if the run has no
    work left. Failures of the kinds `retried` are queued again."""
    prepared = prepare(old, settings, functools.partial(say, options.console), retried)
    if isinstance(prepared, Close):
        raise typer.Exit(EXIT_CODES[prepared.outcome])
    if is_dry:
        say(options.console, "dry run: nothing was written or started")
        return
    runs.make_folder(old.folder)
    _run_session(old, prepared[0], options, prepared[1])


def _run_session(run_: runs.Run, settings: Settings, options: SessionOptions, parts: Parts) -> None:
    """Run one session, write its report and summary, and exit with the code of its outcome."""
    console = options.console
    began = time.monotonic()
    try:
        page: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if options.serves:
            from bbkb.orchestrator.report.serve import serve_in_thread  # loads aiohttp

            page = serve_in_thread(str(run_.folder.parent), run_.name, functools.partial(say, console))
        with page:
            outcome, reason = launch(run_, settings, console, options.address, parts, options.ray)
    except BaseException:
        with contextlib.suppress(UserError):  # the first error is the important one
            save_report(run_, run_.report_file)
        raise
    problem = ""
    try:
        history = save_report(run_, run_.report_file)
    except UserError as error:
        history = read_history(run_)
        problem = f"warning: {error}"
    summarize(console, run_, history, outcome, reason, waited_seconds=time.monotonic() - began)
    if problem:
        say(console, problem)
    raise typer.Exit(EXIT_CODES[outcome])
