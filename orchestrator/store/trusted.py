"""Databases that this user has named: only to these do readers of a run's folder send anything from
the environment.

A run's folder may be somebody else's, or a copy of it, and its campaign file names the database.
Connecting sends the reader's password (PGPASSWORD, a password file), and `${VAR}` in the URL sends
any variable. So each URL is remembered when this user runs a campaign in it, and readers ask before
they connect to another one.
"""

import logging
import os
from pathlib import Path

from orchestrator import credentials, files
from orchestrator.errors import UserError

_LOGGER = logging.getLogger("bbkb.store")


def trust(url: str) -> None:
    """Remember that this user has named this database. Raises UserError."""
    file, line = _file(), credentials.redact(url)
    remembered = _read(file)
    if line in remembered:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=files.PRIVATE_FOLDER)
        files.write_text(file, "".join(f"{known_line}\n" for known_line in [*remembered, line]))
    except OSError as error:
        raise UserError(
            f"the databases that you use cannot be kept in {file}: {error.strerror}; set XDG_CONFIG_HOME"
        ) from error


def remember(url: str) -> None:
    """As `trust`, for a campaign's database: no error for want of a home folder."""
    try:
        trust(url)
    except UserError as error:
        _LOGGER.warning("%s. Commands that read the run will ask before they connect", error)


def is_trusted(url: str) -> bool:
    """Return whether this user has named this database."""
    return credentials.redact(url) in _read(_file())


def refusal(url: str, folder: Path) -> str:
    """Return why a reader of the run in `folder` does not connect to its database; empty when it
    may.

    It may when this user has named the database, or when the URL has no `${VAR}` and folder and
    campaign file are this user's.
    """
    if is_trusted(url):
        return ""
    redacted = credentials.redact(url)
    remedy = f"if you know this database, allow it by `bbkb store trust {folder}`"
    if credentials.has_variables(url):
        return (
            f"the campaign file in {folder} names the store {redacted}, which you have not used, and reading it would "
            f"send environment variables there: {remedy}"
        )
    if not is_own(folder):
        return (
            f"{folder} is another user's, and its campaign file names the store {redacted}, which you have not used: "
            f"{remedy}"
        )
    return ""


def is_own(folder: Path) -> bool:
    """Return whether a run's folder and its campaign file are this user's. Raises OSError."""
    return all(path.stat().st_uid == os.geteuid() for path in (folder, folder / "campaign.yaml"))


def _file() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "bbkb" / "stores"


def _read(file: Path) -> list[str]:
    """Return the lines of the file; none where it is not there or cannot be read."""
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
