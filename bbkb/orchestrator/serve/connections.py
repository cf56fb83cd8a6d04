"""Limits the connections to the page, so that clients without the token cannot exhaust the
process's resources.

The process may also be running a campaign, whose store needs file descriptors. A connection without
a request that has the token is closed after a few seconds, or earlier if others need its slot.
"""

import asyncio
import logging
import resource
import time
from collections.abc import Callable
from typing import Any

_LOGGER = logging.getLogger("bbkb.serve")

MOST_CONNECTIONS = 256
_DESCRIPTORS_SHARE = 8  # connections may use one in this many file descriptors
_LEAST_CONNECTIONS = 8
UNTRUSTED_SECONDS = 10.0  # the time limit for a request with the token
BACKLOG = 16  # the number of connections that wait to be accepted
_LOG_SECONDS = 60.0  # between two log lines about the same problem of the server


def most_connections() -> int:
    """Return the number of connections that the limit of file descriptors allows."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(_LEAST_CONNECTIONS, min(MOST_CONNECTIONS, soft // _DESCRIPTORS_SHARE))


class Connections:
    """The open connections of a server, at most `most`. Only the loop's thread may use it."""

    def __init__(self, most: int) -> None:
        self._most = most
        # connection → the timer that closes it, the oldest first
        self._untrusted: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}
        self._trusted: set[asyncio.BaseTransport] = set()

    def __len__(self) -> int:
        return len(self._untrusted) + len(self._trusted)

    def admit(self, transport: asyncio.Transport) -> bool:
        """Add a connection, and return whether it stays open.

        If there are too many, the oldest one without a valid request is closed. If all others have
        sent one, the new connection is closed.
        """
        if len(self) >= self._most:
            if not self._untrusted:
                transport.abort()
                return False
            self._end(next(iter(self._untrusted)))
        loop = asyncio.get_running_loop()
        self._untrusted[transport] = loop.call_later(UNTRUSTED_SECONDS, self._end, transport)
        return True

    def trust(self, transport: asyncio.BaseTransport | None) -> None:
        """Keep a connection open, because it has sent a request with the token."""
        timer = None if transport is None else self._untrusted.pop(transport, None)
        if transport is not None and timer is not None:
            timer.cancel()
            self._trusted.add(transport)

    def forget(self, transport: asyncio.BaseTransport | None) -> None:
        """Remove a closed connection."""
        if transport is not None:
            self._trusted.discard(transport)
            if (timer := self._untrusted.pop(transport, None)) is not None:
                timer.cancel()

    def _end(self, transport: asyncio.BaseTransport) -> None:
        self.forget(transport)
        if isinstance(transport, asyncio.Transport):
            transport.abort()


class CountedProtocol(asyncio.Protocol):
    """Forwards a connection to `inner` if `connections` admits it.

    A rejected connection is closed before it is read, so only its loss follows.
    """

    def __init__(self, inner: asyncio.Protocol, connections: Connections) -> None:
        self._inner = inner
        self._connections = connections
        self._transport: asyncio.Transport | None = None  # None if it was rejected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Forward the connection if it is admitted."""
        assert isinstance(transport, asyncio.Transport)
        if self._connections.admit(transport):
            self._transport = transport
            self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the count."""
        if self._transport is not None:
            self._connections.forget(self._transport)
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Forward bytes."""
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Forward the end of the client's bytes."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Forward the signal that the client reads slowly."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Forward the signal that the client has caught up."""
        self._inner.resume_writing()


class SparseLog:
    """Logs each problem of the server's loop in one line, at most once a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next: dict[str, float] = {}

    def __call__(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an exception of the loop."""
        error = context.get("exception")
        kind = f"{context.get('message', 'error')} {type(error).__name__}"
        if self._clock() >= self._next.get(kind, float("-inf")):
            self._next[kind] = self._clock() + _LOG_SECONDS
            _LOGGER.error("the live page's server: %s: %s", context.get("message", "error"), error)
