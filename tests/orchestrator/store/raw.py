"""Changes of a SQLite store that no process of bbkb makes."""

import sqlite3
from contextlib import closing
from pathlib import Path


def change(database: Path, statements: str) -> None:
    """Execute SQL statements on the file of a store."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executescript(statements)
