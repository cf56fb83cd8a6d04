"""The tables of a store, and the only module that changes those of an older version.

Tables of older versions are read as they are, and the first process that writes updates them.

| tables | change |
| --- | --- |
| 1 | (0.1) no version row; the table of holders or the column of checksums may be missing |
| 2 | a version row; chained checksums, the last one also per campaign; settings in claims; snapshots |
| 3 | notes |

`store.versions` translates the events.
"""

import sqlalchemy as sa

from bbkb.orchestrator.errors import StoreError
from bbkb.orchestrator.store.tables import EVENTS, METADATA, SCHEMA
from bbkb.orchestrator.store.versions import TABLES_VERSION

_SCHEMA_LOCK = 0x62626B62  # "bbkb": PostgreSQL's advisory lock for processes that create tables at the same time

# table → columns that databases of version 1 may lack
_ADDED = {
    "bbkb_campaigns": {"head": "BIGINT"},
    "bbkb_events": {"checksum": "BIGINT", "version": "SMALLINT"},
    "bbkb_holders": {"settings": "TEXT"},
}


def tables_version(connection: sa.Connection) -> int:
    """Return the version of the tables; 0 if there are none.

    Raises StoreError if a newer program created them.
    """
    present = set(sa.inspect(connection).get_table_names())
    if EVENTS.name not in present:
        return 0
    if SCHEMA.name not in present:
        return 1
    recorded = connection.execute(sa.select(SCHEMA.c.version)).scalar_one_or_none()
    version = 1 if recorded is None else int(recorded)
    if version > TABLES_VERSION:
        raise StoreError(
            f"the store's tables have version {version}, and this program supports versions up to {TABLES_VERSION}: a "
            "newer bbkb wrote it; upgrade bbkb on this machine"
        )
    return version


def bring_up_to_date(connection: sa.Connection) -> None:
    """Create the tables, or missing parts of an older version, in the connection's transaction.

    Creates nothing if the tables are complete; a role without the right to create is then
    sufficient.
    """
    if tables_version(connection) == TABLES_VERSION:
        return
    if connection.dialect.name == "postgresql":  # two processes that create the same table at the same time would fail
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SCHEMA_LOCK)))
        if tables_version(connection) == TABLES_VERSION:
            return
    for table in METADATA.sorted_tables:
        connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
    for table_name, added in _ADDED.items():
        present = columns_of(connection, table_name)
        for column, type_ in added.items():
            if column not in present:
                connection.execute(sa.text(f"ALTER TABLE {table_name} ADD COLUMN {column} {type_}"))
    connection.execute(SCHEMA.delete())
    connection.execute(SCHEMA.insert(), {"version": TABLES_VERSION})


def columns_of(connection: sa.Connection, table: str) -> frozenset[str]:
    """Return the names of a table's columns in this database."""
    return frozenset(column["name"] for column in sa.inspect(connection).get_columns(table))
