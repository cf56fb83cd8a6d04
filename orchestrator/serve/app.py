"""The server: requests, and the updates that it sends by server-sent events.

One task keeps the folds up to date; requests only read them. An event's id is the log's position,
so a browser that reconnects (`Last-Event-ID`) gets what it has not seen, also from a restarted
server.
"""

import asyncio
import contextlib
import functools
import gzip
import json
import re
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import plotly
from aiohttp import web

from orchestrator.errors import BbkbError
from orchestrator.history.fold import History
from orchestrator.history.one_trial import Plain
from orchestrator.report.page import resource as report_resource
from orchestrator.serve import views
from orchestrator.serve.access import HEADERS, Access, guard
from orchestrator.serve.feed import Feed
from orchestrator.serve.sources import Sources
from orchestrator.store import limited
from orchestrator.wording import printable

LOOK_SECONDS = 0.5  # between two reads of the logs
SOURCES_SECONDS = 5.0  # between two searches for new campaigns
TURN_SECONDS = 10.0  # for one campaign's new events to be read, before the others' are
FIRST_LOOK_SECONDS = 5.0  # for the first search and the first reading, before requests are answered
_TURN_LOOK_SECONDS = 0.002  # between two checks whether a thread has ended
REFRESH_SECONDS = 2.0  # an update without news: ages of running trials
HEARTBEAT_SECONDS = 15.0
# pictures are drawn again after this time, and their drawing takes at most this share of the time
PICTURES_SECONDS = 3.0
PICTURES_SHARE = 0.1
_SHUTDOWN_SECONDS = 3.0
MOST_COMPARED = 12
_MOST_DIGITS = 15
# in JSON: a backslash; a character that is not ASCII, except halves of surrogate pairs
_ESCAPES = re.compile(r"\\\\|\\u(?P<code>(?!d[89a-f])[0-9a-f]{4})")
_STREAM = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
# the files of this folder that the server sends: pages by their path, other files by their name
# below /static
_PAGES = {"/": "page.html", "/compare": "page.html", "/campaign/{name}": "page.html"}
_STATIC = {"page.js": "text/javascript", "page.css": "text/css"}


