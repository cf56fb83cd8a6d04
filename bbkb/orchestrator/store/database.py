"""A connection to SQLite or PostgreSQL, and the translation of its errors into `StoreError`."""

import errno
import fcntl
import functools
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

from bbkb.orchestrator import credentials
from bbkb.orchestrator.credentials import redact
from bbkb.orchestrator.errors import StoreError
from bbkb.orchestrator.store.limited import is_left_behind

BUSY_SECONDS = 30  # the wait while another process writes to a SQLite file
# Instructions of SQLite's virtual machine (a few milliseconds) between two checks for an abort
_INSTRUCTIONS = 100_000

# An unreachable PostgreSQL server must not delay a campaign for the operating system's two hours.
_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


def connect(url: str, is_salvage: bool = False) -> sa.Engine:
    """Return the database of `url` with resolved credentials, without connecting to it.

    With `is_salvage`, nothing is written, and the readable part of a damaged SQLite file can be
    read. Raises StoreError if the URL or its driver is wrong, or if the URL names an environment
    variable that is not set.
    """
    try:
        parsed = credentials.resolve_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        patience = {key: value for key, value in _PATIENCE.items() if key not in parsed.query}
        is_ours = parsed.drivername == "postgresql+psycopg"
        # every connection must see the current state of the file
        pool = sa.NullPool if not is_ours and _is_in_read_only_folder(parsed.database) else None
        connect_args = patience if is_ours else {}
        engine = sa.create_engine(parsed, pool_pre_ping=True, connect_args=connect_args, poolclass=pool)
    except credentials.UnsetVariableError as error:
        raise StoreError(
            f"store: {redact(url)} needs the environment variable {error}, which is not set in the process that "
            f"connects: export {error}=…"
        ) from None
    except (SQLAlchemyError, NoSuchModuleError, ValueError) as error:
        reason = credentials.without_secrets(str(error), url)
        # `from None`, because the message of the cause may contain part of the password
        raise StoreError(
            f"store: {redact(url)} is not a database URL: {reason}; give sqlite or postgresql://…"
        ) from None
    except ModuleNotFoundError as error:
        raise StoreError(
            f"store: {redact(url)} needs a driver that is not installed ({error.name}): "
            'for PostgreSQL, pip install "psycopg[binary]>=3.2.1,<4"'
        ) from error
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "do_connect", _open_read_only)
        sa.event.listen(engine, "connect", functools.partial(_configure_sqlite, _TOLERANT if is_salvage else _DURABLE))
    else:
        sa.event.listen(engine, "handle_error", _leave_read_only_connection)
    return engine


def file_of(engine: sa.Engine) -> Path | None:
    """Return the file of a SQLite database; None for other databases."""
    name = engine.url.database
    is_file = engine.dialect.name == "sqlite" and name and name != ":memory:" and not name.startswith("file:")
    return Path(str(name)) if is_file else None


@contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Convert exceptions of the database to StoreError without any password."""
    try:
        yield
    except DBAPIError as error:
        reason = credentials.without_secrets(str(error.orig).strip(), url)
        remedy = next((f" ({remedy})" for sign, remedy in _REMEDIES.items() if sign in reason), "")
        if "is locked" in reason and not _takes_locks(url):
            remedy = _NO_LOCKS
        message = f"the store {redact(url)} refused: {reason}{remedy}"
        raise StoreError(message, _is_transient(error)) from error
    except sa.exc.NoSuchTableError as error:
        missing = f"the store {redact(url)} has no table {error}"
        raise StoreError(f"{missing}: no campaign was ever stored there") from error
    except UnicodeDecodeError as error:  # undecodable texts in a damaged SQLite file
        raise StoreError(
            f"the store {redact(url)} is damaged: {error} (`bbkb verify` lists what can still be read; restore it "
            "from a copy)"
        ) from error
    except SQLAlchemyError as error:
        reason = credentials.without_secrets(str(error), url)
        raise StoreError(f"the store {redact(url)} failed: {reason}") from error


def _open_read_only(
    _dialect: sa.Dialect, _record: object, arguments: list[object], _options: object
) -> sqlite3.Connection | None:
    """Return a connection to a closed database in a read-only folder; None for any other database.

    SQLite cannot create the write-ahead log there, although it needs one even for reading. The last
    writer removes the log when it closes the database, so nothing is missing.
    """
    path = Path(str(arguments[0])).absolute()
    is_open = any(path.with_name(path.name + end).exists() for end in ("-wal", "-shm"))
    if is_open or not _is_in_read_only_folder(str(path)):
        return None
    return sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)


def _is_in_read_only_folder(file: str | None) -> bool:
    """Return whether the SQLite database `file` exists in a read-only folder."""
    path = Path(file or "").absolute()
    return path.is_file() and not os.access(path.parent, os.W_OK)


_DURABLE = ("journal_mode=WAL", "synchronous=FULL")
_TOLERANT = ("query_only=ON", "writable_schema=ON")  # else SQLite does not open a truncated file


def _configure_sqlite(pragmas: Iterable[str], connection: sqlite3.Connection, _record: object) -> None:
    """Set the pragmas of a new connection, and make its queries interruptible."""
    cursor = connection.cursor()
    for pragma in (f"busy_timeout={int(1000 * BUSY_SECONDS)}", *pragmas):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
    connection.set_progress_handler(is_left_behind, _INSTRUCTIONS)


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
    "malformed": "the file is damaged: `bbkb verify` lists what can still be read; restore it from a copy",
    "connection": "is the server running, and are host, port and password right?",
}


_NO_LOCKS = (
    " (the file system of its folder refuses to lock files, as a network folder without a lock service does: put "
    "`runs` on a local disk, or use PostgreSQL)"
)


def _takes_locks(url: str) -> bool:
    """Return whether the folder of a SQLite database supports file locks. Without locks, SQLite
    reports the database as locked."""
    with suppress(sa.exc.ArgumentError, ValueError):
        try:
            with tempfile.TemporaryFile(dir=Path(sa.make_url(url).database or "").parent) as file:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in (errno.ENOLCK, errno.ENOTSUP)
    return True
