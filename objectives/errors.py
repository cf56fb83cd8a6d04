"""The base class of all errors of the project, and the error of an objective. They are in this
module because `objectives` imports no other package, and this module imports nothing."""


class BbkbError(Exception):
    """The base class of all errors for users: `except BbkbError` catches them."""


class ObjectiveError(BbkbError):
    """An objective, space or data set cannot be built as specified. This is the user's mistake, and
    the message gives the remedy."""
