"""Tests of orchestrator/display/terminal.py: output that cannot be written."""

import errno
import io
import os
import sys
from dataclasses import dataclass

import pytest

from bbkb.orchestrator.display.terminal import write_output
from bbkb.orchestrator.errors import UserError


class Broken(io.RawIOBase):
    """A file whose writes fail with `error`."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error

    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        raise self._error


@dataclass
class Output:
    """Standard output without a buffer of its own."""

    buffer: io.RawIOBase

    def isatty(self) -> bool:
        return False


def test_output_to_a_full_disk_is_a_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(sys, "stdout", Output(Broken(full)))
    with pytest.raises(UserError, match="the output cannot be written: No space left on device"):
        write_output(b"trial,arm\r\n")


def test_closed_pipe_is_not_a_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Output(Broken(BrokenPipeError())))
    with pytest.raises(BrokenPipeError):
        write_output(b"trial,arm\r\n")
