"""Serializes the methods of an object that several threads may call."""

import functools
import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class HasLock(Protocol):
    """An object whose exclusive methods hold `_lock`. They may call each other."""

    _lock: threading.RLock


Owner = TypeVar("Owner", bound=HasLock)
P = ParamSpec("P")
R = TypeVar("R")


def exclusive(method: Callable[Concatenate[Owner, P], R]) -> Callable[Concatenate[Owner, P], R]:
    """Return `method`, which waits until no other thread is in an exclusive method of its object.

    Args:
        method: a method, or the function of a property.
    """

    @functools.wraps(method)
    def wait_and_call(self: Owner, /, *args: P.args, **options: P.kwargs) -> R:
        with self._lock:
            return method(self, *args, **options)

    return wait_and_call
