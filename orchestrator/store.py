"""The append-only event log, on SQLAlchemy Core: SQLite in the run's folder by default, PostgreSQL by URL.

Contract (`tests/orchestrator/test_store.py` runs it on every database at hand):

* `append` writes its events in one transaction and returns when they are durable: SQLite runs with a write-ahead log
  and `synchronous=FULL`, PostgreSQL with its default synchronous commit. Either all of them are there or none.
* Writing needs a claim. A claim raises the campaign's epoch; every append checks it in its own transaction, so whoever
  holds an older epoch cannot write a single event more (`FencedError`), however late it wakes up.
* Events come back in the order they were appended, gap-free. Reading needs no claim and never blocks a writer.
* Several campaigns can share a database.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

from orchestrator.errors import FencedError, RunError, StoreError
from orchestrator.events import Event, from_json, to_json

_METADATA = sa.MetaData()

_CAMPAIGNS = sa.Table(
    "bbkb_campaigns",
    _METADATA,
    sa.Column("campaign", sa.String(200), primary_key=True),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("holder", sa.String(200), nullable=False),
    sa.Column("since", sa.Float, nullable=False),
    sa.Column("length", sa.Integer, nullable=False),
)

_EVENTS = sa.Table(
    "bbkb_events",
    _METADATA,
    sa.Column("campaign", sa.String(200), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

_PAGE = 1000  # events a reader takes at a time


class EventStore:
    """A database of campaigns.

    Raises StoreError whenever the database cannot be reached, written or understood.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = _engine(url)
        with self._translated():
            self._engine.connect().close()  # what is wrong with it shows now

    def create(self, campaign: str, first: Sequence[Event]) -> None:
        """Begin the log of a new campaign with these events. Raises RunError if there is one of this name."""
        row = {"campaign": campaign, "epoch": 0, "holder": "", "since": time.time(), "length": len(first)}
        with self._translated():
            try:
                with self._engine.begin() as connection:
                    for table in _METADATA.sorted_tables:  # here only: readers must not race with whoever creates
                        connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
                    connection.execute(_CAMPAIGNS.insert(), row)
                    connection.execute(_EVENTS.insert(), _rows(campaign, 0, 0, first))
            except sa.exc.IntegrityError as error:
                raise RunError(
                    f"campaign {campaign!r} is in {_shown(self.url)} already: resume it, or give another name"
                ) from error

    def claim(self, campaign: str, holder: str) -> "Writer":
        """Become the campaign's only writer, from now on; `holder` names this process for whoever is fenced off."""
        taken = _CAMPAIGNS.update().where(_CAMPAIGNS.c.campaign == campaign)
        taken = taken.values(epoch=_CAMPAIGNS.c.epoch + 1, holder=holder, since=time.time())
        with self._translated(), self._engine.begin() as connection:
            connection.execute(taken)
            row = connection.execute(_CAMPAIGNS.select().where(_CAMPAIGNS.c.campaign == campaign)).one_or_none()
        if row is None:
            raise RunError(f"there is no campaign {campaign!r} in {_shown(self.url)}")
        return Writer(self, campaign, epoch=row.epoch, length=row.length)

    def read(self, campaign: str, after: int = 0) -> Iterator[Event]:
        """The campaign's events from position `after` on, in order. Raises StoreError at a damaged or missing one."""
        position = after
        while page := self._page(campaign, position):
            for row in page:
                if row.position != position:
                    raise StoreError(
                        f"event {position} of {campaign!r} is missing in {_shown(self.url)}: the log is damaged"
                    )
                yield self._event(campaign, row)
                position += 1

    def append(self, campaign: str, epoch: int, events: Sequence[Event], position: int | None = None) -> None:
        """Append under a claim; durable on return. Raises FencedError when the claim is no longer the newest.

        `position`: where the first of them belongs. Those that are there already are left out, so a writer that was
        interrupted and does not know whether it has written can write again. None: at the end.
        """
        mine = (_CAMPAIGNS.c.campaign == campaign) & (_CAMPAIGNS.c.epoch == epoch)
        # an update first: it locks the row until the end of the transaction
        longer = _CAMPAIGNS.update().where(mine).values(length=_CAMPAIGNS.c.length + len(events))
        with self._translated(), self._engine.begin() as connection:
            if connection.execute(longer).rowcount != 1:
                raise self._fenced(connection, campaign, epoch)
            length = connection.execute(sa.select(_CAMPAIGNS.c.length).where(mine)).scalar_one() - len(events)
            there = 0 if position is None else min(length - position, len(events))
            if there < 0:
                raise StoreError(
                    f"campaign {campaign!r} has {length} events, none can be written at position {position}"
                )
            if there:
                connection.execute(_CAMPAIGNS.update().where(mine).values(length=length + len(events) - there))
            if rows := _rows(campaign, epoch, length, events[there:]):
                connection.execute(_EVENTS.insert(), rows)

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def _page(self, campaign: str, position: int) -> Sequence[Any]:
        query = _EVENTS.select().where(_EVENTS.c.campaign == campaign, _EVENTS.c.position >= position)
        with self._translated(), self._engine.connect() as connection:
            return connection.execute(query.order_by(_EVENTS.c.position).limit(_PAGE)).all()

    def _event(self, campaign: str, row: Any) -> Event:
        try:
            return from_json(row.body)
        except ValueError as error:
            raise StoreError(
                f"event {row.position} ({row.kind}) of {campaign!r} in {_shown(self.url)} cannot be read: it is "
                f"damaged, or a newer version wrote it"
            ) from error

    def _fenced(self, connection: sa.Connection, campaign: str, epoch: int) -> FencedError:
        row = connection.execute(_CAMPAIGNS.select().where(_CAMPAIGNS.c.campaign == campaign)).one_or_none()
        if row is None:
            return FencedError(f"campaign {campaign!r} is no longer in {_shown(self.url)}")
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.since))
        return FencedError(
            f"{row.holder} has taken campaign {campaign!r} over (epoch {row.epoch}, since {since}); this process held "
            f"epoch {epoch} and writes nothing more"
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """A database's own exceptions, as ours."""
        try:
            yield
        except DBAPIError as error:
            raise StoreError(f"the store {_shown(self.url)} refused: {error.orig}{_remedy(str(error.orig))}") from error
        except SQLAlchemyError as error:
            raise StoreError(f"the store {_shown(self.url)} failed: {error}") from error


@dataclass(frozen=True, slots=True)
class Writer:
    """The right to append to one campaign, until somebody claims it anew. `length`: of the log when it was claimed."""

    store: EventStore
    campaign: str
    epoch: int
    length: int

    def append(self, events: Sequence[Event], position: int | None = None) -> None:
        """Write these events in one transaction; they are durable on return. Raises FencedError, StoreError.

        `position`: see `EventStore.append`.
        """
        if events:
            self.store.append(self.campaign, self.epoch, events, position)


def _rows(campaign: str, epoch: int, position: int, events: Sequence[Event]) -> list[dict[str, Any]]:
    return [
        {"campaign": campaign, "position": index, "epoch": epoch, "kind": event.kind, "body": to_json(event)}
        for index, event in enumerate(events, start=position)
    ]


def _engine(url: str) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        engine = sa.create_engine(parsed, pool_pre_ping=True)
    except (SQLAlchemyError, NoSuchModuleError, ValueError) as error:
        raise StoreError(f"store: {_shown(url)} is no database URL: {error}; give sqlite or postgresql://…") from error
    except ModuleNotFoundError as error:
        raise StoreError(
            f"store: {_shown(url)} needs a driver that is not installed ({error.name}): "
            'pip install "bbkb-orchestrator[postgresql]"'
        ) from error
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _make_sqlite_durable)
    return engine


def _make_sqlite_durable(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout=30000")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _shown(url: str) -> str:
    """The URL without a password."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return repr(url)


_REMEDIES = {
    "unable to open database": "does the folder exist, and may it be written?",
    "readonly": "make the file and its folder writable",
    "read-only": "make the file and its folder writable",
    "disk is full": "free some space and resume: what was committed is safe",
    "not a database": "the file is damaged or something else: restore it from a copy",
    "no such table": "no campaign was ever stored there",
    'relation "bbkb': "no campaign was ever stored there",
    "malformed": "the file is damaged: restore it from a copy",
    "connection": "is the server running, and are host, port and password right?",
}


def _remedy(message: str) -> str:
    for sign, remedy in _REMEDIES.items():
        if sign in message:
            return f" ({remedy})"
    return ""
