"""Tests of orchestrator/display/terminal.py: output that cannot be written."""

import io
import sys
from dataclasses import dataclass

import pytest

from orchestrator.display.terminal import write_output
from orchestrator.errors import UserError


@dataclass
class Output:
    """Standard output without a buffer of its own."""

    buffer: io.RawIOBase

    def isatty(self) -> bool:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a device that is always full")
def test_output_to_a_full_disk_is_a_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with io.FileIO("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", Output(full))
        with pytest.raises(UserError, match="the output cannot be written: No space left on device"):
            write_output(b"trial,arm\r\n")


class Ended(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        raise BrokenPipeError


def test_output_whose_reader_has_ended_is_no_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Output(Ended()))
    with pytest.raises(BrokenPipeError):
        write_output(b"trial,arm\r\n")
