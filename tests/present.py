"""Values that must not be None, or must have a type."""

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return `value`. Raises AssertionError if it is None."""
    assert value is not None
    return value


def of_type(kind: type[T], value: object) -> T:
    """Return `value`. Raises AssertionError if it is not an instance of `kind`."""
    assert isinstance(value, kind), value
    return value
