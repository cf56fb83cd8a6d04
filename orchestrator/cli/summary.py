"""What the commands say before and after a session: what will run, how it ended, and the report they leave."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from orchestrator.bandit.strategy import Sequential
from orchestrator.campaign.events import ExistingTaken
from orchestrator.campaign.goals import CampaignGoals
from orchestrator.campaign.status import goals_text, idle_text
from orchestrator.cli.attach import SessionEnd
from orchestrator.cli.live import assignments, recommendation
from orchestrator.cli.terminal import say, write_file
from orchestrator.credentials import has_password
from orchestrator.history.reading import read_history
from orchestrator.report.page import write_report
from orchestrator.session.assemble import Parts
from orchestrator.settings.model import Settings
from orchestrator.store import runs
from orchestrator.wording import duration, plural


def describe(settings: Settings, parts: Parts) -> str:
    """What a campaign is, in one line."""
    arms, dimensions = parts.problem.candidates.features.shape
    workers = 1 if settings.workers.executor == "inline" else settings.workers.count
    return (
        f"{arms} candidates in {dimensions} dimensions, strategy {settings.resolved()['strategy']['name']}, "
        f"{settings.budget.evaluations} evaluations on {plural(workers, 'worker')}"
        + _goals(CampaignGoals.of(settings.resolved()))
        + (f"; {parts.description}" if parts.description else "")
    )


def _goals(goals: CampaignGoals) -> str:
    several = f"; objectives {', '.join(map(str, goals.objectives))}" if len(goals.objectives) > 1 else ""
    return several + (f"; constraints {', '.join(map(str, goals.constraints))}" if goals.constraints else "")


def say_existing(console: Console, known: ExistingTaken | None) -> None:
    """The results that the campaign begins with, if it has any."""
    if known is not None:
        say(console, f"existing data: {known}")


def say_warnings(console: Console, settings: Settings, parts: Parts) -> None:
    """What works and had better be changed."""
    if parts.problem.candidates.remark:
        say(console, f"warning: {parts.problem.candidates.remark}")
    if has_password(settings.store):
        say(
            console,
            "warning: the password of the store stands in the campaign file. It is written nowhere else, so a resume "
            "needs it from the environment: PGPASSWORD, a password file (~/.pgpass, PGPASSFILE), or ${VAR} in the URL",
        )
    if isinstance(settings.strategy, Sequential) and settings.workers.count > 1:
        name = settings.resolved()["strategy"]["name"]
        say(
            console,
            f"warning: the strategy {name} waits for each result before it chooses again, so one of the "
            f"{settings.workers.count} workers has work: set workers.count to 1, or take bbkb or gp_bucb",
        )


def summarize(console: Console, run_: runs.Run, outcome: str, reason: str) -> None:
    """The outcome of a session and the results of the campaign so far."""
    history = read_history(run_)
    best, now = history.best_known, history.status()
    lines: list[tuple[str, str]] = [("outcome", f"{outcome}: {reason}")]
    if best is not None:
        lines += [
            ("best value", f"{best.value:.6g} ({best.origin})"),
            ("best parameters", assignments(best.parameters)),
        ]
    if now.recommended is not None:
        lines.append(("recommended", recommendation(now.recommended)))
    lines += [
        *([] if now.goals is None else [("goals", goals_text(now.goals))]),
        ("evaluations", f"{now.done}, {now.failed} of them failed"),
        *([] if history.existing is None else [("existing data", str(history.existing))]),
        ("utilisation", f"{now.utilization:.0%} of the workers' time in {duration(now.elapsed_seconds)}"),
        *([("idle", idle)] if (idle := idle_text(now.idle_seconds)) else []),
        ("report", str(run_.report_file)),
    ]
    if outcome != "finished":
        lines.append(("go on with", f"bbkb resume {run_.folder}"))
    for name, text in lines:
        console.print(Text.assemble((f"{name:<16}", "dim"), text), soft_wrap=True)


def say_ending(console: Console, run_: runs.Run, ending: SessionEnd) -> None:
    """How a session that was followed ended."""
    if ending.outcome:
        summarize(console, run_, ending.outcome, ending.reason)
    else:
        say(console, f"{ending.reason}. What had finished is in the log: bbkb resume {run_.folder}")


def save_report(run_: runs.Run, path: Path) -> None:
    """Write the run's report. Raises UserError when the file cannot be written."""
    history = read_history(run_)
    write_file(path, lambda target: write_report(history, target))
