"""The root of all errors of the project. It is here because `objectives` imports no other package."""


class BbkbError(Exception):
    """Root of every error that a user can get: `except BbkbError` catches all of them."""
