"""Where an attempt's output lies: `trials/000123/output-1.txt` in the run's folder, 1 being the
attempt's number.

A file has at most `FILE_BYTES` and a little more. What is printed after that goes on in the same
file, and the part before it is kept as `output-1.older.txt`, which replaces the part before that.
Only an attempt that prints has a file. The first line of each file names the attempt, in
`HEADER_BYTES` bytes.
"""

import contextlib
import errno
import logging
import os
import re
import stat
import threading
from pathlib import Path
from typing import BinaryIO

FILE_BYTES = 4 * 1024 * 1024  # of one part of an attempt's output; two parts are kept
HEADER_BYTES = 64
SENT_BYTES = 64 * 1024  # of the end of the output, which returns with the outcome from a node without the run's folder
# of the end of the output, in a failure's message
TAIL_LINES = 20
TAIL_CHARACTERS = 2000
_LOGGER = logging.getLogger("bbkb.executor")
_NAME = re.compile(r"output-([1-9][0-9]*)\.txt")
_ANY_NAME = re.compile(r"output-[1-9][0-9]*(\.older)?\.txt")


def trial_folder(trials: Path, trial: int) -> Path:
    """Return the folder of one trial in `trials`, the run's folder of all of them."""
    return trials / f"{trial:06d}"


def output_file(trials: Path, trial: int, attempt: int) -> Path:
    """Return the file of what an attempt printed last."""
    return trial_folder(trials, trial) / f"output-{attempt}.txt"


def older_file(path: Path) -> Path:
    """Return the file of what was printed before `path`, an output file, began."""
    return path.with_name(f"{path.stem}.older.txt")


def is_output(name: str) -> bool:
    """Return whether a file of this name in a trial's folder is what an attempt printed."""
    return _ANY_NAME.fullmatch(name) is not None


def written_attempts(trials: Path, trial: int) -> list[int]:
    """Return the attempts of a trial that have printed something, in order."""
    folder = trial_folder(trials, trial)
    if not folder.is_dir():
        return []
    names = (_NAME.fullmatch(entry.name) for entry in folder.iterdir())
    return sorted(int(name[1]) for name in names if name)


def header(trial: int, attempt: int) -> bytes:
    """Return the first line of an attempt's output file."""
    return f"trial {trial} attempt {attempt}".encode().ljust(HEADER_BYTES - 1) + b"\n"


def open_output(path: Path) -> BinaryIO:
    """Return an output file for reading. Raises OSError where it is none: in another user's run it
    may be a link or a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "must be a file", str(path))
    return os.fdopen(descriptor, "rb")


def read_end(path: Path, most: int) -> bytes:
    """Return the last bytes of an output, `most` at most, from the beginning of a line where they
    hold one; empty where no file is. Raises OSError when it cannot be read."""
    end = _last_bytes(path, most + 1)
    if len(end) <= most:
        end = _last_bytes(older_file(path), most + 1 - len(end)) + end
    return end if len(end) <= most else end[1:].partition(b"\n")[2] or end[1:]


def _last_bytes(path: Path, most: int) -> bytes:
    with contextlib.suppress(FileNotFoundError), open_output(path) as file:
        file.seek(max(HEADER_BYTES, os.fstat(file.fileno()).st_size - most))
        return file.read(most)
    return b""


def tail_of(printed: bytes) -> str:
    """Return the last lines of an output, short enough for a failure's message."""
    lines = printed.decode("utf-8", errors="replace").replace("\0", "\\x00").strip().splitlines()
    return "\n".join(lines[-TAIL_LINES:])[-TAIL_CHARACTERS:]


class OutputFile:
    """The output of one attempt, written by the process that runs the campaign. It is created with
    the first byte.

    A piece is written when its line ends, so a process that dies loses the line that it was
    printing. When the file cannot be written, a warning says so and the evaluation continues
    without it. `write` may be called from any thread.
    """

    def __init__(self, trials: Path, trial: int, attempt: int) -> None:
        self._path = output_file(trials, trial, attempt)
        self._header = header(trial, attempt)
        self._is_writable = True
        self._descriptor = -1
        self._size = 0
        self._line = b""
        self._lock = threading.Lock()

    def write(self, piece: bytes) -> None:
        """Append `piece`."""
        with self._lock:
            *whole, self._line = (self._line + piece).rpartition(b"\n")
            if whole[1]:
                self._append(b"".join(whole))
            elif len(self._line) > SENT_BYTES:
                self._append(self._line)
                self._line = b""

    def close(self) -> None:
        """Write what is left."""
        with self._lock:
            if self._line:
                self._append(self._line)
                self._line = b""
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _append(self, text: bytes) -> None:
        if not self._is_writable:
            return
        try:
            self._write(text)
        except OSError as error:
            self._is_writable = False
            _LOGGER.warning("what an evaluation prints is not kept any more: %s: %s", self._path, error)

    def _write(self, text: bytes) -> None:
        if self._size >= FILE_BYTES:
            os.close(self._descriptor)
            self._path.replace(older_file(self._path))
            self._descriptor, self._size = -1, 0
        if self._descriptor < 0:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            text = self._header + text
        view = memoryview(text)
        while view:
            written = os.write(self._descriptor, view)
            self._size += written
            view = view[written:]
