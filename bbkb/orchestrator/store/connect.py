"""Connections to a log in a SQLite file or on a PostgreSQL server, and the translation of their
errors into `StoreError`.

The place of a log is a `Path`, or the URL that a user wrote. Only a URL is parsed and has `${VAR}`
replaced; a path may contain any characters. `sqlite:///FILE` names the file FILE as it is.
"""

import errno
import fcntl
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

from bbkb.orchestrator import credentials
from bbkb.orchestrator.credentials import SQLITE, stored
from bbkb.orchestrator.errors import StoreError

Place = Path | str
BUSY_SECONDS = 30  # the wait while another process writes to a SQLite file

# An unreachable PostgreSQL server must not delay a campaign for the operating system's two hours.
_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


def shown(place: Place) -> str:
    """Return the place for a message, without passwords."""
    return stored(place) if isinstance(place, str) else str(place)


def resolve(place: Place) -> Path | sa.URL:
    """Return the file, or the URL of the server with its credentials.

    Raises StoreError if it is not a URL, or refers to an environment variable that is not set.
    """
    try:
        if isinstance(place, str) and place.startswith("${"):  # the whole URL
            place = credentials.in_environment(place)
        if isinstance(place, Path) or place.startswith(SQLITE):
            return Path(str(place).removeprefix(SQLITE)).absolute()
        url = credentials.resolve_url(place)
    except credentials.UnsetVariableError as error:
        raise StoreError(
            f"store: {shown(place)} needs the environment variable {error}, which is not set in the process that "
            f"connects: export {error}=…"
        ) from None
    except ValueError as error:
        raise _not_a_url(place, error) from None
    return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgresql", "postgres") else url


def _reason(error: object, place: Place) -> str:
    return credentials.without_secrets(str(error).strip(), place) if isinstance(place, str) else str(error).strip()


def _not_a_url(place: Place, error: Exception) -> StoreError:
    reason = _reason(error, place)
    return StoreError(f"store: {shown(place)} is not a database URL: {reason}; give sqlite or postgresql://…")


def connect(place: Place) -> sa.Engine:
    """Return the database at `place`, without connecting to it. Raises StoreError as `resolve` does,
    and if the driver is missing."""
    found = resolve(place)
    if isinstance(found, Path):
        # with a write-ahead log, every connection to a read-only folder must see the current file
        pool = sa.NullPool if _is_in_read_only_folder(found) else None
        engine = sa.create_engine(sa.URL.create("sqlite", database=str(found)), poolclass=pool)
        sa.event.listen(engine, "do_connect", _open_read_only)
        sa.event.listen(engine, "connect", _configure_sqlite)
        return engine
    patience = {key: value for key, value in _PATIENCE.items() if key not in found.query}
    try:
        engine = sa.create_engine(found, pool_pre_ping=True, connect_args=patience)
    except (SQLAlchemyError, NoSuchModuleError, ValueError, TypeError) as error:
        # `from None`, because the message of the cause may contain part of the password
        raise _not_a_url(place, error) from None
    except ModuleNotFoundError as error:
        raise StoreError(
            f"store: {shown(place)} needs a driver that is not installed ({error.name}): "
            'for PostgreSQL, pip install "psycopg[binary]>=3.2.1,<4"'
        ) from error
    sa.event.listen(engine, "handle_error", _leave_read_only_connection)
    return engine


@contextmanager
def translate_errors(place: Place) -> Iterator[None]:
    """Convert exceptions of the database to StoreError without any password."""
    try:
        yield
    except DBAPIError as error:
        reason = _reason(error.orig, place)
        remedy = next((f" ({remedy})" for sign, remedy in _REMEDIES.items() if sign in reason), "")
        if "is locked" in reason and not _takes_locks(place):
            remedy = _NO_LOCKS
        raise StoreError(f"the store {shown(place)} refused: {reason}{remedy}", _is_transient(error)) from error
    except UnicodeDecodeError as error:  # undecodable texts in a damaged SQLite file
        raise StoreError(f"the store {shown(place)} is damaged: {error}; restore it from a copy") from error
    except UnicodeError as error:
        reason = _reason(error, place)
        raise StoreError(f"the store {shown(place)} has a host with an impossible name: {reason}") from error
    except SQLAlchemyError as error:
        reason = _reason(error, place)
        raise StoreError(f"the store {shown(place)} failed: {reason}") from error