class Server:
    """The campaigns of a folder or database, with their folds."""

    def __init__(self, place: str) -> None:
        self._sources = Sources(place)
        self._feeds: dict[str, Feed] = {}
        self._pictures: dict[str, tuple[int, float, bytes]] = {}  # position, time of the next drawing, gzipped JSON
        self._drawing: dict[str, asyncio.Lock] = {}
        self._stop = asyncio.Event()
        self._has_looked, self._has_followed = asyncio.Event(), asyncio.Event()  # once
        self._tasks: list[asyncio.Task[None]] = []
        self._turns: dict[str, limited.Call[bool]] = {}  # what feeds do that have not ended, by their campaign

    @property
    def feeds(self) -> list[Feed]:
        """All campaigns."""
        return list(self._feeds.values())

    def application(
        self, access: Access, trust: Callable[[asyncio.BaseTransport | None], None] = lambda transport: None
    ) -> web.Application:
        """Return the web application. `trust` is called with the connection of each request that is
        admitted."""
        app = web.Application(middlewares=[guard(access, trust)])
        app.on_startup.append(self._begin)
        app.on_shutdown.append(self._end)
        app.add_routes(
            [
                *(web.get(path, functools.partial(_send_page, file)) for path, file in _PAGES.items()),
                web.get("/static/{file}", _send_static),
                web.get("/events", self._overview_events),
                web.get("/comparison", self._answer_comparison),
                web.get("/campaign/{name}/events", self._campaign_events),
                web.get("/campaign/{name}/pictures", self._answer_pictures),
                web.get("/campaign/{name}/trials", self._answer_trials),
                web.get("/campaign/{name}/trials/{trial}", self._answer_trial),
                web.post("/campaign/{name}/stop", self._answer_stop),
            ]
        )
        return app

    async def _begin(self, _app: web.Application) -> None:
        # the first request, which may come from a page that reconnects, finds the campaigns, unless
        # a run does not answer
        self._tasks = [asyncio.create_task(self._keep_looking())]
        await self._wait(self._has_looked)
        self._tasks.append(asyncio.create_task(self._follow()))
        await self._wait(self._has_followed)

    async def _wait(self, event: asyncio.Event) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), FIRST_LOOK_SECONDS)

    async def _end(self, _app: web.Application) -> None:
        self._stop.set()
        for task in self._tasks:
            await task
        for turn in self._turns.values():
            turn.leave()
        for feed in self.feeds:
            if feed.source.name not in self._turns:  # else its thread uses the connection
                feed.close()

    async def _follow(self) -> None:
        """Keep every fold up to date. A campaign whose store does not answer delays the others
        once, by `TURN_SECONDS`."""
        while not self._stop.is_set():
            is_behind = False
            for feed in self.feeds:
                is_behind |= await self._catch_up(feed)
                if self._stop.is_set():
                    return
            self._has_followed.set()
            await self._pause(0.0 if is_behind else LOOK_SECONDS)

    async def _catch_up(self, feed: Feed) -> bool:
        """Let a feed read and fold, and wait for it; returns whether there may be more."""
        name = feed.source.name
        is_late = name in self._turns
        turn = self._turns[name] if is_late else limited.Call(feed.catch_up)
        self._turns[name] = turn
        deadline = time.monotonic() + (0.0 if is_late else TURN_SECONDS)
        while not turn.is_over():
            if time.monotonic() >= deadline or self._stop.is_set():
                feed.problem = "its files or its database do not answer"
                return False
            await asyncio.sleep(_TURN_LOOK_SECONDS)
        del self._turns[name]
        return turn.result()

    async def _keep_looking(self) -> None:
        """Find new campaigns."""
        while not self._stop.is_set():
            await self._look_for_campaigns()
            self._has_looked.set()
            await self._pause(SOURCES_SECONDS)

    async def _look_for_campaigns(self) -> None:
        looking = limited.Call(self._sources.find)
        while not looking.is_over():
            if self._stop.is_set():
                return
            await asyncio.sleep(_TURN_LOOK_SECONDS)
        try:
            sources = looking.result()
        except Exception as error:
            for feed in self.feeds:
                feed.problem = limited.reason_of(error)
            return
        for source in sources:
            present = self._feeds.get(source.name)
            # a folder that could not be read may be readable now, or have been replaced
            if present is None or (not present.source.url and source != present.source):
                self._feeds[source.name] = Feed(source)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    def _feed(self, request: web.Request) -> Feed:
        return self._feed_named(request.match_info["name"])

    def _feed_named(self, name: str) -> Feed:
        feed = self._feeds.get(name)
        if feed is None:
            raise web.HTTPNotFound(text=f"there is no campaign {name}\n")
        return feed

    async def _overview_events(self, request: web.Request) -> web.StreamResponse:
        return await self._send(
            request,
            lambda: sum(feed.position for feed in self.feeds),
            lambda cursor: {"campaigns": views.overview(self.feeds)},
        )

    async def _campaign_events(self, request: web.Request) -> web.StreamResponse:
        feed = self._feed(request)
        return await self._send(
            request,
            lambda: feed.position,
            lambda cursor: feed.while_locked(lambda: views.update(feed, cursor, time.time())),
        )

    async def _send(
        self, request: web.Request, position: Callable[[], int], make: Callable[[int | None], Plain]
    ) -> web.StreamResponse:
        """Send `make(cursor)` whenever `position` has changed, until the browser disconnects or the
        server stops."""
        response = web.StreamResponse(headers={**HEADERS, **_STREAM})
        await response.prepare(request)
        cursor = _number(request.headers.get("Last-Event-ID", ""))
        last, looked, spoken = "", float("-inf"), time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            while not self._stop.is_set():
                now, reached = time.monotonic(), position()
                text = last
                if reached != cursor or now - looked >= REFRESH_SECONDS:
                    looked = now
                    text = _to_json(await asyncio.to_thread(make, cursor))
                if text != last:
                    await response.write(f"id: {reached}\ndata: {text}\n\n".encode())
                    cursor, last, spoken = reached, text, now
                elif now - spoken >= HEARTBEAT_SECONDS:
                    await response.write(b": still here\n\n")  # raises when the tab was closed
                    spoken = now
                await self._pause(LOOK_SECONDS)
        return response

    async def _answer_pictures(self, request: web.Request) -> web.Response:
        feed = self._feed(request)
        name = feed.source.name
        async with self._drawing.setdefault(name, asyncio.Lock()):
            position, due, body = self._pictures.get(name, (-1, float("-inf"), b""))
            if position != feed.position and time.monotonic() >= due:
                began = time.monotonic()
                pictures = await asyncio.to_thread(_draw, feed)
                if pictures is None:
                    raise web.HTTPServiceUnavailable(text="the log is being read\n")
                position, body = pictures
                took = time.monotonic() - began
                pause = max(PICTURES_SECONDS, took / PICTURES_SHARE)
                self._pictures[name] = (position, time.monotonic() + pause, body)
        return web.Response(body=body, content_type="application/json", headers={"Content-Encoding": "gzip"})

    async def _answer_comparison(self, request: web.Request) -> web.Response:
        names = list(dict.fromkeys(request.query.getall("campaign", [])))
        if len(names) > MOST_COMPARED:
            raise web.HTTPBadRequest(text=f"at most {MOST_COMPARED} campaigns can be compared, got {len(names)}\n")
        feeds = [self._feed_named(name) for name in names]
        compared = await asyncio.to_thread(_compare, feeds)
        return web.json_response(compared, dumps=_to_json)

    async def _answer_trials(self, request: web.Request) -> web.Response:
        page, order = _number(request.query.get("page", "")) or 0, request.query.get("order", "trial")
        is_descending, text = request.query.get("descending") == "1", request.query.get("text", "").strip()
        return await _read(self._feed(request), lambda history: views.trials(history, order, is_descending, text, page))

    async def _answer_trial(self, request: web.Request) -> web.Response:
        number = _number(request.match_info["trial"])
        feed = self._feed(request)
        return await _read(
            feed, lambda history: None if number is None else views.trial(history, number, feed.source.trials)
        )

    async def _answer_stop(self, request: web.Request) -> web.Response:
        feed = self._feed(request)
        try:
            body = await request.json()
            is_now = body.get("now") is True
        except (ValueError, AttributeError, LookupError, RecursionError) as error:  # also an unknown charset
            raise web.HTTPBadRequest(text='the body must be {"now": true} or {"now": false}\n') from error
        try:
            message = await asyncio.to_thread(feed.ask_to_stop, "now" if is_now else "drain")
        except BbkbError as error:
            return web.json_response({"message": str(error)}, status=409)
        return web.json_response({"message": message})


