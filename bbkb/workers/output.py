"""Saves the output of an attempt in a file, using a method that suits the process.

A worker process, which runs one attempt at a time, redirects its file descriptors 1 and 2 into the
file. So the file contains everything that Python, C code and subprocesses print, until the process
is killed.

Without Ray, the process that evaluates also displays the campaign's progress, so its file
descriptors cannot be redirected. Instead, `sys.stdout`, `sys.stderr` and the streams of the root
logger's handlers are replaced while an attempt runs, and the output of the evaluating thread is
copied. Text still reaches the terminal. Output of other threads, C code and subprocesses is not
copied, except for shell commands, whose output is read from pipes.

The file is created when the attempt begins, and is removed or moved when it ends. This takes 0.2 ms
on a local disk, and about a millisecond on a network disk (a few round trips). On a node without
the run's folder, the file is temporary; its end is returned with the outcome.
"""

import contextlib
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from bbkb.workers.messages import Attempt, Outcome
from bbkb.workers.output_files import SENT_BYTES, OutputFile, output_file, read_end, running_folder

_LOGGER = logging.getLogger("bbkb.executor")
_FILES: dict[int, OutputFile] = {}  # by the id of the evaluating thread
_LOCK = threading.Lock()


@dataclass(slots=True)
class Printed:
    """The output of one attempt."""

    # appends bytes to the output, such as the output of a command; None if no output is saved
    write: Callable[[bytes], None] | None = None
    # the end of the output of an ended attempt, if its process does not share the run's folder
    unshared_end: str = ""

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
            if attempt.trials is not None:
                _open(attempt, attempt.trials, owns_process, printed, resources)
        except OSError as error:
            _LOGGER.warning("output of an evaluation is not saved: %s", error)
        yield printed


def _open(
    attempt: Attempt,
    trials: Path,
    owns_process: bool,
    printed: Printed,
    resources: contextlib.ExitStack,
) -> None:
    """Redirect the output into the attempt's file until `resources` are closed."""
    # the campaign's process has created the folder, so a worker that can see it shares the disk
    if owns_process and not running_folder(trials).is_dir():
        trials = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="bbkb-")))
        path = output_file(trials, attempt.trial, attempt.attempt)
        resources.callback(_take_end, path, printed)
    file = OutputFile(trials, attempt.trial, attempt.attempt)
    resources.callback(file.close)
    resources.enter_context(_redirect_process(file) if owns_process else copy_thread(file))
    printed.write = file.write


def _take_end(path: Path, printed: Printed) -> None:
    printed.unshared_end = read_end(path, SENT_BYTES).decode("utf-8", errors="replace")


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
        _replace_streams()
    try:
        yield
    finally:
        with _LOCK:
            del _FILES[thread]
            if outer is not None:
                _FILES[thread] = outer
            if not _FILES:
                _restore_streams()


def _replace_streams() -> None:
    copies: dict[int, _Copying] = {}  # by the stream that they replace
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        copy = stream if isinstance(stream, _Copying) else _Copying(stream)
        setattr(sys, name, copy)
        copies[id(copy.stream)] = copy
    for handler in _stream_handlers():
        handler.stream = copies.get(id(handler.stream), handler.stream)


def _restore_streams() -> None:
    handlers = [(handler, "stream") for handler in _stream_handlers()]
    for owner, name in [(sys, "stdout"), (sys, "stderr"), *handlers]:
        stream = getattr(owner, name)
        if isinstance(stream, _Copying):
            setattr(owner, name, stream.stream)


def _stream_handlers() -> "Iterator[logging.StreamHandler[TextIO | _Copying]]":
    return (one for one in logging.root.handlers if isinstance(one, logging.StreamHandler))
