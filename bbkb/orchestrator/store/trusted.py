"""The databases that this user trusts. A command that reads a run's folder never sends passwords or
environment variables to a database that is not trusted.

A run's folder may belong to another user, and its campaign file names the database. Connecting
sends the reader's password (PGPASSWORD, a password file), and a `${VAR}` in the URL sends the value
of any variable. So each URL is remembered when this user runs a campaign with it, and readers
refuse to connect to other databases.
"""

import logging
import os
from pathlib import Path

from bbkb.orchestrator import credentials, files
from bbkb.orchestrator.errors import UserError

_LOGGER = logging.getLogger("bbkb.store")


def trust(url: str) -> None:
    """Remember that this user trusts a database. Raises UserError if the list cannot be written."""
    file = _file()
    line = credentials.redact(url)
    remembered = _read(file)
    if line in remembered:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=files.PRIVATE_FOLDER)
        files.write_text(file, "".join(f"{known_line}\n" for known_line in [*remembered, line]))
    except OSError as error:
        raise UserError(
            f"the databases that you trust cannot be stored in {file}: {error.strerror}; set XDG_CONFIG_HOME"
        ) from error


def remember(url: str) -> None:
    """Trust the database of a campaign. If the list cannot be written, only a warning is logged."""
    try:
        trust(url)
    except UserError as error:
        _LOGGER.warning("%s. Commands that read the run will ask before they connect", error)


def is_trusted(url: str) -> bool:
    """Return whether this user trusts this database."""
    return credentials.redact(url) in _read(_file())


def refusal(url: str, folder: Path) -> str:
    """Return the reason not to connect to the database of the run in `folder`; empty if connecting
    is allowed.

    It is allowed if this user trusts the database, or if the URL has no `${VAR}` and the folder and
    its campaign file belong to this user.
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
    """Return whether a run's folder and its campaign file belong to this user. Raises OSError."""
    return all(path.stat().st_uid == os.geteuid() for path in (folder, folder / "campaign.yaml"))


def _file() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "bbkb" / "stores"


def _read(file: Path) -> list[str]:
    """Return the lines of the file, or none if it is missing or cannot be read."""
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