def _open_read_only(
    _dialect: sa.Dialect, _record: object, arguments: list[object], _options: object
) -> sqlite3.Connection | None:
    """Return a connection to a closed database in a read-only folder; None for any other database.

    SQLite cannot create the write-ahead log there, although it needs one even for reading. The last
    writer removes the log when it closes the database, so nothing is missing.
    """
    path = Path(str(arguments[0])).absolute()
    if not _is_in_read_only_folder(path) or any(os.path.exists(f"{path}{end}") for end in ("-wal", "-shm")):
        return None
    return sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)


def _is_in_read_only_folder(file: Path) -> bool:
    return not os.access(file.parent, os.W_OK) and file.is_file()


def _configure_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in (f"busy_timeout={1000 * BUSY_SECONDS}", "journal_mode=WAL", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


_READ_ONLY = "25006"  # PostgreSQL's SQLSTATE for the time of a failover or maintenance
# SQLSTATE prefixes: connection lost, server shut down or starting, too many connections, rolled
# back in favor of another transaction, locked, idle transaction ended by the server (25P03),
# statement time-out (57014)
_TRANSIENT_STATES = ("08", "57P0", "53300", "40", "55P03", _READ_ONLY, "25P03", "57014")


def _leave_read_only_connection(context: sa.engine.ExceptionContext) -> None:
    """Discard the connections after a refused write. They would remain read-only, or connected to
    the former primary, although new ones would not."""
    if getattr(context.original_exception, "sqlstate", None) == _READ_ONLY:
        context.is_disconnect = True


def _is_transient(error: DBAPIError) -> bool:
    name = getattr(error.orig, "sqlite_errorname", None)
    if name is not None:
        return str(name).startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"))
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # the server is unreachable or the connection was lost
        return error.connection_invalidated or isinstance(error, sa.exc.OperationalError)
    return str(state).startswith(_TRANSIENT_STATES)


_REMEDIES = {
    "unable to open database": "does the folder exist, and may it be written? A copy in another folder can be read",
    "read-only transaction": "the database accepts no writes now: is it a standby or in maintenance? Name the primary",
    "statement timeout": "a statement exceeded the server's statement_timeout",
    "idle-in-transaction": "a transaction reached idle_in_transaction_session_timeout",
    "readonly": "make the file and its folder writable",
    "read-only": "make the file and its folder writable",
    "disk is full": "free some space and resume: committed events are safe",
    "No space left": "free some space and resume: committed events are safe",
    "disk I/O error": "is the disk full, a quota reached or the disk failing, or were its files -wal and -shm removed? "
    "Committed events are safe: repair that and resume",
    "is locked": "another process keeps it locked: wait for it, or end it",
    "locking protocol": "its locks fail, as on a network folder: committed events are safe; resume, or put `runs` on "
    "a local disk",
    "password": "give the password by PGPASSWORD, a password file (~/.pgpass, PGPASSFILE) or ${VAR} in the URL: it is "
    "stored nowhere",
    "permission denied": "the role must read and write the tables bbkb_…; a role that may create them makes them with "
    "`bbkb store init URL`",
    "not a database": "the file is damaged or something else: restore it from a copy",
    "no such table": "no campaign was ever stored there",
    'relation "bbkb': "no campaign was ever stored there",
    "malformed": "the file is damaged: restore it from a copy",
    "connection": "is the server running, and are host, port and password right?",
}


_NO_LOCKS = (
    " (the file system of its folder refuses to lock files, as a network folder without a lock service does: put "
    "`runs` on a local disk, or use PostgreSQL)"
)


def _takes_locks(place: Place) -> bool:
    """Return whether the folder of a SQLite file supports file locks. Without locks, SQLite reports
    the database as locked."""
    found = resolve(place)
    if isinstance(found, Path):
        try:
            with tempfile.TemporaryFile(dir=found.parent) as file:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in (errno.ENOLCK, errno.ENOTSUP)
    return True
