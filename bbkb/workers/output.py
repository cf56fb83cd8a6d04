"""The files of a trial: the output of its attempts, and its checkpoints.

The output of attempt 1 of trial 123 is in `trials/000123/output-1.txt` of the run's folder. The
first line names the attempt and has `HEADER_BYTES`. Attempts without output leave no file and no
folder: while an attempt runs, its file is in `trials/.output`. If an output grows beyond twice
`KEPT_BYTES`, only the last `KEPT_BYTES` are kept. On a node without the run's folder, the file is
temporary; its end is returned with the outcome.

A worker process, which runs one attempt at a time, redirects its file descriptors 1 and 2 into the
file. So the file contains everything that Python, C code and subprocesses print, until the process
is killed. Without Ray, the process that evaluates also displays the campaign's progress. Instead,
`sys.stdout`, `sys.stderr` and the streams of the root logger's handlers are replaced while an
attempt runs, and the output of the evaluating thread is copied. Output of other threads, C code and
subprocesses is not copied, except for shell commands, whose output is read from pipes.

A checkpoint is everything in a trial's folder except the output of its attempts. The file with the
reports is removed with it, but does not count. With a strategy whose trials start from others'
checkpoints, a worker that stops trial 12 at step 20 saves its checkpoint in
`trials/.saved/000012-20`, which no training changes. A trial that continues from there begins with
a copy of this folder. The file `.copied` marks a complete copy.
"""

import contextlib
import errno
import logging
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, TextIO

from bbkb.workers.messages import Attempt, Outcome

KEPT_REPORTS = ".reports"  # the file with a trial's reports, in its folder
KEPT_BYTES = 4 * 1024 * 1024  # the part of a long output that is kept
HEADER_BYTES = 64
# the end of an output that is sent with the outcome from a node without the run's folder
SENT_BYTES = 64 * 1024
# the end of an output that the message of a failure quotes
TAIL_LINES = 20
TAIL_CHARACTERS = 2000
_CHECK_SECONDS = 0.5  # between two checks of the sizes of open files
_LOGGER = logging.getLogger("bbkb.executor")
_RUNNING = ".output"
_NAME = re.compile(r"output-([1-9][0-9]*)\.txt$")
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def trial_folder(trials: Path, trial: int) -> Path:
    """Return the folder of a trial; `trials` is the run's folder of all trials."""
    return trials / f"{trial:06d}"


def output_file(trials: Path, trial: int, attempt: int) -> Path:
    """Return the output file of an ended attempt."""
    return trial_folder(trials, trial) / f"output-{attempt}.txt"


def running_folder(trials: Path) -> Path:
    """Return the folder for the output files of running attempts and of killed processes."""
    return trials / _RUNNING


def find_output(trials: Path, trial: int, attempt: int) -> Path:
    """Return the output file of an attempt that is running or has ended."""
    running = _running_file(trials, trial, attempt)
    return running if running.exists() else output_file(trials, trial, attempt)


def last_trial(trials: Path) -> int | None:
    """Return the largest index of a trial with files; None if there is none."""
    folders = (file.name for file in trials.glob("[0-9]*"))
    outputs = (file.name.partition("-")[0] for file in running_folder(trials).glob("[0-9]*-output-*"))
    return max((int(name) for name in (*folders, *outputs) if name.isdecimal()), default=None)


def _running_file(trials: Path, trial: int, attempt: int) -> Path:
    return running_folder(trials) / f"{trial:06d}-output-{attempt}.txt"


def is_output(name: str) -> bool:
    """Return whether a file with this name in a trial's folder is an output file."""
    return _NAME.fullmatch(name) is not None


def written_attempts(trials: Path, trial: int) -> list[int]:
    """Return the attempts of a trial that have printed something, in order."""
    running = running_folder(trials).glob(f"{trial:06d}-output-*.txt")
    ended = trial_folder(trials, trial).glob("output-*.txt")
    names = [_NAME.search(file.name) for file in (*running, *ended) if _has_text(file)]
    return sorted({int(name[1]) for name in names if name})


def move_output(trials: Path, trial: int, attempt: int) -> None:
    """Move the output file of an ended attempt to its final path, or remove it if it is empty.

    The attempt's process does this, or the campaign's process if the former was killed. Raises
    OSError if the final path cannot be written.
    """
    running = _running_file(trials, trial, attempt)
    with contextlib.suppress(FileNotFoundError):  # another process has moved it
        if _has_text(running):
            final = output_file(trials, trial, attempt)
            final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            running.rename(final)
        else:
            running.unlink()


