"""The server: responses to requests, and updates by server-sent events.

Requests only read the histories that `Campaigns` keeps up to date. The id of an event is a position
in the log, so a browser that reconnects (`Last-Event-ID`) gets the new part, even after a restart of
the server.
"""

import asyncio
import contextlib
import functools
import gzip
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import plotly
from aiohttp import web

from bbkb.orchestrator.errors import BbkbError
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.one_trial import Plain
from bbkb.orchestrator.report.figure import resource
from bbkb.orchestrator.serve import views
from bbkb.orchestrator.serve.access import HEADERS, Access, guard
from bbkb.orchestrator.serve.campaigns import READ_SECONDS, Campaigns
from bbkb.orchestrator.serve.feed import Feed
from bbkb.orchestrator.wording import printable

REFRESH_SECONDS = 2.0  # between two updates without new events (ages of running trials)
HEARTBEAT_SECONDS = 15.0
# The shortest time between two drawings, and the largest share of the time for drawing
PICTURES_SECONDS = 3.0
PICTURES_SHARE = 0.1
_SHUTDOWN_SECONDS = 3.0
MOST_COMPARED = 12
_MOST_DIGITS = 15
# in JSON: a backslash, or a non-ASCII character except halves of surrogate pairs
_ESCAPES = re.compile(r"\\\\|\\u(?P<code>(?!d[89a-f])[0-9a-f]{4})")
_STREAM = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
# The files that the server sends: pages by path, other files by name below /static
_PAGES = {"/": "page.html", "/compare": "page.html", "/campaign/{name}": "page.html"}
_STATIC = {
    "page.js": ("serve", "text/javascript"),
    "page.css": ("serve", "text/css"),
    "figures.js": ("report", "text/javascript"),
    "report.css": ("report", "text/css"),
}


class Server:
    """Answers requests about the campaigns of a folder or database."""

    def __init__(self, place: str) -> None:
        self._campaigns = Campaigns(place)
        # campaign → position, time of the next drawing, and pictures as gzipped JSON
        self._pictures: dict[str, tuple[int, float, bytes]] = {}
        self._drawing: dict[str, asyncio.Lock] = {}

    def application(
        self, access: Access, trust: Callable[[asyncio.BaseTransport | None], None] = lambda transport: None
    ) -> web.Application:
        """Return the web application.

        Args:
            access: decides which requests are admitted.
            trust: called with the connection of each admitted request.
        """
        app = web.Application(middlewares=[guard(access, trust)])
        app.on_startup.append(lambda _: self._campaigns.start())
        app.on_shutdown.append(lambda _: self._campaigns.close())
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

    async def _feed(self, request: web.Request) -> Feed:
        return await self._feed_named(request.match_info["name"])

    async def _feed_named(self, name: str) -> Feed:
        feed = await self._campaigns.open(name)
        if feed is None:
            raise web.HTTPNotFound(text=f"there is no campaign {name}\n")
        return feed

    async def _overview_events(self, request: web.Request) -> web.StreamResponse:
        return await self._send(
            request,
            lambda: sum(feed.position for feed in self._campaigns.feeds),
            lambda cursor: {"campaigns": views.overview(self._campaigns.feeds)},
        )

    async def _campaign_events(self, request: web.Request) -> web.StreamResponse:
        feed = await self._feed(request)

        def update(cursor: int | None) -> Plain:
            with feed.lock:
                return views.update(feed, cursor, time.time())

        return await self._send(request, lambda: feed.position, update)

    async def _send(
        self, request: web.Request, position: Callable[[], int], make: Callable[[int | None], Plain]
    ) -> web.StreamResponse:
        """Send `make(cursor)` when `position` has changed, until the browser disconnects or the
        server stops."""
        response = web.StreamResponse(headers={**HEADERS, **_STREAM})
        await response.prepare(request)
        cursor = _number(request.headers.get("Last-Event-ID", ""))
        last_text = ""
        made_at = float("-inf")
        sent_at = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            while not self._campaigns.stop.is_set():
                now = time.monotonic()
                reached = position()
                text = last_text
                if reached != cursor or now - made_at >= REFRESH_SECONDS:
                    made_at = now
                    text = _to_json(await asyncio.to_thread(make, cursor))
                if text != last_text:
                    await response.write(f"id: {reached}\ndata: {text}\n\n".encode())
                    cursor = reached
                    last_text = text
                    sent_at = now
                elif now - sent_at >= HEARTBEAT_SECONDS:
                    await response.write(b": still here\n\n")  # raises if the tab was closed
                    sent_at = now
                await self._campaigns.pause(READ_SECONDS)
        return response

    async def _answer_pictures(self, request: web.Request) -> web.Response:
        feed = await self._feed(request)
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
        feeds = await asyncio.gather(*map(self._feed_named, names))
        return web.json_response(await asyncio.to_thread(_compare, feeds), dumps=_to_json)

    async def _answer_trials(self, request: web.Request) -> web.Response:
        query = request.query
        page = _number(query.get("page", "")) or 0
        order = query.get("order", "trial")
        is_descending = query.get("descending") == "1"
        text = query.get("text", "").strip()
        return await _read(
            await self._feed(request),
            lambda history: views.trials(history, order, is_descending, text, page),
        )

    async def _answer_trial(self, request: web.Request) -> web.Response:
        number = _number(request.match_info["trial"])
        feed = await self._feed(request)
        return await _read(
            feed, lambda history: None if number is None else views.trial(history, number, feed.source.trials)
        )

    async def _answer_stop(self, request: web.Request) -> web.Response:
        feed = await self._feed(request)
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
    return web.Response(text=resource(file, "serve"), content_type="text/html")


async def _send_static(request: web.Request) -> web.StreamResponse:
    file = request.match_info["file"]
    if file == "plotly.min.js":
        path = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
        return web.FileResponse(path, headers={"Content-Type": "text/javascript"})
    if file not in _STATIC:
        raise web.HTTPNotFound
    package, kind = _STATIC[file]
    return web.Response(text=resource(file, package), content_type=kind)


def _draw(feed: Feed) -> tuple[int, bytes] | None:
    history = feed.read(History.copy)
    if history is None:
        return None
    pictures = views.pictures(history)  # not under the lock, so that other threads can read the log
    return int(pictures["position"]), gzip.compress(_to_json(pictures).encode(), compresslevel=5)


def _compare(feeds: Sequence[Feed]) -> Plain:
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
    """Return the number in a request; None if the text is not a number or the number is huge."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _to_json(value: object) -> str:
    """Return JSON in which invisible and direction-changing characters are escaped."""
    return _ESCAPES.sub(_visible, json.dumps(value, allow_nan=False, separators=(",", ":"), default=str))


def _visible(match: re.Match[str]) -> str:
    character = chr(int(match["code"], 16)) if match["code"] else ""
    return match[0] if printable(character) == character else f"\\{match[0]}"
