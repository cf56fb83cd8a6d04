"""The root of all errors of the project, and the error of an objective. They are here because
`objectives` imports no other package, and because this module imports nothing."""


class BbkbError(Exception):
    """Root of every error that a user can get: `except BbkbError` catches all of them."""


class ObjectiveError(BbkbError):
    """An objective, space or data set cannot be built as asked: a user's mistake, its message names
    the remedy."""
