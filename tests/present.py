"""Values that must not be None."""

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return `value`. Raises AssertionError if it is None."""
    assert value is not None
    return value
