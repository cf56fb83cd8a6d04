"""Credentials in the URL of a database: resolved when a connection is made, left out when the URL is
stored or displayed.

A password can be where libpq finds it (PGPASSWORD, the password file `~/.pgpass` or PGPASSFILE, a
service file), in an environment variable to which the URL refers as `${VAR}`, or in the URL itself.
Only what a user wrote as a URL is parsed; `sqlite:///FILE` names the file FILE as it is.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlalchemy as sa

SQLITE = "sqlite:///"
HIDDEN = "***"
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_IS_REFERENCE = r"\$\{\w+\}"
# `scheme://user:password@`; the password ends at the last `@` of a word, or of a text that is one URL.
# YAML reads `//user: password@` as a mapping. The first group begins a word, so the search is linear.
_ONE_URL = re.compile(rf"\A([\w+.-]+://[^:/@?]*:)(?!{_IS_REFERENCE}@).*@", re.DOTALL)
_PASSWORD = re.compile(rf"(?<![\w+.-])([\w+.-]+://[^:/@?\s'\"]*(?:['\"]?:[ ]['\"]?|:))(?!{_IS_REFERENCE}@)[^\s'\"]*@")
_KEYS = "password|passwd|token|secret"
_SETTING = re.compile(
    rf"(?i)((?:^|[?&;\s'\"])[\w.-]*?(?:{_KEYS})[ ]?=[ ]?)(?!{_IS_REFERENCE})('[^']*'|\"[^\"]*\"|[^&;\s'\"]+)"
)
_SHORTEST_SECRET = 3  # hiding shorter passwords would hide common letters of a message


class UnsetVariableError(Exception):
    """A URL refers to an environment variable that is not set; the message is its name."""


def redact(text: str) -> str:
    """Return a text, perhaps with URLs, with `***` for every password; `${VAR}` remains."""
    text = _ONE_URL.sub(rf"\1{HIDDEN}@", text)
    return _SETTING.sub(rf"\1{HIDDEN}", _PASSWORD.sub(rf"\1{HIDDEN}@", text))


def stored(url: str) -> str:
    """Return a URL without its passwords, as it is stored and displayed; `${VAR}` remains."""
    parsed = None if url.startswith(SQLITE) or "://" not in url else _parse(url)
    if parsed is None:
        return url if url.startswith(SQLITE) else redact(url)
    secrets = {key for key, value in parsed.query.items() if re.search(_KEYS, key, re.I) and not _is_reference(value)}
    without = parsed.difference_update_query(secrets)
    if parsed.password is not None and not _is_reference(parsed.password):
        without = without._replace(password=None)
    return url if without == parsed else without.render_as_string(hide_password=False)


def has_password(url: str) -> bool:
    """Return whether the URL itself contains a password."""
    return stored(url) != url


def resolve_url(url: str, environment: Mapping[str, str] = os.environ) -> "sa.URL":
    """Return the URL to connect with. A `${VAR}` is replaced in a part of the URL, so that its value
    may have any character.

    Raises UnsetVariableError, and ValueError if the text is not a URL.
    """
    # a variable may also be the whole URL, or its port
    parsed = _parse(url) or _parse(in_environment(url, environment))
    if parsed is None:
        raise ValueError("it cannot be parsed")

    def expand(text: object) -> str | None:
        return None if text is None else in_environment(str(text), environment)

    query = {
        key: in_environment(value, environment)
        if isinstance(value, str)
        else tuple(in_environment(item, environment) for item in value)
        for key, value in parsed.query.items()
    }
    user, password, host, database = map(expand, (parsed.username, parsed.password, parsed.host, parsed.database))
    return parsed.create(parsed.drivername, user, password, host, parsed.port, database, query)


def mistake_in_url(url: str) -> str:
    """Return the mistake in a URL, without its passwords. Empty if the URL is valid, or if it refers
    to variables, whose values only the connecting process knows."""
    is_known = "://" in url and not url.startswith(SQLITE) and not _REFERENCE.search(url)
    return "it cannot be parsed" if is_known and _parse(url) is None else ""


def without_secrets(message: str, url: str) -> str:
    """Return a driver's message about `url` without the URL's passwords."""
    secrets: list[object] = []
    with suppress(UnsetVariableError, ValueError):
        resolved = resolve_url(url)
        secrets = [resolved.password, resolved.query.get("password"), resolved.query.get("sslpassword")]
    for secret in secrets:
        if secret and len(str(secret)) >= _SHORTEST_SECRET:
            message = message.replace(str(secret), HIDDEN)
    return redact(message)


def in_environment(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return `text` with every `${VAR}` replaced. Raises UnsetVariableError."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise UnsetVariableError(match[1])
        return environment[match[1]]

    return _REFERENCE.sub(value, text)


def _parse(url: str) -> "sa.URL | None":
    import sqlalchemy as sa
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return sa.make_url(url)
    except (SQLAlchemyError, ValueError):
        return None


def _is_reference(value: object) -> bool:
    return _REFERENCE.fullmatch(str(value)) is not None
