"""The live page: its server, and the campaigns of a folder or database, each with the history of its log.

A request reads the new events of one campaign; nothing runs between requests. Every error becomes a
text, so that one damaged run does not hide the others.

The address contains a token that is new with each start, and the `Host` of every request is checked,
so that a name of another site that resolves to this machine (DNS rebinding) is rejected. The page is
for the user of this machine; for others, put a proxy with their log-in in front of it.
"""

import asyncio
import functools
import getpass
import gzip
import hmac
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

import plotly
from aiohttp import web
from aiohttp.typedefs import Handler

from bbkb.orchestrator.campaign.events import CampaignCreated, Phase
from bbkb.orchestrator.errors import BbkbError, RunError, UserError, reason_of
from bbkb.orchestrator.history.comparing import side_by_side
from bbkb.orchestrator.history.fold import History, Overview, advance, begin, read_overview
from bbkb.orchestrator.history.tables import strict_json
from bbkb.orchestrator.report.one_trial import Plain, describe_trial, trial_lines
from bbkb.orchestrator.report.page import draw, page, plain_figure, snapshot, to_json
from bbkb.orchestrator.report.progress import comparison
from bbkb.orchestrator.store.lease import Watch
from bbkb.orchestrator.store.runs import Run, looks_like_run, open_run
from bbkb.orchestrator.store.store import EventStore, Holding, Stop
from bbkb.orchestrator.wording import moment, printable
from bbkb.workers.output import find_output, read_end, written_attempts

MOST_COMPARED = 12
_FRESH_SECONDS = 2  # the age of a snapshot of a running campaign: its running trials get older
# The shortest time between two drawings, and the largest share of the time for drawing
_PICTURES_SECONDS = 3.0
_PICTURES_SHARE = 0.1
_OUTPUTS = 3  # the number of attempts of a trial whose output is shown
_OUTPUT_BYTES = 32 * 1024  # the part shown from the end of each output


@dataclass(slots=True)
class Watched:
    """A campaign. `read` and `answer` are called by one thread at a time."""

    name: str
    run: Run
    problem: str = ""  # the reason that the folder cannot be opened as a run
    lock: threading.Lock = field(default_factory=threading.Lock)
    history: History | None = None
    holding: Holding = field(default_factory=lambda: Holding(0))
    is_held: bool | None = None  # whether a process runs it; None if unknown
    _watch: Watch = field(default_factory=Watch)
    _figures: list[Plain] = field(default_factory=list)
    _drawn_at: int = -1  # the position of the figures
    _draw_next: float = 0.0
    _body: tuple[str, bytes] = ("", b"")  # the newest answer with its tag
    _overview: tuple[int, Overview] | None = None  # with the length of the log

    def read(self) -> History:
        """Read the new events. Raises the errors of the store, and RunError if there is no log."""
        with self._open() as store:
            self.holding = store.holding(self.run.name)  # before the log: a session may close in between
            self.is_held = self._watch.is_held(self.holding)
            history = self.history
            for event in store.read(self.run.name, after=0 if history is None else history.position):
                if history is not None:
                    advance(history, event)
                elif isinstance(event, CampaignCreated):
                    self.history = history = begin(event)
                else:
                    break
        if history is None:
            gone = "it was deleted" if not self.run.folder.exists() and self.run.has_own_log else "it has no log"
            raise RunError(f"{self.name} cannot be shown: {gone}")
        return history

    def _open(self) -> AbstractContextManager[EventStore]:
        if self.problem:
            raise RunError(self.problem)
        return self.run.store()

    def answer(self) -> tuple[str, bytes]:
        """Return the snapshot as gzipped JSON, and a tag that changes with it."""
        with self.lock:
            try:
                history = self.read()
            except Exception as error:
                self.history = None  # an event that cannot be folded may have been folded in part
                return _packed(f"{hash(str(error))}", {"problem": reason_of(error)})
            is_open = history.campaign.session.phase is not Phase.CLOSED
            is_running = self.is_held is not False and is_open and bool(history.sessions)
            age = int(time.time()) // _FRESH_SECONDS if is_running else 0
            is_due = self._drawn_at != history.position and time.monotonic() >= self._draw_next
            tag = f"{history.position}-{age}-{self.is_held}-{history.position if is_due else self._drawn_at}"
            if self._body[0] == tag:
                return self._body
            if is_due:
                began = time.monotonic()
                self._figures, self._drawn_at = draw(history), history.position
                took = time.monotonic() - began
                self._draw_next = began + took + max(_PICTURES_SECONDS, took / _PICTURES_SHARE)
            now = None if not is_running or history.is_virtual else time.time()
            data = snapshot(history, str(self.run.folder), now, self._figures, has_ended=not is_running)
            if is_running:
                data["state"] = "stopping" if history.campaign.session.phase is Phase.STOPPING else "running"
            data["held"] = self.holding.holder if is_running else False
            self._body = _packed(tag, data)
            return self._body

    def overview(self) -> Plain:
        """Return the line in the list of campaigns."""
        line: Plain = {"name": self.name, "state": "unreadable", "problem": "", "last": 0.0}
        with self.lock:
            try:
                with self._open() as store:
                    length = store.length(self.run.name)
                    held = self._watch.is_held(store.holding(self.run.name))
                    if self._overview is None or self._overview[0] != length:
                        self._overview = length, read_overview(self.run, store)
            except Exception as error:
                return line | {"problem": reason_of(error)}
            seen = self._overview[1]
        status = seen.status
        is_open = status.phase in ("running", "stopping")
        return line | {
            "state": status.phase if is_open and held is not False else str(seen.state),
            "strategy": seen.strategy,
            "tags": " ".join(seen.tags),
            "began": moment(seen.began),
            "trials": status.trials_text,
            "best": f"{seen.best} ({status.best.direction[:3]})" if seen.best else "",
            "last": status.last_time,
            "updated": moment(status.last_time),
        }

    def trial(self, number: int) -> Plain | None:
        """Return a trial as lines of text, and the end of the output of its newest attempts."""
        with self.lock:
            described = describe_trial(self.read(), number)
        if described is None:
            return None
        folder = self.run.trials
        try:
            outputs = [
                {"attempt": attempt, "text": printable(text.decode("utf-8", errors="replace"))}
                for attempt in written_attempts(folder, number)[-_OUTPUTS:]
                for text in [read_end(find_output(folder, number, attempt), _OUTPUT_BYTES)]
            ]
        except OSError as error:  # it may be another user's run
            outputs = [{"attempt": 0, "text": f"(unreadable: {error.strerror})"}]
        return {"lines": [printable(line) for line in trial_lines(described)], "outputs": outputs}

    def ask_to_stop(self, stop: Stop) -> str:
        """Ask the process that runs the campaign to drain or to stop, and return a message.

        Raises RunError if no process runs it, and StoreError if the store cannot be used.
        """
        with self._open() as store:
            holding = store.holding(self.run.name)
            if not holding.holder or not store.ask_to_stop(self.run.name, holding.epoch, stop):
                raise RunError(f"{self.name} cannot be stopped: no process runs it")
        return f"asked {holding.holder} to stop {'at once' if stop == 'now' else 'after its running evaluations'}"