def move_all_outputs(trials: Path) -> None:
    """Move the outputs of killed processes, and then remove the empty folders."""
    for running in running_folder(trials).glob("*-output-*.txt"):
        trial, _, attempt = running.stem.partition("-output-")
        move_output(trials, int(trial), int(attempt))
    with contextlib.suppress(OSError):  # a folder is missing or not empty
        running_folder(trials).rmdir()
        trials.rmdir()


def _has_text(file: Path) -> bool:
    """Return whether an output file has more than its first line."""
    try:
        return file.stat().st_size > HEADER_BYTES
    except FileNotFoundError:
        return False


def open_output(path: Path) -> BinaryIO:
    """Open an output file for reading.

    Raises OSError if it is not a regular file: in another user's run it may be a link or a pipe.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "must be a file", str(path))
    return os.fdopen(descriptor, "rb")


def read_end(path: Path, most: int) -> bytes:
    """Return the last `most` bytes of an output, or fewer.

    The result begins with a complete line if there is one, and is empty if the file does not exist.
    Raises OSError if the file cannot be read.
    """
    with contextlib.suppress(FileNotFoundError), open_output(path) as file:
        file.seek(max(HEADER_BYTES, os.fstat(file.fileno()).st_size - most - 1))
        end = file.read(most + 1)
        return end if len(end) <= most else _whole_lines(end)
    return b""


def _whole_lines(end: bytes) -> bytes:
    """Remove the incomplete first line of the end of an output, if other lines follow."""
    return end[1:].partition(b"\n")[2] or end[1:]


def tail_of(output: bytes) -> str:
    """Return the last lines of an output, short enough for the message of a failure."""
    lines = output.decode("utf-8", errors="replace").replace("\0", "\\x00").strip().splitlines()
    text = "\n".join(lines[-TAIL_LINES:])
    end = text[-TAIL_CHARACTERS - 1 :]
    return text if len(text) <= TAIL_CHARACTERS else end.partition("\n")[2] or end[1:]


class OutputFile:
    """The output file of a running attempt. Any thread may call the methods. `descriptor` appends
    to the file, also from child processes."""

    def __init__(self, trials: Path, trial: int, attempt: int) -> None:
        """Create the file. Raises OSError if that fails."""
        self._attempt = (trials, trial, attempt)
        running_folder(trials).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.descriptor = os.open(_running_file(*self._attempt), _APPEND, 0o600)
        self._is_writable = True
        self._lock = threading.RLock()  # a signal handler may print while its thread writes
        if os.fstat(self.descriptor).st_size == 0:
            header = f"trial {trial} attempt {attempt}".encode().ljust(HEADER_BYTES - 1) + b"\n"
            os.write(self.descriptor, header)
        _OPEN_FILES.append(self)
        _start_size_limit()

    def write(self, piece: bytes) -> None:
        """Append `piece`. After an error, such as a full disk, a warning is logged once and all
        further output is dropped."""
        try:
            if self._is_writable:
                with self._lock:  # otherwise `limit_size` could cut off the end of `piece`
                    _write_all(self.descriptor, piece)
        except OSError as error:
            self._is_writable = False
            _LOGGER.warning("output of an evaluation is no longer saved: %s", error)

    def limit_size(self) -> None:
        """Keep only the end of a long output. Text that is printed through `descriptor` in the
        meantime may be lost."""
        with self._lock, contextlib.suppress(OSError):
            if self.descriptor < 0:
                return
            size = os.fstat(self.descriptor).st_size
            if size > 2 * KEPT_BYTES:
                end = os.pread(self.descriptor, KEPT_BYTES, size - KEPT_BYTES)
                os.ftruncate(self.descriptor, HEADER_BYTES)
                _write_all(self.descriptor, _whole_lines(end))

    def close(self) -> None:
        """Close the file and move it to its final path."""
        self.limit_size()
        _OPEN_FILES.remove(self)
        with self._lock, contextlib.suppress(OSError):  # an objective may have closed it
            descriptor = self.descriptor
            self.descriptor = -1
            os.close(descriptor)
        try:
            move_output(*self._attempt)
        except OSError as error:
            _LOGGER.warning("output of an evaluation stays in trials/%s: %s", _RUNNING, error)


def _write_all(descriptor: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]


_OPEN_FILES: list[OutputFile] = []  # the open files of this process


@lru_cache(maxsize=1)
def _start_size_limit() -> None:
    """Start the thread of this process that limits the sizes of open files.

    It is needed because an evaluation writes into its file directly and may print without end.
    """

    def limit_sizes() -> None:
        while True:
            time.sleep(_CHECK_SECONDS)
            for file in tuple(_OPEN_FILES):
                file.limit_size()

    threading.Thread(target=limit_sizes, daemon=True, name="bbkb output").start()


_FILES: dict[int, OutputFile] = {}  # by the id of the evaluating thread
_LOCK = threading.Lock()


@dataclass(slots=True)
class Printed:
    """The output of one attempt."""

    # appends bytes to the output, such as the output of a command; None if no output is saved
    write: Callable[[bytes], None] | None = None
    # the end of the output of an ended attempt, if its process does not share the run's folder
    unshared_end: str = ""

    def read(self, path: Path) -> None:
        """Keep the end of the output of an ended attempt, whose file is temporary."""
        self.unshared_end = read_end(path, SENT_BYTES).decode("utf-8", errors="replace")

    def add_to(self, outcome: Outcome) -> Outcome:
        """Return the outcome together with the output that has to be sent with it."""
        return replace(outcome, output=self.unshared_end) if self.unshared_end else outcome


@contextlib.contextmanager
def keep_output(attempt: Attempt, owns_process: bool) -> Iterator[Printed]:
    """Save the output inside if the attempt has a folder for it and the system allows it.

    `owns_process`: whether the process runs nothing else at the same time, so that its file
    descriptors can be redirected.
    """
    printed = Printed()
    with contextlib.ExitStack() as resources:
        try:
            if (trials := attempt.trials) is not None:
                # the campaign's process has created the folder, so a worker that can see it shares the disk
                if owns_process and not running_folder(trials).is_dir():
                    trials = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="bbkb-")))
                    resources.callback(printed.read, output_file(trials, attempt.trial, attempt.attempt))
                file = OutputFile(trials, attempt.trial, attempt.attempt)
                resources.callback(file.close)
                resources.enter_context(_redirect_process(file) if owns_process else copy_thread(file))
                printed.write = file.write
        except OSError as error:
            _LOGGER.warning("output of an evaluation is not saved: %s", error)
        yield printed


@contextlib.contextmanager
def _redirect_process(file: OutputFile) -> Iterator[None]:
    """Redirect everything that this process and its children print inside to `file`.

    Raises OSError if the process has no output to redirect, because an earlier evaluation closed
    it.
    """
    streams = (sys.stdout, sys.stderr)
    _flush(*streams)
    before = (os.dup(1), os.dup(2))
    os.dup2(file.descriptor, 1)
    os.dup2(file.descriptor, 2)
    try:
        yield
    finally:
        _flush(*streams, sys.stdout, sys.stderr)
        for target, saved in enumerate(before, start=1):
            with contextlib.suppress(OSError):  # the evaluation may have closed the descriptors
                os.dup2(saved, target)
                os.close(saved)


def _flush(*streams: object) -> None:
    """Flush Python's buffers. Streams that an objective has replaced or closed may raise."""
    for stream in streams:
        flush = getattr(stream, "flush", None)
        if callable(flush):
            with contextlib.suppress(Exception):
                flush()


