"""A store with a made-up campaign that a test lets grow, and a server on it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bbkb.orchestrator.campaign.events import Event
from bbkb.orchestrator.report.serve import Server, _bind, _run_until
from bbkb.orchestrator.store.store import EventStore, Writer


@dataclass
class GrowingLog:
    """A campaign in a separate database, to which the test adds events."""

    url: str
    name: str
    writer: Writer

    def append(self, events: Sequence[Event]) -> None:
        self.writer.append(events)


BeginLog = Callable[[str, Sequence[Event]], GrowingLog]


@pytest.fixture
def begin_log(tmp_path: Path) -> Iterator[BeginLog]:
    """Begin a log: `begin_log(name, events)` writes the first events and returns the log."""
    stores: list[EventStore] = []

    def write_first(name: str, events: Sequence[Event]) -> GrowingLog:
        url = f"sqlite:///{tmp_path / 'campaigns.sqlite'}"
        store = EventStore(url)
        stores.append(store)
        store.create(name, events[:1])
        log = GrowingLog(url, name, store.claim(name, "the test"))
        log.append(events[1:])
        return log

    yield write_first
    for store in stores:
        store.close()


@contextlib.contextmanager
def running_server(place: str) -> Iterator[str]:
    """Run a server in a thread, and yield its address with the token."""
    listening = _bind("127.0.0.1", 0)
    server, loop, stop = Server(place), asyncio.new_event_loop(), asyncio.Event()
    work = _run_until(server, listening, stop)
    thread = threading.Thread(target=loop.run_until_complete, args=(work,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/{server.token}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()
