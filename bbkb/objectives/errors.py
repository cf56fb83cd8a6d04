"""The base class of all errors of the project, the error of an objective, and warnings. They are in
this module because `objectives` imports no other package."""

import sys
import warnings


class BbkbError(Exception):
    """The base class of all errors for users: `except BbkbError` catches them."""


class ObjectiveError(BbkbError):
    """An objective, space or data set cannot be built as specified. This is the user's mistake, and
    the message gives the remedy."""


def warn_user(message: str) -> None:
    """Warn at the line of the user's program that called this project."""
    frame = sys._getframe()
    level = 1  # that of this function
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "bbkb":
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)