class _Copying:
    """A text stream that also writes the output of evaluating threads into their files."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write to the stream, and to the file of this thread's attempt."""
        file = _FILES.get(threading.get_ident())
        if file is not None and isinstance(text, str):
            file.write(text.encode("utf-8", "backslashreplace"))
        return self.stream.write(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


@contextlib.contextmanager
def copy_thread(file: OutputFile) -> Iterator[None]:
    """Copy everything that this thread prints inside to `file`."""
    thread = threading.get_ident()
    with _LOCK:
        outer = _FILES.get(thread)  # of an evaluation that runs a campaign itself
        _FILES[thread] = file
        copies: dict[int, _Copying] = {}  # by the stream that they replace
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            copy = stream if isinstance(stream, _Copying) else _Copying(stream)
            setattr(sys, name, copy)
            copies[id(copy.stream)] = copy
        for handler in _stream_handlers():
            handler.stream = copies.get(id(handler.stream), handler.stream)
    try:
        yield
    finally:
        with _LOCK:
            del _FILES[thread]
            if outer is not None:
                _FILES[thread] = outer
            if not _FILES:
                handlers = [(handler, "stream") for handler in _stream_handlers()]
                for owner, name in [(sys, "stdout"), (sys, "stderr"), *handlers]:
                    stream = getattr(owner, name)
                    if isinstance(stream, _Copying):
                        setattr(owner, name, stream.stream)


def _stream_handlers() -> "Iterator[logging.StreamHandler[TextIO | _Copying]]":
    return (one for one in logging.root.handlers if isinstance(one, logging.StreamHandler))


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
