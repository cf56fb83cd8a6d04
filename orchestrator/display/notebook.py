"""The view of a campaign in a notebook: a progress bar that is updated in place."""

import html
import importlib
import time
from typing import Any, Self

from orchestrator.campaign.status import Status
from orchestrator.history.status_text import headline

_REDRAW_SECONDS = 0.5


class NotebookView:
    """One output of the cell: the permanent lines, with the latest status below them.

    IPython is imported for the first output, because it is installed only with notebooks.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []  # permanent
        self._now = ""  # the progress bar, or the text of a wait
        self._handle: Any = None  # the handle of the output; None before the first one
        self._next_redraw = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

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
        shown: Any = importlib.import_module("IPython.display")  # it declares no types
        text = shown.HTML("<br>".join([*self._lines, self._now]))
        if self._handle is None:
            self._handle = shown.display(text, display_id=True)
        else:
            self._handle.update(text)
