"""`bbkb run` and `bbkb resume`: the commands that run a session of a campaign."""

from pathlib import Path
from typing import Annotated

import typer

from bbkb.objectives.errors import did_you_mean
from bbkb.orchestrator.cli import arguments
from bbkb.orchestrator.cli.arguments import overrides
from bbkb.orchestrator.errors import RunError, UserError
from bbkb.orchestrator.report.terminal import console_for
from bbkb.orchestrator.running.ray_start import check_address, start_ray
from bbkb.orchestrator.settings.loading import load
from bbkb.orchestrator.store import runs
from bbkb.workers.messages import FailureKind

_KINDS = [kind for kind in FailureKind if kind is not FailureKind.CANCELLED]  # those that a trial ends with


def run(
    file: arguments.CampaignFile,
    set_: arguments.Overrides = None,
    workers: arguments.Workers = None,
    address: arguments.Address = None,
    name: arguments.RunName = None,
    or_resume: arguments.OrResume = False,
    serve: arguments.Serve = False,
    quiet: arguments.Quiet = False,
    as_json: arguments.JsonLines = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the plan, and write nothing.")
    ] = False,
) -> None:
    """Run a campaign file to its end.

    With --run and --or-resume, the same command line starts a run and resumes it later.
    """
    console = console_for(quiet, as_json)
    assignments = overrides(set_, workers)
    settings = load(file, overrides(set_, workers, name))
    check_address(settings, address)
    if or_resume and settings.run is None:
        raise UserError(
            "--or-resume must know which run to resume, got no name: add --run NAME, or `run: NAME` to the file"
        )
    begun = runs.find(settings)
    if begun is not None and not or_resume:
        raise RunError(
            f"--run (or `run:`) must name a new run, got {settings.run}, which exists in {begun.folder}: add "
            "--or-resume to continue it, or give another name"
        )
    ray = None if dry_run else start_ray(settings, address)
    # Ray is starting while this module is imported
    from bbkb.orchestrator.cli.session import SessionOptions, run_again, run_new

    options = SessionOptions(console=console, address=address, serves=serve, ray=ray)
    if begun is None:
        run_new(file, settings, options, assignments, is_dry=dry_run)
    else:
        run_again(begun, settings, options, is_dry=dry_run)


def resume(
    folder: arguments.RunFolder,
    config: Annotated[Path | None, typer.Option("--config", help="Campaign file with new budget and workers.")] = None,
    set_: arguments.Overrides = None,
    workers: arguments.Workers = None,
    address: arguments.Address = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Evaluate trials that failed again.")] = False,
    kind: Annotated[
        list[str] | None,
        typer.Option(help=f"With --retry-failed: only failures of this kind ({', '.join(_KINDS)}); repeatable."),
    ] = None,
    serve: arguments.Serve = False,
    quiet: arguments.Quiet = False,
    as_json: arguments.JsonLines = False,
) -> None:
    """Continue a run: finished results are kept, interrupted evaluations are repeated.

    Only budget, workers, runs, run, tags, note and objective.deterministic may change.
    """
    old = runs.open_run(folder, runs_it=True)
    changed = overrides(set_, workers)
    settings = load(config or old.settings_file, changed)
    check_address(settings, address)
    if kind and not retry_failed:
        raise UserError(f"--kind needs --retry-failed, got --kind {kind[0]!r} alone: add --retry-failed")
    for name in kind or ():
        if name not in _KINDS:
            raise UserError(f"--kind must be one of {', '.join(_KINDS)}, got {name!r}{did_you_mean(name, _KINDS)}")
    retried = frozenset(map(FailureKind, kind or FailureKind)) if retry_failed else frozenset()
    console = console_for(quiet, as_json)
    ray = start_ray(settings, address)
    # Ray is starting while this module is imported
    from bbkb.orchestrator.cli.session import SessionOptions, run_again

    run_again(old, settings, SessionOptions(console=console, address=address, serves=serve, ray=ray), retried)
