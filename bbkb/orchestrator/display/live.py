"""The display of `bbkb run`: a live view on a terminal or in a notebook, plain lines elsewhere."""

import html
import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bbkb.orchestrator.campaign.attempts import EndedAttempt
from bbkb.orchestrator.campaign.endings import StopReason
from bbkb.orchestrator.campaign.failures import FailureGroups
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.campaign.stops import stop_words
from bbkb.orchestrator.display.console import JsonConsole
from bbkb.orchestrator.history.status_text import (
    as_plain,
    assignments,
    headline,
    idle_text,
    progress,
    search_facts,
)
from bbkb.orchestrator.wording import duration, noun_and_numbers, one_line, plural

_PLAIN_SECONDS = 10.0  # between two lines of status
_JSON_SECONDS = 1.0  # between two lines of JSON
_REDRAW_SECONDS = 0.5  # between two drawings in a notebook
_RUNNING_SHOWN = 5
_RESULTS_SHOWN = 3
_FAILURES_SHOWN = 2
_LINE = 110  # characters in the line about a trial
_CALIBRATED = "of results within two standard deviations of the model's prediction"


class View(ABC):
    """Shows the status of a campaign. The last status remains visible at the end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    @abstractmethod
    def update(self, status: Status) -> None:
        """Show a new status."""

    @abstractmethod
    def say(self, line: str) -> None:
        """Show a permanent line of text."""

    def wait_for(self, what: str) -> None:
        """Show that the command is waiting for `what`, until the next `update`."""
        self.say(what)


def view(console: Console) -> View:
    """Return the view that fits the console."""
    if isinstance(console, JsonConsole):
        return JsonView(console)
    if console.is_jupyter and not console.quiet:
        return NotebookView()
    is_animated = console.is_terminal and not console.is_dumb_terminal
    return TerminalView(console) if is_animated else PlainView(console)


class _Clock:
    """The text and the duration of a wait, updated with each redraw."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since = time.monotonic()

    def __rich__(self) -> Text:
        return Text(f"{self._what} ({time.monotonic() - self._since:.0f} s)", style="dim")


class TerminalView(View):
    """A block of lines that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def wait_for(self, what: str) -> None:
        """Show the text with a clock."""
        self._live.update(_Clock(what))

    def update(self, status: Status) -> None:
        """Redraw. The block is removed at the end of the session, because the summary follows."""
        self._live.update(render(status))
        self._live.transient = status.phase == "closed"

    def say(self, line: str) -> None:
        """Print the line above the block."""
        self._live.console.print(Text(line))


class PlainView(View):
    """Prints a status line at most every ten seconds, and at the end."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_shown = float("-inf")
        self._console = console
        self._last_line = ""
        self._is_stopping = False

    def update(self, status: Status) -> None:
        """Print a line if one is due, or as soon as the campaign is stopping."""
        if status.phase == "stopping" and not self._is_stopping:
            self.say(_now(status))
        self._is_stopping = status.phase == "stopping"
        if status.phase == "closed" or self._clock() - self._last_shown >= _PLAIN_SECONDS:
            self._last_shown = self._clock()
            self.say(headline(status))

    def say(self, line: str) -> None:
        """Print the line unless it equals the previous one."""
        if line != self._last_line:
            self._last_line = line
            self._console.print(Text(line), soft_wrap=True)


class JsonView(View):
    """Writes the status as a line of JSON when it changes, at most once a second."""

    def __init__(self, console: JsonConsole) -> None:
        self._last_shown = float("-inf")
        self._console = console
        self._last: tuple[object, ...] = ()

    def update(self, status: Status) -> None:
        """Write the status if it has changed and a line is due."""
        changed = (status.phase, status.trials.done, status.trials.in_flight, status.trials.chosen, status.best.value)
        is_due = status.phase == "closed" or time.monotonic() - self._last_shown >= _JSON_SECONDS
        if changed != self._last and is_due:
            self._last = changed
            self._last_shown = time.monotonic()
            self._console.emit({"status": as_plain(status)})

    def say(self, line: str) -> None:
        """Write the text as a message."""
        self._console.emit({"message": line})


