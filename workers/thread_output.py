"""Copies what the evaluating thread prints into the attempt's output file, in a process that does
other things too.

The process of the inline executor shows the campaign's progress, so its file descriptors cannot be
given to an attempt. Instead `sys.stdout`, `sys.stderr` and the streams of the root logger's
handlers are replaced while an attempt runs. Text reaches the terminal as before. What other threads
print, what C code prints and what a subprocess inherits is not copied. A shell command is: its
output is read from pipes.
"""

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

from workers.output_files import OutputFile

_FILES: dict[int, OutputFile] = {}  # by the identity of the thread that evaluates
_LOCK = threading.Lock()


class _Copying:
    """A text stream that also writes what an evaluating thread prints into its attempt's file."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write to the stream, and to the file of this thread's attempt."""
        file = _FILES.get(threading.get_ident())
        if file is not None and isinstance(text, str):
            file.write(text.encode("utf-8", "backslashreplace"))
        return self.stream.write(text)

    def writelines(self, lines: list[str]) -> None:
        """Write each of them."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


@contextlib.contextmanager
def copy_of_thread(file: OutputFile) -> Iterator[None]:
    """Copy what this thread prints inside into `file`, and close it."""
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
        file.close()


def _replace_streams() -> None:
    # an object of this class stands for the stream wherever a program asks for `sys.stdout`
    if not isinstance(sys.stdout, _Copying):
        sys.stdout = _Copying(sys.stdout)
    if not isinstance(sys.stderr, _Copying):
        sys.stderr = _Copying(sys.stderr)
    for handler in logging.root.handlers:
        if isinstance(handler, logging.StreamHandler):
            for copying in (sys.stdout, sys.stderr):
                if isinstance(copying, _Copying) and handler.stream is copying.stream:
                    handler.stream = copying


def _restore_streams() -> None:
    if isinstance(sys.stdout, _Copying):
        sys.stdout = sys.stdout.stream
    if isinstance(sys.stderr, _Copying):
        sys.stderr = sys.stderr.stream
    for handler in logging.root.handlers:
        if isinstance(handler, logging.StreamHandler) and isinstance(handler.stream, _Copying):
            handler.stream = handler.stream.stream
