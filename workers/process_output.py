"""Keeps what an attempt prints in a worker process, which runs one attempt at a time and may die
with it.

While an attempt runs, the file descriptors 1 and 2 of the process are a file in the run's folder,
so that everything is kept that Python, C code and subprocesses print, up to the moment when the
process is killed: the data are in the file and in no buffer of this process. The same text is
copied to where these descriptors led before (the logs of Ray).

An evaluation may take a millisecond, and most print nothing. So the file is opened once for each
process, in `trials/.output`; its first line names the attempt. When something was printed it is
moved to the attempt's own place (`workers.output_files`): at the attempt's end, a moment after the
first byte while the attempt runs, or by the process that runs the campaign when this one has died
(`recover`). Without a byte it serves the next attempt.

Where the run's folder is not on this machine the file is in a temporary folder, and the end of the
output returns with the outcome.
"""

import contextlib
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from workers.output_files import FILE_BYTES, HEADER_BYTES, SENT_BYTES, header, older_file, output_file, read_end

LOOK_SECONDS = 0.25  # between two looks at a running attempt's output
_FOLDER = ".output"
_COPY_BYTES = 1024 * 1024
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def prepare_folder(trials: Path) -> None:
    """Make the folder of the files that belong to no attempt yet. Workers look for it to learn
    whether they share the run's folder. Raises OSError when it cannot be made."""
    (trials / _FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)


def remove_folder(trials: Path) -> None:
    """Remove it, with the empty files in it, when no worker is left; what was printed into a file
    is moved first."""
    folder = trials / _FOLDER
    for file in folder.glob("*.txt"):
        if not _move_to_its_attempt(file, trials):
            file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # some other file is in it, or it is gone
        folder.rmdir()
        trials.rmdir()


def recover(trials: Path, trial: int, attempt: int) -> None:
    """Move the output of an attempt whose process has died to its place."""
    first_line = header(trial, attempt)
    for file in (trials / _FOLDER).glob("*.txt"):
        if _first_line(file) == first_line:
            _move_to_its_attempt(file, trials)


def _first_line(file: Path) -> bytes:
    with contextlib.suppress(FileNotFoundError), file.open("rb") as opened:
        return opened.read(HEADER_BYTES)
    return b""


def _move_to_its_attempt(file: Path, trials: Path) -> bool:
    """Move a file to the attempt that its first line names; False when it has nothing but that
    line, or is gone."""
    words = _first_line(file).split()
    if len(words) != 4 or file.stat().st_size <= HEADER_BYTES:
        return False
    target = output_file(trials, int(words[1]), int(words[3]))
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):  # its process has moved it just now
        file.rename(target)
    return True