class NotebookView(View):
    """One output of the cell: the permanent lines, with the latest status below them.

    IPython is imported for the first output, because it is installed only with notebooks.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []  # permanent
        self._now = ""  # the progress bar, or the text of a wait
        self._handle: Any = None  # the handle of the output; None before the first one
        self._next_redraw = 0.0

    def update(self, status: Status) -> None:
        """Redraw the bar at most twice a second."""
        if status.phase != "closed" and time.monotonic() < self._next_redraw:
            return
        self._next_redraw = time.monotonic() + _REDRAW_SECONDS
        count, whole, _ = status.spent
        bar = f"<progress value='{count}' max='{whole}'></progress>"
        self._now = f"{bar} {html.escape(headline(status))}"
        self._draw()

    def say(self, line: str) -> None:
        """Add a permanent line."""
        self._lines.append(html.escape(line))
        self._draw()

    def wait_for(self, what: str) -> None:
        """Show the text of a wait until the next status."""
        self._now = html.escape(f"{what} …")
        self._draw()

    def _draw(self) -> None:
        shown: Any = importlib.import_module("IPython.display")  # the module has no type annotations
        text = shown.HTML("<br>".join([*self._lines, self._now]))
        if self._handle is None:
            self._handle = shown.display(text, display_id=True)
        else:
            self._handle.update(text)


def render(status: Status) -> RenderableType:
    """Return the block of the terminal view: a progress bar and a table."""
    bar = Table.grid(padding=(0, 1))
    count, whole, unit = status.spent
    bar.add_row(
        Text(status.name, style="bold"),
        ProgressBar(total=whole, completed=min(whole, count), width=40),
        Text(f"{count}/{whole}" + (" steps" if unit == "steps" else "")),
        Text(_time_left(status), style="dim"),
    )
    table = Table.grid(padding=(0, 2))
    for name, value in rows(status):
        table.add_row(Text(name, style="dim"), value)
    return Group(bar, table)


def rows(status: Status) -> list[tuple[str, Text]]:
    """Return the rows of the table, without empty ones."""
    in_flight = status.trials.in_flight
    slots = status.workers.slots
    elapsed = duration(status.budget.elapsed_seconds)
    least = duration(status.workers.least_seconds)
    share = status.model.calibration
    listed = [
        ("best", _best(status)),
        *((name, Text(text)) for name, text in search_facts(status)),
        ("progress", Text(f"{progress(status)} ({status.trials.waiting} queued)")),
        ("workers", Text(f"{in_flight} of {slots} busy" if slots else "no session yet")),
        *_running_rows(status),
        *_recent_rows(status),
        ("ended", Text(f"{status.trials.done}: {status.trials.outcomes}", style="red" if status.trials.failed else "")),
        ("existing", Text(_existing(status))),
        ("model", Text(_inducing(status))),
        ("calibration", Text("" if share is None else f"{share:.0%} {_CALIBRATED}")),
        ("steps", Text(_reliability(status))),
        *(("warning", Text(remark, style="red")) for remark in status.remarks),
        ("set aside", Text(_set_aside(status), style="red")),
        ("utilization", Text(f"{status.workers.utilization:.0%}")),
        ("idle", Text(idle_text(status.workers), style="dim")),
        ("elapsed", Text(f"{elapsed}; {least} if no worker were ever idle")),
        ("now", Text(_now(status))),
    ]
    return [(name, text) for name, text in listed if text.plain]


def _time_left(status: Status) -> str:
    """Return the rate and the time left. Both are unknown until the first result."""
    if status.phase != "running":
        return ""
    elapsed = status.budget.elapsed_seconds
    left = status.budget.left_seconds
    if left is None or not elapsed:
        return "time left: known after the first result"
    return f"{_rate(status.trials.done / elapsed)}, about {duration(left)} left"


def _rate(per_second: float) -> str:
    """Return the rate per second, minute or hour, in the unit that gives a readable number."""
    units = ((1.0, "s"), (60.0, "min"), (3600.0, "h"))
    seconds, unit = next((entry for entry in units if per_second * entry[0] >= 1.0), units[-1])
    return f"{per_second * seconds:.3g} trials/{unit}"


def _running_rows(status: Status) -> list[tuple[str, Text]]:
    shown_trials = status.trials.running[:_RUNNING_SHOWN]
    hidden = status.trials.in_flight - len(shown_trials)
    lines = [
        Text(f"trial {trial.trial} for {duration(trial.seconds)}: {one_line(assignments(trial.parameters), _LINE)}")
        for trial in shown_trials
    ]
    if hidden > 0 and lines:
        lines.append(Text(f"and {hidden} more", style="dim"))
    return [("" if index else "running", line) for index, line in enumerate(lines)]


def _recent_rows(status: Status) -> list[tuple[str, Text]]:
    results = [attempt for attempt in reversed(status.trials.recent) if not attempt.failure][:_RESULTS_SHOWN]
    failed = [attempt for attempt in status.trials.recent if attempt.failure]
    final = {attempt.trial for attempt in failed if attempt.is_final}
    lines = [("" if index else "last results", Text(_result(attempt))) for index, attempt in enumerate(results)]
    groups = FailureGroups()
    for attempt in failed:
        groups.add(attempt.trial, attempt.failure, attempt.message)
    for index, group in enumerate(groups.newest_first()[:_FAILURES_SHOWN]):
        kind = f"{group.kind}{'' if final.intersection(group.trials) else ', runs again'}"
        text = one_line(f"{noun_and_numbers('trial', sorted(group.trials))}, {kind}: {group.message}", _LINE)
        lines.append(("" if index else "failed attempts", Text(text, style="red")))
    return lines


def _result(attempt: EndedAttempt) -> str:
    value = "no value" if attempt.value is None else f"{attempt.value:.6g}"
    word, _ = stop_words(attempt.stop_cause)
    ended = value if attempt.stopped_at is None else f"{value}, {word} at step {attempt.stopped_at}"
    return one_line(
        f"trial {attempt.trial}: {ended} in {duration(attempt.seconds)}, {assignments(attempt.parameters)}", _LINE
    )


def _best(status: Status) -> Text:
    if status.best.value is None:
        return Text("no value yet", style="dim")
    origin = f"  ({status.best.origin})" if status.best.trial is None else ""
    value, _, further = status.best.text.partition(", ")
    return Text.assemble((value, "bold green"), f" ({further})  {assignments(status.best.parameters)}{origin}")


def _set_aside(status: Status) -> str:
    arms = status.workers.set_aside
    if not arms:
        return ""
    listed = ", ".join([*map(str, arms[:5]), *["…"] * (len(arms) > 5)])
    return f"{plural(len(arms), 'candidate')} that killed several workers: {listed}"


def _existing(status: Status) -> str:
    trials = status.trials
    if not trials.existing:
        return ""
    unmatched = trials.existing_unmatched
    left_out = f", {unmatched} more match no candidate" if unmatched else ""
    return f"{plural(trials.existing, 'result')} known before{left_out}"


def _now(status: Status) -> str:
    if status.phase == "stopping":
        again = "again" if status.reason == StopReason.INTERRUPTED else "twice"
        verb = "ends" if status.trials.in_flight == 1 else "end"
        first = f"{plural(status.trials.in_flight, 'running evaluation')} {verb} first; Ctrl-C {again} stops at once"
        return f"stopping ({status.reason}): {first if status.trials.in_flight else status.activity}"
    if status.phase == "closed":
        return f"{status.outcome}: {status.reason}"
    if status.phase == "created":
        return "no session yet: one is starting, or `bbkb resume` starts one"
    return status.activity


def _inducing(status: Status) -> str:
    """Return the number and kind of inducing points, which include steps if the model learns
    curves; an empty text if there are none."""
    if not status.model.dictionary_size:
        return ""
    steps = " and steps of trainings" if status.model.steps_reliability else ""
    return f"{plural(status.model.dictionary_size, 'inducing point')}: the evaluated candidates{steps} that it keeps"


def _reliability(status: Status) -> str:
    """Return the correlation between the value at each step and the final value."""
    if not status.model.steps_reliability:
        return ""
    parts = ", ".join(f"{correlation:.2f} at step {step}" for step, correlation in status.model.steps_reliability)
    return f"correlation with the final value: {parts}"
