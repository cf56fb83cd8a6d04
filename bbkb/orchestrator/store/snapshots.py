"""Snapshots of the campaign's state beside the log, so that a reader need not fold the whole log.

A snapshot is used only if the log still contains its last event (by the chained checksum), the
program's state has the same fields, and the snapshot is unchanged. Otherwise the whole log is
folded.
"""

import functools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import is_dataclass, replace
from hashlib import blake2b
from typing import get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter

from bbkb.orchestrator import __version__
from bbkb.orchestrator.campaign.events import Event
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.transitions import apply_recorded
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.store.store import EventStore, Snapshot, Writer

SNAPSHOT_EVENTS = 5_000  # between two snapshots of a session, which writes another at its end


@functools.cache
def _adapter() -> TypeAdapter[tuple[CampaignState]]:
    return TypeAdapter(tuple[CampaignState], config=ConfigDict(ser_json_inf_nan="constants"))


@functools.cache
def _program() -> str:
    """Return the program's version and the fields of the state."""
    return f"{__version__} {list(_fields(CampaignState))}"


def _fields(annotation: object) -> Iterator[dict[str, object]]:
    """Yield name → type of the fields of each class in an annotation, recursively."""
    inner: Iterable[object] = get_args(annotation)
    if is_dataclass(annotation) or hasattr(annotation, "_fields"):
        fields = get_type_hints(annotation)
        yield fields
        inner = fields.values()
    for part in inner:
        yield from _fields(part)


def _version(position: object, body: object) -> str:
    """Return a 20-character checksum of the program and the contents."""
    described = f"{_program()} {position!r} {body}"
    return blake2b(described.encode(errors="surrogatepass"), digest_size=10).hexdigest()


def save(writer: Writer, position: int, state: CampaignState) -> None:
    """Store the state after the first `position` events of the log. Raises StoreError."""
    plain = replace(state, backlog=tuple(state.backlog), finished=tuple(state.finished))
    # pydantic does not know read-only mappings
    body = _adapter().dump_json((plain,), fallback=dict, warnings="none").decode()
    head = writer.store.checksum_before(writer.campaign, position)
    writer.store.save_snapshot(writer.campaign, Snapshot(position, head, _version(position, body), body))


def load(store: EventStore, campaign: str) -> tuple[int, CampaignState]:
    """Return the number of events in the newest valid snapshot, and its state.

    Return 0 and the empty state if there is no valid snapshot. Raises StoreError if the database
    cannot be read.
    """
    snapshot = store.snapshot(campaign)
    if snapshot is not None and snapshot.version == _version(snapshot.position, snapshot.body):
        with suppress(ValueError):
            (state,) = _adapter().validate_json(snapshot.body)
            return snapshot.position, state
    return 0, CampaignState()


def current(run: Run, store: EventStore) -> CampaignState:
    """Return the state after the last event of the log.

    Raises RunError if the run has no log, and StoreError if it cannot be read.
    """
    position, state = load(store, run.name)
    first = store.rows(run.name, 0, limit=1)
    # a snapshot may remain of a log that is damaged or gone; the event is decoded only if something is wrong
    if not position or not first or first[0].checksum_after(run.name, 0) != first[0].checksum:
        run.first(store)
    events: Iterator[Event] = store.read(run.name, after=position)
    return functools.reduce(apply_recorded, events, state)
