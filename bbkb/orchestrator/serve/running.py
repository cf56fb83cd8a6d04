"""Runs the server: in the foreground for `bbkb serve`, or in a thread beside a campaign for `bbkb
run --serve`."""

import asyncio
import getpass
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.serve.access import Access, read_token
from bbkb.orchestrator.serve.app import Server
from bbkb.orchestrator.serve.connections import BACKLOG, Connections, CountedProtocol, SparseLog, most_connections
from bbkb.orchestrator.serve.sources import Sources, check_place
from bbkb.orchestrator.store.runs import looks_like_run

_LOGGER = logging.getLogger("bbkb.serve.requests")

LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
EVERYWHERE = frozenset({"0.0.0.0", "::"})
DEFAULT_PORT = 8270
_SHUTDOWN_SECONDS = 3.0
_START_SECONDS = 30.0


def serve(place: str, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve until interrupted. Raises UserError if `place` does not exist or the port cannot be
    opened."""
    page = page_of(place)  # raises its errors before the server starts
    listening = bind(host, port)
    access = _access(listening, host)
    for line in addresses(access, host, page):
        say(line)
    say("Ctrl-C ends the server; campaigns continue")
    asyncio.run(run_until(Server(place), access, listening, asyncio.Event()))


def page_of(place: str) -> str:
    """Return the path of the first page, which is the page of a run or the list of campaigns.

    Raises the errors of `Sources.find`.
    """
    if "://" in place:
        Sources(place).find()
    elif looks_like_run(check_place(place)):
        return f"campaign/{quote(Sources(place).find()[0].name)}"
    return ""


@contextmanager
def serve_in_thread(place: str, campaign: str, say: Callable[[str], None]) -> Iterator[None]:
    """Serve `place` in a thread while the body runs, on `DEFAULT_PORT`, or else on a free port.

    Raises the errors of `serve`.
    """
    try:
        listening = bind("127.0.0.1", DEFAULT_PORT)
    except UserError:
        listening = bind("127.0.0.1", 0)
    access = _access(listening, "127.0.0.1")
    for line in addresses(access, "127.0.0.1", f"campaign/{campaign}"):
        say(line)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(
        target=loop.run_until_complete,
        args=(run_until(Server(place), access, listening, stop),),
        name="serve",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_START_SECONDS)
        loop.close()


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on `host` and `port` (0: a free port).

    Raises UserError if it cannot be opened.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UserError(
            f"the page cannot be served on {host}, port {port} ({error.strerror}): give another --port or --host"
        ) from error


def addresses(access: Access, host: str, path: str) -> list[str]:
    """Return the page's address and, in a remote shell, the command for a tunnel to it."""
    name = socket.getfqdn() if host in EVERYWHERE else host
    shown = f"[{name}]" if ":" in name else name
    lines = [f"live page http://{shown}:{access.port}/{path}?token={access.token}"]
    if host in LOCAL and os.environ.get("SSH_CONNECTION"):
        host = f"{getpass.getuser()}@{socket.getfqdn()}"
        tunnel = f"ssh -L {access.port}:127.0.0.1:{access.port} {host}"
        lines.append(f"from your own machine first: {tunnel}")
    return lines


def _access(listening: socket.socket, host: str) -> Access:
    named = {socket.getfqdn(), socket.gethostname()} if host in EVERYWHERE else set()
    return Access(read_token(), LOCAL | {host} | named, listening.getsockname()[1])


def _is_error_of_server(record: logging.LogRecord) -> bool:
    """Return False for a malformed request, which anybody may send, as often as they like."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


async def run_until(
    server: Server, access: Access, listening: socket.socket, stop: asyncio.Event, most: int | None = None
) -> None:
    """Serve on a socket until `stop` is set, with at most `most` connections.

    The default is the largest number that the process can have.
    """
    loop = asyncio.get_running_loop()
    connections = Connections(most or most_connections())
    loop.set_exception_handler(SparseLog())
    application = server.application(access, connections.trust)
    _LOGGER.addFilter(_is_error_of_server)
    runner = web.AppRunner(application, shutdown_timeout=_SHUTDOWN_SECONDS, access_log=None, logger=_LOGGER)
    await runner.setup()
    assert runner.server is not None
    handler = runner.server
    try:
        accepting = await loop.create_server(
            lambda: CountedProtocol(handler(), connections), sock=listening, backlog=BACKLOG
        )
        await stop.wait()
        accepting.close()
    finally:
        await runner.cleanup()
