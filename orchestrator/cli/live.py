"""What `bbkb run` shows while a campaign runs: a live view on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator.campaign.status import Status, headline, idle_text, progress
from orchestrator.wording import duration

_PLAIN_SECONDS = 10.0  # between two plain lines


class View(Protocol):
    """Shows one status after the other."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last status in place."""

    def update(self, status: Status) -> None:
        """Show this one."""

    def say(self, line: str) -> None:
        """Show a line of text that stays."""


def view(console: Console) -> View:
    """The view that fits the console."""
    return TerminalView(console) if console.is_terminal else PlainView(console)


class TerminalView:
    """A block of lines that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, status: Status) -> None:
        """Redraw."""
        self._live.update(render(status))

    def say(self, line: str) -> None:
        """Print above the block."""
        self._live.console.print(Text(line))


class PlainView:
    """One line whenever a batch begins, a better value is found after a while, or the campaign ends."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._last_shown = float("-inf")
        self._last_line = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def update(self, status: Status) -> None:
        """Print a line, at most one in ten seconds."""
        if status.phase == "closed" or self._clock() - self._last_shown >= _PLAIN_SECONDS:
            self._last_shown = self._clock()
            self.say(headline(status))

    def say(self, line: str) -> None:
        """Print it, unless it is what was printed last."""
        if line != self._last_line:
            self._last_line = line
            self._console.print(Text(line), soft_wrap=True)


def render(status: Status) -> RenderableType:
    """The block: a progress bar and a table of what matters."""
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        Text(status.name, style="bold"),
        ProgressBar(total=max(1, status.evaluations), completed=status.done, width=40),
        Text(f"{status.done}/{status.evaluations}"),
        Text("" if status.left_seconds is None else f"about {duration(status.left_seconds)} left", style="dim"),
    )
    table = Table.grid(padding=(0, 2))
    for name, value in rows(status):
        table.add_row(Text(name, style="dim"), value)
    return Group(bar, table)


def rows(status: Status) -> list[tuple[str, Text]]:
    """The table's rows: name and value."""
    return [
        ("best", _best(status)),
        ("progress", Text(f"{progress(status)} ({status.waiting} in backlog)")),
        ("in flight", Text(f"{status.in_flight} on {status.slots} workers" if status.slots else "no session yet")),
        ("failed", Text(str(status.failed), style="red" if status.failed else "")),
        *([("existing", Text(_existing(status)))] if status.existing else []),
        ("dictionary", Text(f"{status.dictionary_size} inducing points")),
        *([] if status.calibration is None else [("calibration", Text(_calibration(status.calibration)))]),
        *(("warning", Text(remark, style="red")) for remark in status.remarks),
        *([("set aside", Text(_set_aside(status), style="red"))] if status.set_aside else []),
        ("utilisation", Text(f"{status.utilization:.0%}")),
        *([("idle", Text(idle, style="dim"))] if (idle := idle_text(status.idle_seconds)) else []),
        ("elapsed", Text(f"{duration(status.elapsed_seconds)}, at least {duration(status.least_seconds)} of work")),
        ("now", Text(_now(status))),
    ]


def _calibration(share: float) -> str:
    return f"{share:.0%} of results within two standard deviations of what the model predicted"


def _best(status: Status) -> Text:
    if status.best_value is None:
        return Text("no value yet", style="dim")
    return Text.assemble((f"{status.best_value:.6g}", "bold green"), f"  {named(status.best_parameters)}")


def _set_aside(status: Status) -> str:
    arms = ", ".join(str(arm) for arm in status.set_aside[:5]) + (", …" if len(status.set_aside) > 5 else "")
    return f"{len(status.set_aside)} candidates that cost worker after worker: {arms}"


def _existing(status: Status) -> str:
    left_out = f", {status.existing_unmatched} more match no candidate" if status.existing_unmatched else ""
    return f"{status.existing} results known before{left_out}"


def _now(status: Status) -> str:
    if status.phase == "stopping":
        return (
            f"stopping ({status.reason}): {status.in_flight} running evaluations end first; Ctrl-C again stops at once"
        )
    if status.phase == "closed":
        return f"{status.outcome}: {status.reason}"
    if status.phase == "created":
        return "starting: the coordinator has not opened a session yet"
    return status.activity


def shown(value: Any) -> str:
    """A parameter's value, short."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def named(parameters: Mapping[str, Any]) -> str:
    """`learning_rate=0.01, layers=3`, the values short."""
    return ", ".join(f"{name}={shown(value)}" for name, value in parameters.items())
