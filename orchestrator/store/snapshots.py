"""The campaign's state as of some event, kept beside the log, so that a reader need not fold it from its beginning.

A snapshot is a copy of what the log says and never more: it counts only while the log still holds the event it ends
with, by its chained checksum, only for a program whose state has the same fields, and only when it is as it was
written. Otherwise the log is folded from its start.
"""

import functools
from collections.abc import Iterator
from dataclasses import fields, replace
from hashlib import blake2b

from pydantic import ConfigDict, TypeAdapter

from orchestrator.campaign.events import CampaignCreated, Event
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.transitions import apply
from orchestrator.store.rows import Snapshot
from orchestrator.store.runs import Run
from orchestrator.store.store import Store, Writer
from orchestrator.version import __version__

SNAPSHOT_EVENTS = 20_000  # written in a session between two snapshots; the last one is written when it closes


@functools.cache
def _adapter() -> TypeAdapter[tuple[CampaignState]]:
    return TypeAdapter(tuple[CampaignState], config=ConfigDict(ser_json_inf_nan="strings"))


@functools.cache
def _program() -> str:
    """The program's version and the state's fields."""
    return f"{__version__} {[(field.name, str(field.type)) for field in fields(CampaignState)]}"


def _version(position: object, body: object) -> str:
    """A checksum of the program and of what was written, in the 20 characters that the table has."""
    described = f"{_program()} {position!r} {body}"
    return blake2b(described.encode(errors="surrogatepass"), digest_size=10).hexdigest()


def save(writer: Writer, position: int, state: CampaignState) -> None:
    """Keep `state`, which the log's first `position` events fold to. Raises StoreError."""
    plain = replace(state, backlog=tuple(state.backlog), finished=tuple(state.finished))
    head = writer.store.checksum_before(writer.campaign, position)
    if head is not None:
        # a read-only mapping is none of the types that pydantic knows
        body = _adapter().dump_json((plain,), fallback=dict, warnings="none").decode()
        writer.store.save_snapshot(writer.campaign, Snapshot(position, head, _version(position, body), body))


def load(store: Store, campaign: str) -> tuple[int, CampaignState]:
    """How many events the newest snapshot that counts has folded in, and their state; 0 and none where there is none.

    Raises StoreError when the database cannot be read.
    """
    found = store.snapshot(campaign)
    if found is None or found.version != _version(found.position, found.body):
        return 0, CampaignState()
    try:
        (state,) = _adapter().validate_json(found.body)
    except ValueError:  # damaged: it is only a copy
        return 0, CampaignState()
    return found.position, state


def current(run: Run, store: Store) -> tuple[CampaignCreated, CampaignState]:
    """The log's first event, and what all of it folds to. Raises RunError, StoreError."""
    created = run.first(store)
    position, state = load(store, run.name)
    rest: Iterator[Event] = store.read(run.name, after=position)
    return created, functools.reduce(apply, rest, state)
