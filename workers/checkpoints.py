"""Checkpoints in the folders of trials: those that are not needed any more are removed, and their
sizes are counted.

A checkpoint is everything in a trial's folder except what its attempts printed.
"""

import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from workers.output_files import is_output, trial_folder

_LOGGER = logging.getLogger("bbkb.session")


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What the trials of a run keep in their folders."""

    trials: int  # how many of them keep anything
    size: int  # of all files, in bytes


def remove_checkpoints(trials: Path | None, numbers: Iterable[int]) -> None:
    """Remove the checkpoints of these trials; a file that cannot be removed stays, with a warning,
    and so does all of a folder that a trial has replaced by a link to another place.

    Args:
        trials: the run's folder of trials; nothing happens where there is none on this machine.
        numbers: of the trials. It does no harm to repeat one.
    """
    if trials is None:
        return
    for number in numbers:
        folder = trial_folder(trials, number)
        if folder.is_symlink():
            _LOGGER.warning("a checkpoint of trial %d is not removed: %s is a link to another place", number, folder)
            continue
        try:
            for entry in _checkpoints(_list(folder)) if folder.exists() else []:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    Path(entry.path).unlink(missing_ok=True)
        except OSError as error:
            _LOGGER.warning("a checkpoint of trial %d is not removed: %s", number, error)


def checkpoints_in(trials: Path) -> Checkpoints:
    """Count what the trials keep; nothing where the folder is missing or cannot be read."""
    sizes = [_size(folder) for folder in _scan(trials) if folder.name.isdecimal()]
    return Checkpoints(sum(size > 0 for size in sizes), sum(sizes))


def _size(folder: os.DirEntry[str]) -> int:
    if not folder.is_dir(follow_symlinks=False):
        return 0
    return sum(_file_size(file) for entry in _checkpoints(_scan(Path(folder.path))) for file in _files(entry))


def _file_size(file: os.DirEntry[str]) -> int:
    """Return 0 for a file that is gone since its folder was read, as drafts are."""
    try:
        return file.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def _files(entry: os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    if entry.is_dir(follow_symlinks=False):
        for below in _scan(Path(entry.path)):
            yield from _files(below)
    else:
        yield entry


def _checkpoints(entries: Iterable[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    """Return what is in a trial's folder besides the output of its attempts."""
    return [entry for entry in entries if not is_output(entry.name)]


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder; nothing where it is missing or cannot be read."""
    try:
        return _list(folder)
    except OSError:
        return []


def _list(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)
