"""The summary after a session: outcome, results and report."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from bbkb.orchestrator.history.facts import Fact, advice, facts
from bbkb.orchestrator.history.fold import History, read_history
from bbkb.orchestrator.report.terminal import SafeConsole, fact_text, say, write_file
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
    status = history.status()
    steps = [Fact("next", f"{text} {command}") for text, command in advice(status, str(run_.folder))]
    waited = [] if waited_seconds is None else [Fact("command", duration(waited_seconds), "start and end included")]
    hint = _inline_hint(history, waited_seconds)
    listed = [
        Fact("outcome", f"{outcome}: {reason}"),
        *facts(status)[1:],
        *waited,
        *([Fact("hint", hint)] if hint else []),
        Fact("report", str(run_.report_file)),
        *steps,
    ]
    for fact in listed:
        console.print(Text.assemble((f"{fact.label:<16}", "dim"), fact_text(fact)), soft_wrap=True)


def _inline_hint(history: History, waited_seconds: float | None) -> str:
    """Return a hint if this process alone would have been faster than the workers on Ray.

    Return an empty text if evaluations need Ray, and after a resume.
    """
    workers = history.settings.workers
    # in this process, an evaluation without a memory limit could end the campaign
    is_guarded = workers.memory_gb or history.campaign.failures.quarantined
    needs_ray = workers.machines > 1 or workers.gpus > 0 or workers.gpus_from or is_guarded
    if needs_ray or not workers.traits.on_ray or len(history.sessions) != 1 or waited_seconds is None:
        return ""
    evaluated = sum(row.seconds or 0.0 for row in history.trials)
    if not 0.0 < evaluated < waited_seconds:
        return ""
    return (
        f"all evaluations together took {duration(evaluated)}, less than this command with Ray; "
        "`workers: {executor: inline}` evaluates one after the other in this process"
    )


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
    from bbkb.orchestrator.bandit.arrays import blas_threads
    from bbkb.orchestrator.report.page import write_report  # loads plotly and scipy

    history = read_history(run_)
    title = run_.folder.name
    # more threads would wait for each other if the machine is busy
    with blas_threads(1):
        write_file(path, lambda target: write_report(history, target, title, plotly))
    return history
