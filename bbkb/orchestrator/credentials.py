"""Credentials in the URL of a database: resolved when a connection is made, hidden when the URL is
written or displayed.

A password can be stored where libpq finds it (PGPASSWORD, the password file `~/.pgpass` or
PGPASSFILE, a service file), in an environment variable to which the URL refers as `${VAR}`, or in
the URL itself. The stored URL keeps `${VAR}` unchanged and has `***` instead of a password;
`resolve_url` converts it to the URL that the driver needs.
"""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import sqlalchemy as sa

HIDDEN = "***"
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WITH_PASSWORD = re.compile(  # also for `//user: password@host`, which YAML reads as a mapping
    # the first group makes the search linear: a long word is tried from its beginning only
    r"(?<![\w+.-])(?P<head>[\w+.-]+://[^:/@?\s'\"]*(?:['\"]?:[ ]['\"]?|:))(?P<rest>[^\s'\"]*)"
)
_ONE_URL = re.compile(r"(?P<head>[\w+.-]+://[^:/@?]*:)(?P<rest>.*)", re.DOTALL)
_SETTING = re.compile(  # keys in a URL's query, in libpq's `key=value key='value'` and in `--set`
    r"(?P<head>(?:^|[?&;\s'\"])(?P<key>[\w.%-]+)[ ]?=[ ]?)(?P<secret>'[^']*'|\"[^\"]*\"|[^&;\s'\"]*)"
)
_SECRET_ENDINGS = ("password", "passwd", "token", "secret", "webhook")
_SHORTEST_SECRET = 3  # redacting shorter passwords would hide common letters of a message


class UnsetVariableError(Exception):
    """A URL refers to an environment variable that is not set; the message is its name."""


def redact(text: str) -> str:
    """Return `text`, perhaps with URLs, with `***` for every password; `${VAR}` remains."""
    return _SETTING.sub(_hide_value, _pattern(text).sub(_hide_password, text))


def has_password(url: str) -> bool:
    """Return whether the URL itself contains a password."""
    return any(secret != HIDDEN for secret in _literal_secrets(url))


def has_variables(url: str) -> bool:
    """Return whether the URL refers to environment variables as `${VAR}`."""
    return _REFERENCE.search(url) is not None


def resolve_url(url: str, environment: Mapping[str, str] = os.environ) -> "sa.URL":
    """Return the URL to connect with: `${VAR}` is replaced, and a hidden password is removed so that
    libpq looks it up.

    Raises UnsetVariableError, and SQLAlchemy's ArgumentError or ValueError if the text is not a
    URL.
    """
    import sqlalchemy as sa
    from sqlalchemy.exc import SQLAlchemyError

    try:
        parsed = sa.make_url(url)
    except (SQLAlchemyError, ValueError):  # a variable is the whole URL, or its port
        return _without_hidden(sa.make_url(in_environment(url, environment)))
    return _without_hidden(_with_variables(parsed, environment))


def mistake_in_url(url: str) -> str:
    """Return the mistake in a URL, without its passwords. Empty if the URL is valid, or if it
    refers to variables, whose values only the connecting process knows."""
    if "://" not in url or _REFERENCE.search(url):
        return ""
    import sqlalchemy as sa
    from sqlalchemy.exc import SQLAlchemyError

    try:
        sa.make_url(url)
    except (SQLAlchemyError, ValueError) as error:
        return without_secrets(str(error), url)
    return ""


def without_secrets(message: str, url: str) -> str:
    """Return a driver's message about `url` without the URL's passwords."""
    from sqlalchemy.exc import SQLAlchemyError

    secrets = set(_literal_secrets(url))
    try:
        parsed = resolve_url(url)
        secrets |= {
            str(parsed.password or ""),
            *(str(parsed.query.get(key, "")) for key in ("password", "sslpassword")),
        }
    except (UnsetVariableError, SQLAlchemyError, ValueError):
        pass  # there is no other secret to hide
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            message = message.replace(secret, HIDDEN)
    return redact(message)


def hide_address(url: str) -> str:
    """Return a secret address (of a webhook) as scheme, host and `***`; `${VAR}` remains."""
    parts = urlsplit(url)
    return url if "${" in url else f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{HIDDEN}"


def _pattern(text: str) -> re.Pattern[str]:
    """Choose the pattern that finds passwords. Only a text that is entirely a URL may contain
    spaces and quotes."""
    return _ONE_URL if _ONE_URL.fullmatch(text) else _WITH_PASSWORD


def _hide_password(match: re.Match[str]) -> str:
    password, at, address = _split(match["rest"])
    is_shown = not at or _REFERENCE.fullmatch(password)
    return match[0] if is_shown else f"{match['head']}{HIDDEN}@{address}"


def _hide_value(match: re.Match[str]) -> str:
    is_shown = not _is_secret(match) or _REFERENCE.fullmatch(match["secret"])
    return match[0] if is_shown else f"{match['head']}{HIDDEN}"


def _is_secret(setting: re.Match[str]) -> bool:
    """Return whether a key refers to a secret. The keys of a URL may be percent-encoded."""
    return unquote(setting["key"]).lower().endswith(_SECRET_ENDINGS)


def _split(address: str) -> tuple[str, str, str]:
    """Return password, `@` and the remaining text. A password may contain `/` and even a bare
    `@`."""
    password, at, address = address.partition("@")
    while at and "@" in (host := re.split(r"[/?]", address, maxsplit=1)[0]):
        password_end, _, _ = host.partition("@")
        password = f"{password}@{password_end}"
        address = address[len(password_end) + 1 :]
    return password, at, address


def _literal_secrets(url: str) -> list[str]:
    secrets = []
    for match in _pattern(url).finditer(url):
        password, at, _ = _split(match["rest"])
        secrets += [password] if at else []
    secrets += [match["secret"] for match in _SETTING.finditer(url) if _is_secret(match)]
    return [secret for secret in secrets if secret and not _REFERENCE.fullmatch(secret)]


def in_environment(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return `text` with every `${VAR}` replaced. Raises UnsetVariableError."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise UnsetVariableError(match[1])
        return environment[match[1]]

    return _REFERENCE.sub(value, text)


def _with_variables(url: "sa.URL", environment: Mapping[str, str]) -> "sa.URL":
    """Replace `${VAR}` in each part of the URL, so that a value may have any character."""

    def expand(text: str | None) -> str | None:
        return None if text is None else in_environment(text, environment)

    query = {
        key: in_environment(value, environment)
        if isinstance(value, str)
        else tuple(in_environment(item, environment) for item in value)
        for key, value in url.query.items()
    }
    password = None if url.password is None else str(url.password)
    user, host, database = map(expand, (url.username, url.host, url.database))
    return url.create(url.drivername, user, expand(password), host, url.port, database, query)


def _without_hidden(url: "sa.URL") -> "sa.URL":
    query = {key: value for key, value in url.query.items() if value != HIDDEN}
    password = None if url.password in (None, HIDDEN) else str(url.password)
    return url.create(url.drivername, url.username, password, url.host, url.port, url.database, query)
