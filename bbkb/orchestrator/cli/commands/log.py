"""`bbkb verify`, `logs` and `store`: the log of a run, the output of its trials, and a database that
campaigns share."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bbkb.orchestrator import logs
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.cli.arguments import RunFolder
from bbkb.orchestrator.credentials import stored
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.report.terminal import FAILED, SafeConsole, say, write_output
from bbkb.orchestrator.store import runs, snapshots
from bbkb.orchestrator.store.store import EventStore
from bbkb.orchestrator.store.verify import compare
from bbkb.orchestrator.store.verify import verify as verify_log
from bbkb.workers.output import (
    HEADER_BYTES,
    find_output,
    open_output,
    written_attempts,
)

_PIECE_BYTES = 1024 * 1024
_POLL_SECONDS = 0.5
_STATE_SECONDS = 2.0  # between two checks whether the trial is still running


def verify(
    folder: RunFolder,
    against: Annotated[
        Path | None, typer.Option(help="A copy of the run's folder or of its SQLite file, to compare event by event.")
    ] = None,
) -> None:
    """Check a run's log: checksums, order and counts. Print the evaluations that a resume would repeat.
    Exit code 1: the log is damaged or differs from the copy."""
    console = SafeConsole()
    checked = runs.open_run(folder)
    with checked.store() as store:
        found = verify_log(store, checked.name)
        say(console, str(found))
        is_same = True
        if against is not None:
            file = against / "campaign.sqlite" if against.is_dir() else against
            with contextlib.closing(EventStore(file)) as copy:
                is_same, comparison = compare(store, copy, checked.name)
            say(console, comparison)
    if found.problems or not is_same:
        raise typer.Exit(FAILED)


def logs_(
    folder: RunFolder,
    trial: Annotated[
        int | None, typer.Option(help="The trial whose output is printed; default: run.log, the program's own log.")
    ] = None,
    attempt: Annotated[int | None, typer.Option(help="An attempt of the trial; default: the last one.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the trial ends, or until Ctrl-C.")] = (
        False
    ),
) -> None:
    """Print the output of a trial, standard error included, from trials/000026/output-1.txt.
    Without --trial, print the program's own log."""
    run = runs.open_run(folder)
    if trial is None:
        file = run.folder / logs.FILE_NAME
        if not file.is_file():
            raise RunError(f"{file} does not exist: the run has not been started on this machine")
        log = _GrowingFile(lambda: file, 0, is_log=True)
        while True:
            for piece in log.pieces():
                write_output(piece)
            if not follow:
                return
            time.sleep(_POLL_SECONDS)
    state = _state(run)
    printed = written_attempts(run.trials, trial)
    if not 0 <= trial < state.totals.chosen:
        numbers = f"0 to {state.totals.chosen - 1}" if state.totals.chosen else "which has none yet"
        raise RunError(f"--trial must be a trial of {run.folder}, {numbers}, got {trial}")
    has_output = bool(printed) if attempt is None else attempt in printed
    if not has_output and not (follow and _is_open(state, trial)):
        which = f"trial {trial}" if attempt is None else f"attempt {attempt} of trial {trial}"
        hint = f"; attempts with output: {', '.join(map(str, printed))}" if printed else ""
        raise RunError(f"{which} has no output in {run.trials}: it printed nothing, or on another machine{hint}")
    for piece in _pieces(run, trial, attempt, follow):
        write_output(piece)


def _state(run: runs.Run) -> CampaignState:
    with run.store() as store:
        return snapshots.current(run, store)


def _is_open(state: CampaignState, trial: int) -> bool:
    """Return whether a trial is queued or running."""
    return trial in state.running or any(queued.id == trial for queued in state.backlog)


class _GrowingFile:
    """A file that another process writes and may move.

    A log that has become shorter was replaced, and is read from the beginning. An output of an
    attempt that has become shorter has lost its beginning; reading continues at its end.
    """

    def __init__(self, find: Callable[[], Path], first: int, is_log: bool = False) -> None:
        """Read the file that `find` returns from byte `first`."""
        self._find = find
        self._position = first
        self._is_log = is_log

    def pieces(self) -> Iterator[bytes]:
        """Yield the content that is new since the last call."""
        with contextlib.suppress(FileNotFoundError), open_output(self._find()) as file:
            size = os.fstat(file.fileno()).st_size
            if size < self._position:
                self._position = 0 if self._is_log else size
            file.seek(self._position)
            while piece := file.read(_PIECE_BYTES):
                self._position += len(piece)
                yield piece


def _pieces(run: runs.Run, trial: int, attempt: int | None, follow: bool) -> Iterator[bytes]:
    """Yield the output of an attempt (default: the newest); `follow`: until the trial ends."""
    shown = 0
    file = None
    next_check = time.monotonic()
    is_open = follow
    while True:
        if is_open and time.monotonic() >= next_check:  # before reading, so that nothing is missed
            is_open = _is_open(_state(run), trial)
            next_check = time.monotonic() + _STATE_SECONDS
        newest = attempt or max(written_attempts(run.trials, trial), default=0)
        if newest != shown:
            shown = newest
            file = _GrowingFile(partial(find_output, run.trials, trial, newest), HEADER_BYTES)
        if file is not None:
            yield from file.pieces()
        if not is_open:
            return
        time.sleep(_POLL_SECONDS)


app = typer.Typer(help="A database that campaigns share.", no_args_is_help=True, add_completion=False)


@app.callback()
def store() -> None:
    """A database that campaigns share."""


@app.command()
def init(
    url: Annotated[str, typer.Argument(help="postgresql://…, or sqlite:///FILE; ${VAR} is read from the environment.")],
) -> None:
    """Create the tables.

    This needs a role that may create tables. Campaigns only need a role that may read and write
    rows.
    """
    with contextlib.closing(EventStore(url)) as tables:
        tables.make_tables()
    say(SafeConsole(), f"the tables are there: {stored(url)}")
