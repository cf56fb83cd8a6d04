"""Finds campaigns: the runs of a folder, or all campaigns of a database."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bbkb.orchestrator.errors import UserError, reason_of
from bbkb.orchestrator.store.connect import Place
from bbkb.orchestrator.store.runs import looks_like_run, open_run
from bbkb.orchestrator.store.store import EventStore

_Stamp = tuple[tuple[int, int, int], ...]  # changes with the files of a run that `open_run` reads


@dataclass(frozen=True, slots=True)
class Source:
    """A campaign that was found."""

    name: str  # of the campaign, followed by that of its folder if they differ
    campaign: str  # the run's name in its store; empty if the run cannot be read
    place: Place  # of its log; empty if the run cannot be read
    problem: str = ""  # the reason that it cannot be read
    trials: Path | None = None  # the folder of its trials, if it is known


class Sources:
    """The campaigns of `place`: a run's folder, a folder of runs, or a database's URL.

    Each run is read separately, and again if its files have changed.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._read: dict[Path, tuple[_Stamp, Source]] = {}

    def find(self) -> list[Source]:
        """Return all campaigns, including unreadable ones. Folders that are not runs are skipped.

        Raises UserError if the folder does not exist, and StoreError if the database cannot be read.
        """
        if "://" in self._place:
            return self._names_in_database()
        return list(self._runs(check_place(self._place)))

    def _names_in_database(self) -> list[Source]:
        with contextlib.closing(EventStore(self._place)) as store:
            return [Source(name, name, self._place) for name in store.names()]

    def _runs(self, folder: Path) -> Iterator[Source]:
        for path in [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]:
            if looks_like_run(path):
                stamp = _stamp(path)
                if path not in self._read or self._read[path][0] != stamp:
                    self._read[path] = stamp, _read_source(path)
                yield self._read[path][1]


def check_place(place: str) -> Path:
    """Return the folder of runs at `place`. Raises UserError if it does not exist."""
    folder = Path(place).resolve()
    if not folder.is_dir():
        raise UserError(f"the place to serve must be a folder of runs or a database URL, got {place}: no such folder")
    return folder


def _read_source(folder: Path) -> Source:
    try:
        run = open_run(folder)
    except Exception as error:  # one unreadable folder should not hide the others
        return Source(folder.name, "", "", reason_of(error))
    name = run.name if run.name == folder.name else f"{run.name} ({folder.name})"  # a copied folder
    return Source(name, run.name, run.place, trials=run.trials)


def _stamp(folder: Path) -> _Stamp:
    """Return a value that changes with the files that `open_run` reads."""
    stamps = []
    for name in ("", "campaign.yaml", "provenance.json", "campaign.sqlite"):
        try:
            status = (folder / name).stat()
        except OSError:
            stamps.append((0, 0, 0))
        else:  # without the modification times of the folder and the log, which change all the time
            is_text = name.endswith(("yaml", "json"))
            stamps.append((status.st_ino, status.st_mode, status.st_mtime_ns if is_text else 0))
    return tuple(stamps)
