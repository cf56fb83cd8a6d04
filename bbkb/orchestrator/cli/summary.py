"""The summary after a session: outcome, results and report."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from bbkb.orchestrator.campaign.closing import SPENT
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.display.console import SafeConsole
from bbkb.orchestrator.display.terminal import say, write_file
from bbkb.orchestrator.history.ancestry import best_schedule
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.reading import read_history
from bbkb.orchestrator.history.status_text import assignments, idle_text, search_facts
from bbkb.orchestrator.running.follow import SessionEnd
from bbkb.orchestrator.store import runs
from bbkb.orchestrator.wording import duration


def summarize(
    console: Console,
    run_: runs.Run,
    history: History,
    outcome: str,
    reason: str,
    waited_seconds: float | None = None,
) -> None:
    """Print the outcome of a session and the results of the campaign so far.

    `waited_seconds` is the duration of the whole command, which starts workers before the campaign
    begins.
    """
    if console.quiet and outcome == "failed":
        say(SafeConsole(stderr=True), f"bbkb: {run_.name} failed: {reason.splitlines()[0]}")
    now = history.status()
    facts = [
        ("outcome", f"{outcome}: {reason}"),
        *_best_facts(history),
        *search_facts(now),
        ("evaluations", f"{now.trials.done}: {now.trials.outcomes}"),
        ("configurations", f"{history.distinct} distinct"),
        ("known results", "" if history.existing is None else str(history.existing)),
        *_time_facts(history, waited_seconds),
        *(("warning", remark) for remark in now.remarks),
        ("report", str(run_.report_file)),
        ("continue with", _next_command(run_, outcome, history.campaign)),
    ]
    for name, text in facts:
        if text:
            console.print(Text.assemble((f"{name:<16}", "dim"), text), soft_wrap=True)


def _best_facts(history: History) -> list[tuple[str, str]]:
    best = history.best_known
    if best is None:
        return []
    return [
        ("best value", f"{history.status().best.text} ({best.origin})"),
        ("best parameters", assignments(best.parameters)),
        *(("", ": ".join(part)) for part in best_schedule(history)),
    ]


def _time_facts(history: History, waited_seconds: float | None) -> list[tuple[str, str]]:
    """Return utilization and idle time of all sessions, and the duration of this command."""
    now = history.status()
    virtual = " of virtual time" if history.settings.workers.traits.in_virtual_time else ""
    sessions = len(history.sessions)
    over = f", {sessions} sessions together" if sessions > 1 else ""
    this = "this session, " if sessions > 1 else ""
    elapsed = f"{duration(now.budget.elapsed_seconds)}{virtual}{over}"
    waited = "" if waited_seconds is None else f"{duration(waited_seconds)}, {this}start and end included"
    return [
        ("utilization", f"{now.workers.utilization:.0%} of the workers' time in {elapsed}"),
        ("duration", waited),
        ("idle", idle_text(now.workers)),
        ("hint", _inline_hint(history, waited_seconds)),
    ]


def _inline_hint(history: History, waited_seconds: float | None) -> str:
    """Return a hint if this process alone would have been faster than the workers on Ray.

    Return an empty text if evaluations need Ray, and after a resume.
    """
    if _needs_ray(history) or len(history.sessions) != 1 or waited_seconds is None:
        return ""
    evaluated = sum(row.seconds or 0.0 for row in history.trials)
    if not 0.0 < evaluated < waited_seconds:
        return ""
    return (
        f"all evaluations together took {duration(evaluated)}, less than this command with Ray; "
        "`workers: {executor: inline}` evaluates one after the other in this process"
    )


def _needs_ray(history: History) -> bool:
    """Return whether this process could not have evaluated these trials, or has done so."""
    workers = history.settings.workers
    if not workers.traits.on_ray or workers.machines > 1 or workers.machines_from:
        return True
    # in this process, an evaluation without a memory limit could end the campaign
    is_guarded = workers.memory_gb or history.campaign.failures.quarantined
    return bool(workers.gpus > 0 or workers.gpus_from or is_guarded)


def _next_command(run_: runs.Run, outcome: str, campaign: CampaignState) -> str:
    """Return the command that continues the run; empty if it has finished with a result."""
    if outcome != "failed":
        return "" if outcome == "finished" else run_.resume_command
    retry = "" if campaign.totals.succeeded or not campaign.totals.failed else " --retry-failed"
    budget = " with a larger budget" if campaign.session.stop_reason in SPENT else ""
    return f"{run_.resume_command}{retry}{budget}{', once the cause is fixed' if retry else ''}"


def say_ending(console: Console, run_: runs.Run, ending: SessionEnd) -> None:
    """Print the end of a session that this command has followed."""
    if ending.outcome:
        summarize(console, run_, read_history(run_), ending.outcome, ending.reason)
    else:
        say(console, f"{ending.reason}. Finished results are in the log: {run_.resume_command}")


def save_report(run_: runs.Run, path: Path, plotly: Path | None = None) -> History:
    """Write the run's report, titled with the name of its folder, and return its history.

    If `plotly` is a file, the report refers to it instead of containing plotly.js. Raises UserError
    if the file cannot be written.
    """
    from bbkb.orchestrator.bandit.blas import blas_threads
    from bbkb.orchestrator.report.page import write_report  # loads plotly and scipy

    history = read_history(run_)
    title = run_.folder.name
    # more threads would wait for each other if the machine is busy
    with blas_threads(1):
        write_file(path, lambda target: write_report(history, target, title, plotly))
    return history
