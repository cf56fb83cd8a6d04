"""The versions of tables and events, and the only module that brings older ones up to date.

The database has a version of its tables, each event one of its body. A version newer than this
program's is refused with a remedy; older ones are read as they are, and the first process that
writes brings the tables up to date.

| tables | what changed |
| --- | --- |
| 1 | (0.1) no version row; the table of holders or the column of checksums may be missing |
| 2 | a version row; chained checksums, the last of which the campaign's row has; claims carry settings; snapshots |
| 3 | notes |

| events | what changed |
| --- | --- |
| 1 | (0.1) a body holds every field and its kind |
| 2 | a body leaves out its kind, which the row has, and fields at their defaults; no NaN in a pick |
"""

import math
from dataclasses import replace

import sqlalchemy as sa

from orchestrator.campaign.events import BatchChosen, Event
from orchestrator.errors import StoreError
from orchestrator.store.tables import EVENTS, METADATA, SCHEMA

TABLES_VERSION = 3
EVENT_VERSION = 2

_SCHEMA_LOCK = 0x62626B62  # "bbkb": PostgreSQL's advisory lock for processes that make tables at the same time

# table → columns that databases of version 1 may lack
_ADDED = {
    "bbkb_campaigns": {"head": "BIGINT"},
    "bbkb_events": {"checksum": "BIGINT", "version": "SMALLINT"},
    "bbkb_holders": {"settings": "TEXT"},
}


def tables_version(connection: sa.Connection) -> int:
    """Return the tables' version; 0: none. Raises StoreError when a newer program made them."""
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
    """Make the tables, or what those of an older version lack, in the connection's transaction.

    Creates nothing when the tables are complete, so a role without the right to create is
    sufficient then.
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
    """Return names of the columns that a table has in this database."""
    return frozenset(column["name"] for column in sa.inspect(connection).get_columns(table))


class NewerVersionError(ValueError):
    """A newer program wrote it; the message says which version it has and what to do."""


def check_event_version(version: int) -> None:
    """Raise NewerVersionError for an event of a newer program."""
    if version > EVENT_VERSION:
        raise NewerVersionError(
            f"has version {version}, and this program supports versions up to {EVENT_VERSION}: a newer bbkb wrote "
            "it; upgrade bbkb on this machine"
        )


def from_version_1(event: Event) -> Event:
    """Return the body of version 1 in the form of this version."""
    if not isinstance(event, BatchChosen):
        return event
    picks = tuple(
        replace(
            pick,
            mean=_if_known(pick.mean),
            width=_if_known(pick.width),
            variance=_if_known(pick.variance),
        )
        for pick in event.picks
    )
    return replace(event, picks=picks)


def _if_known(number: float | None) -> float | None:
    return None if number is None or math.isnan(number) else number
