"""Calls whose outcome is stored in a future. `concurrent.futures.Executor` does not fit: its threads
are not daemons, so the process would wait for an abandoned call when it exits."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


def settle(outcome: "Future[T]", call: Callable[[], T]) -> None:
    """Store the result of `call()`, or its exception, in `outcome`."""
    try:
        outcome.set_result(call())
    except BaseException as error:  # raised again by `outcome.result`
        outcome.set_exception(error)


def is_settled(outcome: "Future[Any]", seconds: float) -> bool:
    """Return whether `outcome` is known, after at most `seconds`."""
    with contextlib.suppress(TimeoutError):
        outcome.exception(seconds)
    return outcome.done()