async def _send_page(file: str, _request: web.Request) -> web.Response:
    return web.Response(text=_resource(file), content_type="text/html")


async def _send_static(request: web.Request) -> web.StreamResponse:
    file = request.match_info["file"]
    if file == "plotly.min.js":
        path = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
        return web.FileResponse(path, headers={"Content-Type": "text/javascript"})
    if file == "figures.js":
        return web.Response(text=report_resource("figures.js"), content_type="text/javascript")
    if file == "report.css":
        return web.Response(text=report_resource("report.css"), content_type="text/css")
    if file not in _STATIC:
        raise web.HTTPNotFound
    return web.Response(text=_resource(file), content_type=_STATIC[file])


def _draw(feed: Feed) -> tuple[int, bytes] | None:
    history = feed.read(History.copy)
    if history is None:
        return None
    pictures = views.pictures(history)  # not under the lock: the fold continues meanwhile
    return int(pictures["position"]), gzip.compress(_to_json(pictures).encode(), compresslevel=5)


def _compare(feeds: list[Feed]) -> Plain:
    read = [(feed, feed.read(History.copy)) for feed in feeds]
    runs = [(feed.source.name, history) for feed, history in read if history is not None]
    unread = [(feed.source.name, "not read yet") for feed, history in read if history is None and not feed.problem]
    return views.comparison(runs, [*unread, *((feed.source.name, feed.problem) for feed in feeds if feed.problem)])


async def _read(feed: Feed, make: Callable[[History], Plain | None]) -> web.Response:
    answer = await asyncio.to_thread(feed.read, make)
    if answer is None:
        raise web.HTTPNotFound(text="there is no such trial\n")
    return web.json_response(answer, dumps=_to_json)


def _number(text: str) -> int | None:
    """Return a position that a browser sends; None for anything else, huge numbers included."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _to_json(value: object) -> str:
    """Return JSON with visible escapes for invisible and direction-changing characters."""
    return _ESCAPES.sub(_visible, json.dumps(value, allow_nan=False, separators=(",", ":"), default=str))


def _visible(match: re.Match[str]) -> str:
    character = chr(int(match["code"], 16)) if match["code"] else ""
    return match[0] if printable(character) == character else f"\\{match[0]}"


def _resource(name: str) -> str:
    return resources.files("orchestrator.serve").joinpath(name).read_text(encoding="utf-8")
