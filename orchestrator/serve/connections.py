"""A bounded number of connections to the page: without the token, no one can use up the process's
resources.

The process that serves may also run a campaign, whose store needs file descriptors. A connection
that has sent no request with the token is closed after some seconds, and earlier when others need
its place.
"""

import asyncio
import logging
import resource
import time
from collections.abc import Callable
from typing import Any

_LOGGER = logging.getLogger("bbkb.serve")

MOST_CONNECTIONS = 256
_DESCRIPTORS_SHARE = 8  # connections take at most one of so many file descriptors that the process may have
_LEAST_CONNECTIONS = 8
UNTRUSTED_SECONDS = 10.0  # for a request with the token to arrive
BACKLOG = 16  # connections that are accepted at once, before any of them is counted
_LOG_SECONDS = 60.0  # between two lines about the same problem of the server


def most_connections() -> int:
    """Return how many connections this process may have, by its limit of file descriptors."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(_LEAST_CONNECTIONS, min(MOST_CONNECTIONS, soft // _DESCRIPTORS_SHARE))


class Connections:
    """The open connections of a server, at most `most`. All methods belong to the loop's thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._untrusted: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}  # the oldest first, with its end
        self._trusted: set[asyncio.BaseTransport] = set()

    def __len__(self) -> int:
        return len(self._untrusted) + len(self._trusted)

    def admit(self, transport: asyncio.Transport) -> bool:
        """Count a new connection. When there are too many, the oldest without a valid request is
        closed for it; False: there is none, and the new one is closed."""
        if len(self) >= self._most:
            if not self._untrusted:
                transport.abort()
                return False
            self._end(next(iter(self._untrusted)))
        loop = asyncio.get_running_loop()
        self._untrusted[transport] = loop.call_later(UNTRUSTED_SECONDS, self._end, transport)
        return True

    def trust(self, transport: asyncio.BaseTransport | None) -> None:
        """A request with the token has come on this connection."""
        timer = None if transport is None else self._untrusted.pop(transport, None)
        if transport is not None and timer is not None:
            timer.cancel()
            self._trusted.add(transport)

    def forget(self, transport: asyncio.BaseTransport | None) -> None:
        """The connection has been closed."""
        if transport is not None:
            self._trusted.discard(transport)
            if (timer := self._untrusted.pop(transport, None)) is not None:
                timer.cancel()

    def _end(self, transport: asyncio.BaseTransport) -> None:
        self.forget(transport)
        if isinstance(transport, asyncio.Transport):
            transport.abort()


class CountedProtocol(asyncio.Protocol):
    """Passes a connection on to `inner` while `connections` has room for it."""

    def __init__(self, inner: asyncio.Protocol, connections: Connections) -> None:
        self._inner = inner
        self._connections = connections
        self._transport: asyncio.Transport | None = None  # None: refused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, and pass it on if there is room."""
        assert isinstance(transport, asyncio.Transport)
        if self._connections.admit(transport):
            self._transport = transport
            self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        if self._transport is not None:
            self._connections.forget(self._transport)
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on."""
        if self._transport is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass the end of the client's bytes on."""
        return None if self._transport is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pass on that the client reads slowly."""
        if self._transport is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the client has read."""
        if self._transport is not None:
            self._inner.resume_writing()


class SparseLog:
    """Problems of the server's loop as one line each, and the same one at most once a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next: dict[str, float] = {}

    def __call__(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's handler of exceptions."""
        error = context.get("exception")
        kind = f"{context.get('message', 'error')} {type(error).__name__}"
        if self._clock() >= self._next.get(kind, float("-inf")):
            self._next[kind] = self._clock() + _LOG_SECONDS
            _LOGGER.error("the live page's server: %s: %s", context.get("message", "error"), error)
