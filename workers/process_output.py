"""Redirects the output of a worker process, which runs one attempt at a time, into a file.

The file descriptors 1 and 2 of the process are redirected to the attempt's file. So the file
contains everything that Python, C code and subprocesses print, until the process is killed.
"""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def redirect_process(descriptor: int) -> Iterator[None]:
    """Redirect the output of this process and its children to `descriptor` inside.

    Raises OSError if the process has no output to redirect, because an earlier evaluation closed
    it.
    """
    streams = (sys.stdout, sys.stderr)
    _flush(*streams)
    before = (os.dup(1), os.dup(2))
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
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