class Campaigns:
    """The campaigns of `place`: a run's folder, a folder of runs, or a database's URL."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._known: dict[str, Watched] = {}
        self._lock = threading.Lock()

    def find(self) -> list[Watched]:
        """Return all campaigns. Raises UserError if the folder does not exist, and StoreError if the
        database cannot be read."""
        with self._lock:
            found = dict(self._runs())
            for name, (run, problem) in found.items():
                known = self._known.get(name)
                if known is None or (known.run, known.problem) != (run, problem):
                    self._known[name] = Watched(name, run, problem)
            return [self._known[name] for name in found]

    def named(self, name: str) -> Watched | None:
        """Return a campaign, also one that was deleted since it was shown; None if there is none."""
        return self._known.get(name) or next((one for one in self.find() if one.name == name), None)

    def overview(self) -> tuple[str, bytes]:
        """Return a line for each campaign, running ones first, as gzipped JSON with its tag."""
        lines = [one.overview() for one in self.find()]
        lines.sort(key=lambda line: (line["state"] != "running", -line["last"], line["name"]))
        return _packed(f"{hash(str(lines))}", {"campaigns": lines})

    def compare(self, names: list[str]) -> tuple[str, bytes]:
        """Return a comparison of campaigns: their results, the differences between their files, and
        the courses of their best values."""
        runs, problems = [], []
        for name in dict.fromkeys(names[:MOST_COMPARED]):
            watched = self.named(name)
            try:
                if watched is None:
                    raise RunError("there is no such campaign")
                with watched.lock:
                    runs.append((name, watched.read().copy()))
            except Exception as error:
                problems.append((name, reason_of(error)))
        data = {
            "problems": problems,
            "names": [name for name, _ in runs],
            "rows": side_by_side([history for _, history in runs]) if runs else [],
            "figures": list(map(plain_figure, comparison(runs))),
        }
        return _packed("-".join(f"{name}:{history.position}" for name, history in runs), data)

    def _runs(self) -> Iterator[tuple[str, tuple[Run, str]]]:
        if "://" in self._place:
            store = EventStore(self._place)
            try:
                yield from ((name, (Run(Path(name), self._place, name), "")) for name in store.names())
            finally:
                store.close()
            return
        folder = check_place(self._place)
        for path in [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]:
            if looks_like_run(path):
                try:
                    yield path.name, (open_run(path), "")
                except Exception as error:
                    yield path.name, (Run(path, ""), reason_of(error))


def check_place(place: str) -> Path:
    """Return the folder of runs at `place`. Raises UserError if it does not exist."""
    folder = Path(place).resolve()
    if not folder.is_dir():
        raise UserError(f"the place to serve must be a folder of runs or a database URL, got {place}: no such folder")
    return folder


def _packed(tag: str, data: Plain) -> tuple[str, bytes]:
    return tag, gzip.compress(to_json(strict_json(data)).encode(), compresslevel=5)


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
