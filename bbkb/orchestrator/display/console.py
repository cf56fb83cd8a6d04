"""Consoles for the commands. They escape control sequences in texts from outside."""

import json
from collections.abc import Iterable, Mapping

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from bbkb.orchestrator.wording import printable


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
