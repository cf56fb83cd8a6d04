"""Finds campaigns: the runs of a folder, or all campaigns of a database."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import BbkbError, UserError
from orchestrator.store.event_store import EventStore
from orchestrator.store.runs import open_run


@dataclass(frozen=True, slots=True)
class Source:
    """A campaign's name and the URL of its store."""

    name: str
    url: str


def find_sources(place: str) -> list[Source]:
    """The campaigns of `place`, by name: a run's folder, a folder of runs, or a database's URL.

    Folders that are not runs, and damaged runs, are left out. Raises UserError when there is no such folder, StoreError
    when the database cannot be read.
    """
    if "://" in place:
        with contextlib.closing(EventStore(place)) as store:
            return [Source(name, place) for name in store.names()]
    folder = Path(place).resolve()
    if not folder.is_dir():
        raise UserError(f"the place to serve must be a folder of runs or a database URL, got {place}: no such folder")
    found = []
    for candidate in [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]:
        with contextlib.suppress(BbkbError):
            run = open_run(candidate)
            found.append(Source(run.name, run.store_url))
    return found
