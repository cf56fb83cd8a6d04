"""The server of the live page.

The address contains a token that is new with each start, and the `Host` of every request is checked,
so that a name of another site that resolves to this machine (DNS rebinding) is rejected. The page is
for the user of this machine; for others, put a proxy with their log-in in front of it.
"""

import asyncio
import functools
import getpass
import hmac
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import plotly
from aiohttp import web
from aiohttp.typedefs import Handler

from bbkb.orchestrator.errors import BbkbError, UserError
from bbkb.orchestrator.report.page import page
from bbkb.orchestrator.report.watched import Campaigns, Watched, check_place
from bbkb.orchestrator.store.runs import looks_like_run

DEFAULT_PORT = 8270
_LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
_EVERYWHERE = frozenset({"0.0.0.0", "::"})
_START_SECONDS = 30.0
_SHUTDOWN_SECONDS = 3.0
_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Server:
    """Answers requests about the campaigns of a folder or database."""

    def __init__(self, place: str, hosts: frozenset[str] = _LOCAL) -> None:
        self.token = secrets.token_urlsafe(16)
        self._root = f"/{self.token}"
        self._campaigns = Campaigns(place)
        self._hosts = hosts

    def application(self) -> web.Application:
        """Return the web application."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            token = request.path.split("/")[1]
            if not hmac.compare_digest(token.encode(), self.token.encode()):
                raise web.HTTPForbidden(text="open the address that `bbkb serve` printed: it contains a token\n")
            try:
                host = urlsplit(f"//{request.host}").hostname
            except ValueError:
                host = None
            if host not in self._hosts:
                raise web.HTTPForbidden(text="this host name is not that of the page\n")
            try:
                response = await handler(request)
            except BbkbError as error:
                raise web.HTTPConflict(text=f"{error}\n") from error
            response.headers.update(_HEADERS)
            return response

        app = web.Application(middlewares=[guard])
        campaign = f"{self._root}/campaign/{{name}}"
        app.add_routes(
            [
                web.get(f"{self._root}/plotly.js", self._plotly),
                web.get(f"{self._root}/", self._page),
                web.get(f"{self._root}/snapshot", self._overview),
                web.get(f"{self._root}/compare/", self._page),
                web.get(f"{self._root}/compare/snapshot", self._compare),
                web.get(f"{campaign}/", self._page),
                web.get(f"{campaign}/snapshot", self._snapshot),
                web.get(f"{campaign}/trial/{{trial:[0-9]{{1,15}}}}", self._trial),
                web.post(f"{campaign}/stop", self._stop),
            ]
        )
        return app

    async def _page(self, request: web.Request) -> web.Response:
        title = request.match_info.get("name", "bbkb")
        text = page(title, None, f"{self._root}/plotly.js", self._root)
        return web.Response(text=text, content_type="text/html")

    async def _plotly(self, _request: web.Request) -> web.FileResponse:
        path = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
        return web.FileResponse(path, headers={"Content-Type": "text/javascript"})

    async def _overview(self, request: web.Request) -> web.Response:
        return _answer(request, *await asyncio.to_thread(self._campaigns.overview))

    async def _compare(self, request: web.Request) -> web.Response:
        names = request.query.getall("campaign", [])
        return _answer(request, *await asyncio.to_thread(self._campaigns.compare, names))

    async def _snapshot(self, request: web.Request) -> web.Response:
        watched = await self._named(request)
        return _answer(request, *await asyncio.to_thread(watched.answer))

    async def _trial(self, request: web.Request) -> web.Response:
        watched = await self._named(request)
        answer = await asyncio.to_thread(watched.trial, int(request.match_info["trial"]))
        if answer is None:
            raise web.HTTPNotFound(text="there is no such trial\n")
        return web.json_response(answer)

    async def _stop(self, request: web.Request) -> web.Response:
        watched = await self._named(request)
        try:
            # no form of another site can send this type
            is_now = (await request.json())["now"] if request.content_type == "application/json" else None
            if not isinstance(is_now, bool):
                raise TypeError
        except (ValueError, TypeError, LookupError, RecursionError) as error:  # also an unknown charset
            raise web.HTTPBadRequest(text='the body must be {"now": true} or {"now": false}\n') from error
        message = await asyncio.to_thread(watched.ask_to_stop, "now" if is_now else "drain")
        return web.json_response({"message": message})

    async def _named(self, request: web.Request) -> Watched:
        watched = await asyncio.to_thread(self._campaigns.named, request.match_info["name"])
        if watched is None:
            raise web.HTTPNotFound(text="there is no such campaign\n")
        return watched


def _answer(request: web.Request, tag: str, body: bytes) -> web.Response:
    """Return the body, or nothing if the browser has it."""
    headers = {"ETag": f'"{tag}"'}
    if request.headers.get("If-None-Match") == f'"{tag}"':
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type="application/json", headers={**headers, "Content-Encoding": "gzip"})


def serve(place: str, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, also in the background of a script, which ignores SIGINT. Raises
    UserError if `place` does not exist or the port cannot be opened."""
    path = ""
    if "://" in place:
        Campaigns(place).find()  # raises its errors before the server starts
    elif looks_like_run(check_place(place)):
        path = f"campaign/{quote(Path(place).resolve().name)}/"
    listening = _bind(host, port)
    server = Server(place, _hosts(host))

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        for line in _addresses(server, listening, host, path):
            say(line)
        say("Ctrl-C ends the server; campaigns continue")
        await _run_until(server, listening, stop)

    asyncio.run(run())


@contextmanager
def serve_in_thread(place: str, campaign: str, say: Callable[[str], None]) -> Iterator[None]:
    """Serve `place` in a thread while the body runs, on `DEFAULT_PORT`, or else on a free port.

    Raises the errors of `serve`.
    """
    host = "127.0.0.1"
    try:
        listening = _bind(host, DEFAULT_PORT)
    except UserError:
        listening = _bind(host, 0)
    server = Server(place)
    for line in _addresses(server, listening, host, f"campaign/{quote(campaign)}/"):
        say(line)
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    run = functools.partial(loop.run_until_complete, _run_until(server, listening, stop))
    thread = threading.Thread(target=run, name="serve", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(RuntimeError):  # it has failed
            loop.call_soon_threadsafe(stop.set)
        thread.join(_START_SECONDS)
        loop.close()


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UserError(
            f"the page cannot be served on {host}, port {port} ({error.strerror}): give another --port or --host"
        ) from error


def _hosts(host: str) -> frozenset[str]:
    named = {socket.getfqdn(), socket.gethostname()} if host in _EVERYWHERE else set()
    return frozenset(name.lower() for name in (*_LOCAL, host, *named))


def _addresses(server: Server, listening: socket.socket, host: str, path: str) -> list[str]:
    """Return the page's address and, in a remote shell, the command for a tunnel to it."""
    port = listening.getsockname()[1]
    name = socket.getfqdn() if host in _EVERYWHERE else host
    shown = f"[{name}]" if ":" in name else name
    lines = [f"live page http://{shown}:{port}/{server.token}/{path}"]
    if host in _LOCAL and os.environ.get("SSH_CONNECTION"):
        tunnel = f"ssh -L {port}:127.0.0.1:{port} {getpass.getuser()}@{socket.getfqdn()}"
        lines.append(f"from your own machine first: {tunnel}")
    return lines


async def _run_until(server: Server, listening: socket.socket, stop: asyncio.Event) -> None:
    """Serve on a socket until `stop` is set."""
    runner = web.AppRunner(server.application(), shutdown_timeout=_SHUTDOWN_SECONDS, access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        await stop.wait()
    finally:
        await runner.cleanup()
