"""Removes unnecessary checkpoints from the folders of trials, and counts their sizes.

A checkpoint is everything in a trial's folder except the output of its attempts. The reports beside
it are removed with it, and are not counted.
"""

import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from workers.kept_reports import FILE as KEPT_REPORTS
from workers.output_files import is_output, trial_folder

_LOGGER = logging.getLogger("bbkb.session")


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of a run.

    trials: the number of trials that have a checkpoint.
    size: the size of all files, in bytes.
    """

    trials: int
    size: int


def remove_checkpoints(trials: Path | None, numbers: Iterable[int]) -> None:
    """Remove the checkpoints of these trials.

    A file that cannot be removed stays, with a warning. So does everything in a folder that a trial
    has replaced by a symbolic link.

    Args:
        trials: the run's folder of trials; None if it is not on this machine.
        numbers: the trials. Repetitions are harmless.
    """
    if trials is None:
        return
    for number in numbers:
        folder = trial_folder(trials, number)
        if folder.is_symlink():
            message = "cannot remove a checkpoint of trial %d: %s is a symbolic link"
            _LOGGER.warning(message, number, folder)
            continue
        try:
            for entry in _checkpoints(_list(folder)) if folder.exists() else []:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    Path(entry.path).unlink(missing_ok=True)
        except OSError as error:
            _LOGGER.warning("cannot remove a checkpoint of trial %d: %s", number, error)


def checkpoints_in(trials: Path) -> Checkpoints:
    """Count the checkpoints of all trials; none if the folder is missing or unreadable."""
    sizes = [_size(folder) for folder in _scan(trials) if folder.name.isdecimal()]
    return Checkpoints(sum(size > 0 for size in sizes), sum(sizes))


def _size(folder: os.DirEntry[str]) -> int:
    if not folder.is_dir(follow_symlinks=False):
        return 0
    entries = _checkpoints(_scan(Path(folder.path)))
    counted = [entry for entry in entries if not entry.name.startswith(KEPT_REPORTS)]
    return sum(_file_size(file) for entry in counted for file in _files(entry))


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
    """Return the entries of a trial's folder except the output of its attempts."""
    return [entry for entry in entries if not is_output(entry.name)]


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; none if it is missing or unreadable."""
    try:
        return _list(folder)
    except OSError:
        return []


def _list(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)
