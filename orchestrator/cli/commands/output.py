"""`bbkb logs`: what a trial printed, and what the program itself noted."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from orchestrator import logs
from orchestrator.campaign.state import CampaignState
from orchestrator.cli.arguments import RunFolder
from orchestrator.display.terminal import write_output
from orchestrator.errors import RunError
from orchestrator.store import runs, snapshots
from workers.output_files import HEADER_BYTES, older_file, open_output, output_file, written_attempts

_PIECE_BYTES = 1024 * 1024
_LOOK_SECONDS = 0.5
_STATE_SECONDS = 2.0  # between two looks whether the trial still runs


def logs_(
    folder: RunFolder,
    trial: Annotated[
        int | None, typer.Option(help="A trial: what it printed. Without it: run.log, the program's own log.")
    ] = None,
    attempt: Annotated[int | None, typer.Option(help="An attempt of the trial; without it the last one.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the trial ends, or until Ctrl-C.")] = (
        False
    ),
) -> None:
    """Print what a trial printed: its output and errors, as trials/000026/output-1.txt has them;
    without --trial the program's own log."""
    run = runs.open_run(folder)
    if trial is None:
        file = run.folder / logs.FILE_NAME
        if not file.is_file():
            raise RunError(f"{file} is not there: the run has not been started on this machine")
        pieces = _pieces_of_log(file, follow)
    else:
        _check_trial(run, trial, attempt, follow)
        pieces = _pieces_of_trial(run, trial, attempt, follow)
    for piece in pieces:
        write_output(piece)


def _check_trial(run: runs.Run, trial: int, attempt: int | None, follow: bool) -> None:
    """Raise RunError when there is nothing to print, nor to wait for."""
    state, printed = _state(run), written_attempts(run.trials, trial)
    if not 0 <= trial < state.totals.chosen:
        numbers = f"0 to {state.totals.chosen - 1}" if state.totals.chosen else "which has none yet"
        raise RunError(f"--trial must be a trial of {run.folder}, {numbers}, got {trial}")
    if (printed if attempt is None else attempt in printed) or (follow and _is_open(state, trial)):
        return
    which = f"trial {trial}" if attempt is None else f"attempt {attempt} of trial {trial}"
    hint = f"; attempts that did: {', '.join(map(str, printed))}" if printed else ""
    raise RunError(f"{which} printed nothing, or not on this machine: {run.trials} has no output of it{hint}")


def _state(run: runs.Run) -> CampaignState:
    with run.store() as store:
        return snapshots.current(run, store)[1]


def _is_open(state: CampaignState, trial: int) -> bool:
    """Return whether a trial waits or runs."""
    return trial in state.running or any(queued.trial == trial for queued in state.backlog)


class _GrowingFile:
    """A file that another process writes, from byte `first` on; anew when it was replaced."""

    def __init__(self, path: Path, first: int) -> None:
        self._path = path
        self._first = self._place = first

    def pieces(self) -> Iterator[bytes]:
        """Yield what has been written since the last call."""
        with contextlib.suppress(FileNotFoundError), open_output(self._path) as file:
            if os.fstat(file.fileno()).st_size < self._place:
                self._place = self._first
            file.seek(self._place)
            while piece := file.read(_PIECE_BYTES):
                self._place += len(piece)
                yield piece


def _pieces_of_trial(run: runs.Run, trial: int, attempt: int | None, follow: bool) -> Iterator[bytes]:
    """Yield an attempt's output (default: the last one's); `follow`: also while it runs."""
    shown, file = 0, None
    next_look, is_open = time.monotonic(), follow
    while True:
        if is_open and time.monotonic() >= next_look:  # before the file: what was printed until then is in it
            is_open, next_look = _is_open(_state(run), trial), time.monotonic() + _STATE_SECONDS
        newest = attempt or max(written_attempts(run.trials, trial), default=0)
        if newest != shown:
            path, shown = output_file(run.trials, trial, newest), newest
            file = _GrowingFile(path, HEADER_BYTES)
            yield from _GrowingFile(older_file(path), HEADER_BYTES).pieces()
        if file is not None:
            yield from file.pieces()
        if not is_open:
            return
        time.sleep(_LOOK_SECONDS)


def _pieces_of_log(path: Path, follow: bool) -> Iterator[bytes]:
    file = _GrowingFile(path, 0)
    yield from file.pieces()
    while follow:
        time.sleep(_LOOK_SECONDS)
        yield from file.pieces()
