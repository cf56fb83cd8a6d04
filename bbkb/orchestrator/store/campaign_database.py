"""A database of campaigns: its connections, transactions and errors."""

import contextlib
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from bbkb.orchestrator import files
from bbkb.orchestrator.credentials import redact
from bbkb.orchestrator.errors import FencedError, RunError, StoreError
from bbkb.orchestrator.store.database import connect, file_of, translate_errors
from bbkb.orchestrator.store.migrations import bring_up_to_date, tables_version
from bbkb.orchestrator.store.tables import CAMPAIGNS
from bbkb.orchestrator.wording import moment

# The columns that exist in databases of every version
_CAMPAIGN = sa.select(*(CAMPAIGNS.c[name] for name in ("campaign", "epoch", "holder", "since", "length")))


class CampaignDatabase:
    """The base of a store.

    With `is_salvage`, it is read-only and provides the readable part of a damaged file. Every
    method raises StoreError if the database cannot be reached, written or understood.
    """

    def __init__(self, url: str, is_salvage: bool = False) -> None:
        self.url = url
        self._name = redact(url)  # for messages
        self._engine = connect(url, is_salvage)
        self._file = file_of(self._engine)
        self._is_current = False  # whether all columns exist; a writer may add them during a read
        if self._file is not None and not self._file.exists():  # connecting would create an empty file
            if not self._file.parent.is_dir():
                raise StoreError(f"the store {self._name} cannot exist there: does the folder exist?")
            return
        with translate_errors(url), self._engine.connect() as connection:  # errors of the database appear here
            tables_version(connection)

    def make_tables(self) -> None:
        """Create or update the tables. Only this method needs the right to create tables."""
        self._make_file()
        with translate_errors(self.url), self._engine.begin() as connection:
            bring_up_to_date(connection)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Open a transaction that is durable at its end."""
        self._check_there()
        with translate_errors(self.url), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        self._check_there()
        with translate_errors(self.url), self._engine.connect() as connection:
            yield connection

    def _whole(self, column: str, value: object) -> int:
        """Return `value` if it is an integer. A damaged SQLite file may contain any value."""
        if not isinstance(value, int):
            raise StoreError(
                f"the store {self._name} must have a whole number as {column}, got {value!r}: it is damaged, "
                "restore it from a copy"
            )
        return value

    def _make_file(self) -> None:
        """Create a SQLite file that only its owner can read. SQLite's other files get the same
        rights."""
        if self._file is not None:
            try:
                files.make_private(self._file)
            except OSError as error:
                raise StoreError(
                    f"the store {self._name} cannot be created: {error.strerror} (does the folder exist, and may it "
                    "be written?)"
                ) from error

    def _check_there(self) -> None:
        if self._file is not None and not self._file.exists():
            raise StoreError(f"there is no database {self._name}: no campaign was ever stored there")

    def _row(self, connection: sa.Connection, campaign: str) -> sa.Row[Any]:
        row = connection.execute(_CAMPAIGN.where(CAMPAIGNS.c.campaign == campaign)).one_or_none()
        if row is None:
            raise self._unknown_error(campaign)
        return row

    def _unknown_error(self, campaign: str) -> RunError:
        return RunError(f"there is no campaign {campaign!r} in {self._name}")

    def _fenced_error(self, connection: sa.Connection, campaign: str, epoch: int) -> FencedError:
        row = connection.execute(_CAMPAIGN.where(CAMPAIGNS.c.campaign == campaign)).one_or_none()
        if row is None:
            return FencedError(f"campaign {campaign!r} is no longer in {self._name}")
        return FencedError(
            f"{row.holder} has taken over campaign {campaign!r} (epoch {row.epoch}, since {moment(row.since)}); this "
            f"process held epoch {epoch} and writes nothing more"
        )
