"""The base class of all errors of the project, the error of an objective, warnings, and the place of
a mistake in the user's program. They are in this module because `objectives` imports no other package."""

import sys
import sysconfig
import traceback
import warnings
from pathlib import Path
from types import FrameType

_LONGEST_LINE = 3000  # characters: a message quotes texts of users, who may have a megabyte on one line


class BbkbError(Exception):
    """The base class of all errors for users: `except BbkbError` catches them. Of a line that is too
    long to read, the message has both ends, because the remedy is the last part."""

    def __init__(self, message: str = "", *further: object) -> None:
        half = _LONGEST_LINE // 2
        lines = str(message).split("\n")
        short = (line if len(line) <= _LONGEST_LINE else f"{line[:half]} … {line[-half:]}" for line in lines)
        super().__init__("\n".join(short), *further)


class ObjectiveError(BbkbError):
    """An objective, space or data set cannot be built as specified. This is the user's mistake, and
    the message gives the remedy."""


def warn_user(message: str) -> None:
    """Warn at the line of the user's program that called this project."""
    frame = sys._getframe()
    level = 1  # that of this function
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)


def has_users_frame(error: BaseException) -> bool:
    """Return whether an error has passed code that belongs neither to this project nor to an installed package."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(not _is_ours(frame) and not is_installed(frame.f_code.co_filename) for frame in frames)


def users_cause(error: BaseException) -> BaseException | None:
    """Return the nearest cause of an error that has passed the user's code; None if none has."""
    cause = error.__cause__ or error.__context__
    while cause is not None and not has_users_frame(cause):
        cause = cause.__cause__ or cause.__context__
    return cause


def is_raised_in(error: BaseException, *packages: str) -> bool:
    """Return whether a module in one of these packages has raised an error."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__", "")).startswith(packages)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "bbkb"


def is_installed(file: str) -> bool:
    """Return whether a file or folder belongs to the standard library or to installed packages."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    is_packaged = not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)
    return file.startswith("<") or is_packaged or any(Path(file).is_relative_to(folder) for folder in folders)
