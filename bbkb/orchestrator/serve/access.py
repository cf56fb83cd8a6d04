"""Access to the page: a token for every request, allowed host names, and a content security policy.

A browser's `EventSource` cannot send headers. So the first address contains the token, and the
server redirects to the address without it. From then on, the token is replaced by a cookie that
scripts cannot read and other sites cannot send. Browsers send a cookie to all ports of a host, so
its value is not the token but derived from it, and is valid only for this port and for at most two
weeks. The `Host` of every request is checked, so that a name of another site that resolves to this
machine (DNS rebinding) is rejected.
"""

import asyncio
import contextlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from bbkb.orchestrator.errors import UserError

HEADERS = {
    # plotly.js sets styles in its figures and compiles shaders
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
SESSION_SECONDS = 7 * 86_400  # a cookie is also accepted for one more such period
_AUTHORITY = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:@/\s]+))(?::[0-9]{1,5})?")
REQUEST_HEADER = "X-Requested-By"  # for changes: no form on another site can send it


@dataclass(frozen=True, slots=True)
class Access:
    """The token and host names of the server. `port` distinguishes the cookies of two servers."""

    token: str
    hosts: frozenset[str]
    port: int

    @property
    def cookie(self) -> str:
        """The cookie's name."""
        return f"bbkb-{self.port}"

    def admits(self, token: str) -> bool:
        """Return whether `token` is the server's token."""
        return _are_equal(token, self.token)

    def session(self, now: float, periods_ago: int = 0) -> str:
        """Return the cookie's value at `now` (wall clock), or its value some periods earlier."""
        period = int(now // SESSION_SECONDS) - periods_ago
        return hmac.new(self.token.encode(), f"page {self.port} {period}".encode(), "sha256").hexdigest()

    def admits_session(self, cookie: str, now: float) -> bool:
        """Return whether `cookie` is the value of this period or of the previous one."""
        return any(_are_equal(cookie, self.session(now, ago)) for ago in (0, 1))


def _are_equal(token: str, expected: str) -> bool:
    return hmac.compare_digest(token.encode(errors="surrogateescape"), expected.encode())


def read_token() -> str:
    """Return this user's token, which is created on first use.

    It does not change, so open pages survive a restart of the server. The file is
    `$XDG_CONFIG_HOME/bbkb/serve-token` (default `~/.config`), readable only by its owner. Raises
    UserError if it cannot be written, or if other users can read it.
    """
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "bbkb"
    file = folder / "serve-token"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as new:
                new.write(secrets.token_urlsafe(24))
        if file.stat().st_mode & 0o077:
            raise UserError(
                f"{file} must be readable by its owner only: chmod 600 {file}, or remove it to get a new token"
            )
        token = file.read_text(encoding="ascii").strip()
    except OSError as error:
        raise UserError(
            f"the page's token cannot be stored in {file}: {error.strerror}; set XDG_CONFIG_HOME"
        ) from error
    if len(token) < 16:
        raise UserError(f"{file} must hold a token of at least 16 characters: remove it to get a new one")
    return token


def guard(access: Access, trust: Callable[[asyncio.BaseTransport | None], None]) -> Middleware:
    """Return the middleware that admits requests.

    It calls `trust` with the connection of each admitted request.
    """

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await admit(request, handler)
        except web.HTTPException as refusal:
            refusal.headers.update(HEADERS)
            raise
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        if host_of(request.host) not in access.hosts:
            raise web.HTTPForbidden(text="bbkb serve: the server does not have this host name; see --host\n")
        token = request.query.get("token")
        if token is not None and request.method == "GET":
            if not access.admits(token):
                raise web.HTTPForbidden(text="bbkb serve: the token in this address is not the server's\n")
            answer = web.HTTPFound("/" + request.rel_url.raw_path.lstrip("/"))  # `//name` would be another server
            _set_session(answer, access)
            raise answer
        session = request.cookies.get(access.cookie, "")
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not (access.admits_session(session, time.time()) or access.admits(bearer)):
            raise web.HTTPUnauthorized(text="bbkb serve: open the address that the server printed, with its token\n")
        trust(request.transport)
        if request.method != "GET" and REQUEST_HEADER not in request.headers:
            raise web.HTTPForbidden(text=f"bbkb serve: the request must have the header {REQUEST_HEADER}\n")
        response = await handler(request)
        if session and session != access.session(time.time()) and not response.prepared:
            _set_session(response, access)  # renewed, so that an open page keeps its access
        return response

    return answer


def _set_session(response: web.StreamResponse, access: Access) -> None:
    session = access.session(time.time())
    response.set_cookie(access.cookie, session, httponly=True, samesite="Strict", path="/")


def host_of(authority: str) -> str:
    """Return the host in `name:port`, `1.2.3.4:port` or `[::1]:port`; empty for anything else."""
    match = _AUTHORITY.fullmatch(authority)
    return "" if match is None else match["address"] or match["name"]