class ProcessOutput:
    """The output of a worker process for one campaign. `trials`: the run's folder of trials."""

    def __init__(self, trials: Path) -> None:
        self.trials = trials
        shared = trials / _FOLDER
        self._is_shared = shared.is_dir()
        folder = shared if self._is_shared else Path(tempfile.gettempdir())
        self._spare = folder / f"bbkb-{socket.gethostname()}-{os.getpid()}.txt"
        self._path = self._spare  # of the open file
        self._descriptor = -1  # appends to it
        self._writer = -1  # writes its first line
        self._copied = HEADER_BYTES  # bytes of it that were copied to Ray's logs, with the first line
        self._before = (os.dup(1), os.dup(2))
        self._attempt = (0, 0)
        self._lock = threading.Lock()
        self._runs = threading.Event()
        threading.Thread(target=self._watch, daemon=True, name="bbkb output").start()

    @contextlib.contextmanager
    def of(self, trial: int, attempt: int) -> Iterator[None]:
        """Keep what is printed inside."""
        streams = (sys.stdout, sys.stderr)
        _flush(*streams)
        self._begin(trial, attempt)
        try:
            yield
        finally:
            _flush(*streams, sys.stdout, sys.stderr)
            try:
                self._end()
            except OSError as error:  # the evaluation closed descriptors of its process, or the disk is full
                self._complain(error)

    def unshared_end(self) -> str:
        """Return the end of the last attempt's output where the run's folder is not on this
        machine; else empty."""
        if self._is_shared or self._path == self._spare:
            return ""
        printed = read_end(self._path, SENT_BYTES)
        for file in (self._path, older_file(self._path)):
            file.unlink(missing_ok=True)
        return printed.decode("utf-8", errors="replace")

    def close(self) -> None:
        """Give the file back; another campaign evaluates in this process."""
        with self._lock:
            self._release()
            self._spare.unlink(missing_ok=True)
            for descriptor in self._before:
                os.close(descriptor)

    def _begin(self, trial: int, attempt: int) -> None:
        with self._lock:
            self._attempt = (trial, attempt)
            if self._descriptor < 0:
                self._path = self._spare
                self._descriptor = os.open(self._path, _FLAGS, 0o600)
                self._writer = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
                os.ftruncate(self._descriptor, 0)
                self._copied = HEADER_BYTES
            os.pwrite(self._writer, header(trial, attempt), 0)
            os.dup2(self._descriptor, 1)
            os.dup2(self._descriptor, 2)
            self._runs.set()

    def _end(self) -> None:
        with self._lock:
            self._runs.clear()
            for number, descriptor in enumerate(self._before, start=1):
                os.dup2(descriptor, number)
            self._keep()
            if self._path != self._spare:
                self._release()

    def _release(self) -> None:
        for descriptor in (self._descriptor, self._writer):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._writer = -1

    def _watch(self) -> None:
        """Move, copy and divide the output of an attempt while it runs."""
        pause = threading.Event()
        while self._runs.wait():
            pause.wait(LOOK_SECONDS)
            with self._lock:
                if self._runs.is_set():
                    self._look()

    def _look(self) -> None:
        try:
            self._keep()
            if self._copied >= FILE_BYTES:
                self._divide()
        except OSError as error:  # a full disk, for example: the next look tries again
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        with contextlib.suppress(OSError):  # the descriptor may be what was closed
            os.write(self._before[1], f"bbkb: the output of an evaluation cannot be kept: {error}\n".encode())

    def _keep(self) -> None:
        """Give the file its place once there is output, and copy what is new to Ray's logs."""
        size = os.fstat(self._descriptor).st_size
        if size <= HEADER_BYTES:
            return
        if self._path == self._spare:
            self._path = self._place()
            with contextlib.suppress(FileNotFoundError):  # the campaign took this process for dead, and has moved it
                self._spare.rename(self._path)
        while self._copied < size:
            piece = os.pread(self._descriptor, min(_COPY_BYTES, size - self._copied), self._copied)
            if not piece:
                break
            self._copied += len(piece)
            os.write(self._before[0], piece)

    def _place(self) -> Path:
        if not self._is_shared:
            return self._spare.with_suffix(".printed.txt")
        place = output_file(self.trials, *self._attempt)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return place

    def _divide(self) -> None:
        """Continue in a new file. A subprocess that still writes into the one before is bounded
        with it: that file is emptied when it is replaced."""
        older = older_file(self._path)
        if older.exists():
            os.truncate(older, 0)
        self._path.rename(older)
        self._release()
        self._descriptor = os.open(self._path, _FLAGS, 0o600)
        self._writer = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        os.pwrite(self._writer, header(*self._attempt), 0)
        self._copied = HEADER_BYTES
        os.dup2(self._descriptor, 1)
        os.dup2(self._descriptor, 2)


def _flush(*streams: object) -> None:
    """Write what Python holds back. A stream that an objective has replaced or closed may refuse,
    which is no error."""
    for stream in streams:
        flush = getattr(stream, "flush", None)
        if callable(flush):
            with contextlib.suppress(Exception):
                flush()


_OUTPUTS: list[ProcessOutput] = []  # of this process; at most one


def process_output(trials: Path) -> ProcessOutput:
    """Return the output of this process for the campaign with this folder of trials. Raises OSError
    when it has no room."""
    if not _OUTPUTS or _OUTPUTS[0].trials != trials:
        output = ProcessOutput(trials)
        while _OUTPUTS:
            _OUTPUTS.pop().close()
        _OUTPUTS.append(output)
    return _OUTPUTS[0]
