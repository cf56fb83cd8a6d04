"""The summary after a session: how it ended, its results, and the report."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from orchestrator.campaign.status import gains_text, goals_text, idle_text
from orchestrator.display.console import SafeConsole
from orchestrator.display.live import assignments, recommendation
from orchestrator.display.terminal import say, write_file
from orchestrator.history.fold import History
from orchestrator.history.reading import read_history
from orchestrator.running.follow import SessionEnd
from orchestrator.store import runs
from orchestrator.wording import duration


def summarize(
    console: Console, run_: runs.Run, history: History, outcome: str, reason: str, waited_seconds: float | None = None
) -> None:
    """The outcome of a session and the results of the campaign so far.

    `waited_seconds`: how long the command took, which starts the workers before the campaign
    begins.
    """
    if console.quiet and outcome == "failed":
        say(SafeConsole(stderr=True), f"bbkb: {run_.name} failed: {reason.splitlines()[0]}")
    best, now = history.best_known, history.status()
    lines: list[tuple[str, str]] = [("outcome", f"{outcome}: {reason}")]
    virtual = " of virtual time" if history.settings.workers.executor == "simulated" else ""
    if best is not None:
        lines += [
            ("best value", f"{now.best_text} ({best.origin})"),
            ("best parameters", assignments(best.parameters)),
        ]
    if now.recommended is not None:
        lines.append(("recommended", recommendation(now.recommended, now)))
    lines += [
        *([("gain", gains)] if (gains := gains_text(now)) else []),
        *([("goals", goals)] if now.goals is not None and (goals := goals_text(now.goals)) else []),
        ("evaluations", f"{now.done}: {now.outcomes}"),
        *([] if history.existing is None else [("existing data", str(history.existing))]),
        ("utilisation", f"{now.utilization:.0%} of the workers' time in {duration(now.elapsed_seconds)}{virtual}"),
        *([] if waited_seconds is None else [("duration", f"{duration(waited_seconds)}, start and end included")]),
        *([("idle", idle)] if (idle := idle_text(now.idle_seconds)) else []),
        *(("warning", remark) for remark in now.remarks),
        ("report", str(run_.report_file)),
    ]
    if outcome == "failed" and now.failed and not now.succeeded:
        lines.append(("continue with", f"{run_.resume_command} --retry-failed, after the cause was repaired"))
    elif outcome != "finished":
        lines.append(("continue with", run_.resume_command))
    for name, text in lines:
        console.print(Text.assemble((f"{name:<16}", "dim"), text), soft_wrap=True)


def say_ending(console: Console, run_: runs.Run, ending: SessionEnd) -> None:
    """How a session that was followed ended."""
    if ending.outcome:
        summarize(console, run_, read_history(run_), ending.outcome, ending.reason)
    else:
        say(console, f"{ending.reason}. What had finished is in the log: {run_.resume_command}")


def save_report(run_: runs.Run, path: Path) -> History:
    """Write the run's report, titled with the name of its folder; what it shows.

    Raises UserError when the file cannot be written.
    """
    from orchestrator.report.page import write_report  # here, because it loads plotly and scipy

    history = read_history(run_)
    write_file(path, lambda target: write_report(history, target, run_.folder.name))
    return history
