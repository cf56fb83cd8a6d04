"""Copies the output of the evaluating thread into a file, in a process that has other threads.

Without Ray, the process that evaluates also displays the campaign's progress, so its file
descriptors cannot be redirected. Instead, `sys.stdout`, `sys.stderr` and the streams of the root
logger's handlers are replaced while an attempt runs. Text still reaches the terminal. Output of
other threads, C code and subprocesses is not copied, except for shell commands, whose output is
read from pipes.
"""

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

from workers.output_files import OutputFile

_FILES: dict[int, OutputFile] = {}  # by the id of the evaluating thread
_LOCK = threading.Lock()


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
        """Write each of these lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


@contextlib.contextmanager
def copy_thread(file: OutputFile) -> Iterator[None]:
    """Copy everything that this thread prints inside to `file`."""
    with _LOCK:
        _FILES[threading.get_ident()] = file
        _replace_streams()
    try:
        yield
    finally:
        with _LOCK:
            del _FILES[threading.get_ident()]
            if not _FILES:
                _restore_streams()


def _replace_streams() -> None:
    if not isinstance(sys.stdout, _Copying):
        sys.stdout = _Copying(sys.stdout)
    if not isinstance(sys.stderr, _Copying):
        sys.stderr = _Copying(sys.stderr)
    copies = {id(copy.stream): copy for copy in (sys.stdout, sys.stderr) if isinstance(copy, _Copying)}
    for handler in _stream_handlers():
        handler.stream = copies.get(id(handler.stream), handler.stream)


def _restore_streams() -> None:
    if isinstance(sys.stdout, _Copying):
        sys.stdout = sys.stdout.stream
    if isinstance(sys.stderr, _Copying):
        sys.stderr = sys.stderr.stream
    for handler in _stream_handlers():
        if isinstance(handler.stream, _Copying):
            handler.stream = handler.stream.stream


def _stream_handlers() -> "Iterator[logging.StreamHandler[TextIO | _Copying]]":
    return (one for one in logging.root.handlers if isinstance(one, logging.StreamHandler))
