"""The console of all commands, which escapes control sequences in texts from outside."""

import json
from collections.abc import Iterable, Mapping

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from orchestrator.wording import printable


class SafeConsole(Console):
    """Rich's console, which escapes control characters in all text that it renders. Its own colours
    and cursor moves are not text, and remain."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of `renderable`, their text printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class JsonConsole(SafeConsole):
    """A console that writes lines of JSON: each printed text becomes a message."""

    def print(self, *objects: object, **options: object) -> None:
        """One message."""
        self.emit({"message": " ".join(str(item) for item in objects)})

    def emit(self, line: Mapping[str, object]) -> None:
        """Write one line."""
        self.file.write(json.dumps(line, ensure_ascii=True, default=str) + "\n")
        self.file.flush()


def console_for(is_quiet: bool, as_json: bool) -> SafeConsole:
    """Return the console of a command that may be asked to be quiet, or to write JSON."""
    return JsonConsole() if as_json else SafeConsole(quiet=is_quiet)
