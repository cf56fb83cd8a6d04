"""The console that all commands print on: no text from outside reaches the terminal as a command to it."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from orchestrator.wording import printable


class SafeConsole(Console):
    """Rich's console, which escapes control characters in whatever text it renders. Its own colours and cursor moves
    are no text, and stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of `renderable`, their text printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
