"""The terminal: consoles that escape control sequences, the output of commands, and the display of
`bbkb run`, which is a live view on a terminal or in a notebook, and plain lines elsewhere."""

import html
import importlib
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from bbkb.orchestrator.campaign.events import stop_words
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.facts import Fact, as_plain, assignments, facts, headline, time_left
from bbkb.orchestrator.wording import duration, one_line, printable

FAILED = 1
USERS_MISTAKE = 2
EXIT_CODES = {"finished": 0, "failed": FAILED, "interrupted": 130}  # by outcome
_PLAIN_SECONDS = 10.0  # between two lines of status
_JSON_SECONDS = 1.0  # between two lines of JSON
_REDRAW_SECONDS = 0.5  # between two drawings in a notebook
_RUNNING_SHOWN = 5
_RESULTS_SHOWN = 3
_FAILURES_TOLD = 3  # causes of failures that are printed when they happen first
_LINE = 110  # characters of parameters


class SafeConsole(Console):
    """A Rich console that escapes control characters in all texts. Rich's own colors and cursor
    moves are not texts, so they remain unchanged."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of `renderable` with printable texts."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class JsonConsole(SafeConsole):
    """A console that writes each printed text as a message in a line of JSON."""

    def print(self, *objects: object, **options: object) -> None:
        """Write a message."""
        self.emit({"message": " ".join(str(item) for item in objects)})

    def emit(self, line: Mapping[str, object]) -> None:
        """Write one line of JSON."""
        self.file.write(json.dumps(line, ensure_ascii=True, default=str) + "\n")
        self.file.flush()


def console_for(is_quiet: bool, as_json: bool) -> SafeConsole:
    """Return the console of a command that has options for quiet and JSON output."""
    return JsonConsole() if as_json else SafeConsole(quiet=is_quiet)


def say(console: Console, line: str) -> None:
    """Print one line without markup and without wrapping."""
    console.print(Text(line), soft_wrap=True)


def write_output(content: bytes) -> None:
    """Write `content` to standard output. On a terminal, control characters are escaped.

    Raises UserError if it cannot be written, and BrokenPipeError if its reader has ended.
    """
    if sys.stdout.isatty():
        lines = content.decode("utf-8", "backslashreplace").split("\r\n")
        content = "\r\n".join(map(printable, lines)).encode()
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"the output cannot be written: {error.strerror}") from error


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write(path)`. Raises UserError if the file cannot be written."""
    try:
        write(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


class View(ABC):
    """Shows the status of a campaign. The last status remains visible at the end.

    The first failure of each cause becomes a permanent line when it happens.
    """

    _told = 0  # causes of failures

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def update(self, status: Status) -> None:
        """Show a new status."""
        for cause in status.trials.failures[self._told : _FAILURES_TOLD]:
            self._told += 1
            self.say(f"trial {cause.trial} failed ({cause.kind}): {one_line(cause.summary, 2 * _LINE)}")
        self.show(status)

    @abstractmethod
    def show(self, status: Status) -> None:
        """Replace the shown status."""

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

    def show(self, status: Status) -> None:
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

    def show(self, status: Status) -> None:
        """Print a line if one is due, or as soon as the campaign is stopping."""
        if status.phase == "stopping" and not self._is_stopping:
            self.say(facts(status)[0].value)
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

    def show(self, status: Status) -> None:
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

    def show(self, status: Status) -> None:
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
    """Return the block of the terminal view and of `bbkb status`: a progress bar and the facts, with
    the running trials and the newest results."""
    bar = Table.grid(padding=(0, 1))
    count, whole, unit = status.spent
    bar.add_row(
        Text(status.name, style="bold"),
        ProgressBar(total=whole, completed=min(whole, count), width=40),
        Text(f"{count}/{whole}" + (" steps" if unit == "steps" else "")),
        Text(time_left(status), style="dim"),
    )
    return Group(bar, _table([*facts(status), *_running(status), *_recent(status)]))


def _table(listed: Iterable[Fact]) -> Table:
    """Return the facts as lines of a terminal; equal labels are written once."""
    grid = Table.grid(padding=(0, 2))
    last = ""
    for fact in listed:
        grid.add_row(Text("" if fact.label == last else fact.label, style="dim"), fact_text(fact))
        last = fact.label
    return grid


def fact_text(fact: Fact) -> Text:
    """Return the value and the remark, colored by kind."""
    style = "bold green" if fact.label == "best value" else {"problem": "red", "detail": "dim", "": ""}[fact.kind]
    remark = (f"  {fact.remark}", "dim") if fact.remark else ""
    return Text.assemble((fact.value, style), remark)


def _running(status: Status) -> Iterator[Fact]:
    shown = status.trials.running[:_RUNNING_SHOWN]
    for trial in shown:
        yield Fact("running", f"trial {trial.trial}", f"{duration(trial.seconds)}: {_listed(trial.parameters)}")
    if shown and (hidden := status.trials.in_flight - len(shown)) > 0:
        yield Fact("running", f"and {hidden} more", kind="detail")


def _recent(status: Status) -> Iterator[Fact]:
    results = [attempt for attempt in reversed(status.trials.recent) if not attempt.failure][:_RESULTS_SHOWN]
    for attempt in results:
        value = "no value" if attempt.value is None else f"{attempt.value:.6g}"
        word, _ = stop_words(attempt.stop_cause)
        ended = "" if attempt.stopped_at is None else f", {word} at step {attempt.stopped_at}"
        remark = f"{duration(attempt.seconds)}: {_listed(attempt.parameters)}"
        yield Fact("last results", f"trial {attempt.trial}: {value}{ended}", remark)


def _listed(parameters: Mapping[str, object]) -> str:
    return one_line(assignments(parameters), _LINE)
