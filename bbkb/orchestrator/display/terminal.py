"""Output of the commands: lines of text, and files that the user names."""

import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.wording import printable

FAILED = 1
USERS_MISTAKE = 2
EXIT_CODES = {"finished": 0, "failed": FAILED, "interrupted": 130}  # by outcome


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
