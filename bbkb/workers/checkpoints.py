"""Saves, copies, removes and counts checkpoints.

A checkpoint is everything in a trial's folder except the output of its attempts. The file with the
reports is removed with it, but does not count. With a strategy whose trials start from others'
checkpoints, a worker that stops trial 12 at step 20 saves its checkpoint in
`trials/.saved/000012-20`, which no training changes. A trial that continues from there begins with
a copy of this folder. The file `.copied` marks a complete copy.
"""

import logging
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bbkb.workers.output import KEPT_REPORTS, is_output, trial_folder

_LOGGER = logging.getLogger("bbkb.session")


_SAVED = ".saved"
_COPIED = ".copied"
_SAVED_NAME = re.compile(r"([0-9]+)-([0-9]+)")
_POLL_SECONDS = 0.05


def save_checkpoint(folder: Path, step: int) -> None:
    """Save a copy of the checkpoint in a trial's folder, replacing a saved one of the same step.

    Raises OSError.
    """
    saved = _saved(folder.parent, int(folder.name), step)
    draft = saved.with_name(f"{saved.name}.draft")
    for left in (draft, saved):  # from an attempt that was lost
        shutil.rmtree(left, ignore_errors=True)
    # without the output, the mark of a copy, and the kept reports
    shutil.copytree(
        folder,
        draft,
        symlinks=True,
        ignore=lambda _, names: [name for name in names if is_output(name) or name.startswith((_COPIED, KEPT_REPORTS))],
    )
    draft.rename(saved)


def begin_with_copy(folder: Path, origin: tuple[int, int], copies: bool = True) -> None:
    """Copy the saved checkpoint of `origin`, a trial and a step, into a new trial's folder, unless
    an earlier attempt has done so.

    `copies`: whether this process copies; otherwise it waits until another process has copied.
    Raises OSError if the checkpoint is missing or cannot be copied.
    """
    while not copies and not (folder / _COPIED).exists():
        time.sleep(_POLL_SECONDS)
    if not (folder / _COPIED).exists():
        if not folder.is_symlink():  # nothing behind a link is removed
            _clear(folder)
        saved = _saved(folder.parent, *origin)
        if not saved.is_dir():
            trial, step = origin
            raise FileNotFoundError(f"the checkpoint of trial {trial} at step {step} is missing: {saved}")
        shutil.copytree(saved, folder, symlinks=True, dirs_exist_ok=True)
        (folder / _COPIED).touch()


def remove_saved(trials: Path, first_needed: Mapping[int, float]) -> None:
    """Remove the saved checkpoints of each trial before the step `first_needed`. If one cannot be
    removed, it remains, with a warning."""
    for entry in _scan(trials / _SAVED):
        name = _SAVED_NAME.fullmatch(entry.name)
        if name is None or int(name[2]) >= first_needed.get(int(name[1]), 0):
            continue
        try:
            shutil.rmtree(entry.path)
        except OSError as error:
            _LOGGER.warning("cannot remove the saved checkpoint %s: %s", entry.path, error)


def _saved(trials: Path, trial: int, step: int) -> Path:
    return trials / _SAVED / f"{trial:06d}-{step}"


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The number and the size of a run's checkpoints."""

    trials: int  # the number of trials that have a checkpoint
    size: int  # the size of all files, in bytes


def remove_checkpoints(trials: Path | None, numbers: Iterable[int]) -> None:
    """Remove the checkpoints of these trials.

    A file that cannot be removed remains, with a warning. So does everything in a folder that a
    trial has replaced with a symbolic link. `trials`: the run's folder of trials; None if it is not
    on this machine.
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
            if folder.exists():
                _clear(folder)
        except OSError as error:
            _LOGGER.warning("cannot remove a checkpoint of trial %d: %s", number, error)


def _clear(folder: Path) -> None:
    """Remove the checkpoint in a trial's folder. Raises OSError."""
    for entry in _checkpoints(_list(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink(missing_ok=True)


def checkpoints_in(trials: Path) -> Checkpoints:
    """Count the checkpoints of all trials; none if the folder is missing or unreadable."""
    sizes = [_size(folder) for folder in _scan(trials) if folder.name.isdecimal()]
    saved = sum(map(_size, _scan(trials / _SAVED)))
    return Checkpoints(sum(size > 0 for size in sizes), sum(sizes) + saved)


def _size(folder: os.DirEntry[str]) -> int:
    if not folder.is_dir(follow_symlinks=False):
        return 0
    entries = _checkpoints(_scan(Path(folder.path)))
    counted = [entry for entry in entries if not entry.name.startswith(KEPT_REPORTS)]
    return sum(map(_size_of_files, counted))


def _size_of_files(entry: os.DirEntry[str]) -> int:
    """Return 0 for a file that has disappeared since its folder was read, as drafts do."""
    if entry.is_dir(follow_symlinks=False):
        return sum(map(_size_of_files, _scan(Path(entry.path))))
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def _checkpoints(entries: Iterable[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    """Return the entries of a trial's folder except the output of its attempts."""
    return [entry for entry in entries if not is_output(entry.name)]


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return _list(folder)
    except OSError:
        return []


def _list(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)
