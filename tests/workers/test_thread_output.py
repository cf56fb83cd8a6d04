"""Tests of the output that the inline executor saves: that of the evaluating thread."""

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.output_files import OutputFile, output_file, read_end
from workers.thread_output import copy_thread


@contextlib.contextmanager
def copied(trials: Path, trial: int) -> Iterator[None]:
    with contextlib.closing(OutputFile(trials, trial, 1)) as file, copy_thread(file):
        yield


def kept(trials: Path, trial: int = 0) -> str:
    return read_end(output_file(trials, trial, 1), 10_000).decode()


def test_output_errors_and_log_lines_are_saved_and_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = logging.StreamHandler(sys.stderr)
    logging.root.addHandler(handler)
    try:
        with copied(tmp_path, 0):
            print("to output")
            print("to errors", file=sys.stderr)
            logging.getLogger("of.a.user").error("to the log")
    finally:
        logging.root.removeHandler(handler)
    shown = capsys.readouterr()
    for word in ("to output", "to errors", "to the log"):
        assert kept(tmp_path).count(word) >= 1
        assert word in shown.out + shown.err


def test_output_of_another_thread_is_not_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with copied(tmp_path, 0):
        print("mine")
        other = threading.Thread(target=print, args=("progress",))
        other.start()
        other.join()
    assert kept(tmp_path) == "mine\n"
    assert "progress" in capsys.readouterr().out


def test_evaluating_thread_has_its_own_file(tmp_path: Path) -> None:
    both_run = threading.Barrier(2)

    def evaluate(trial: int) -> None:
        with copied(tmp_path, trial):
            both_run.wait()
            print("of", trial)
            both_run.wait()

    threads = [threading.Thread(target=evaluate, args=(trial,)) for trial in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [kept(tmp_path, trial) for trial in (0, 1)] == ["of 0\n", "of 1\n"]


def test_streams_are_restored_after_an_error(tmp_path: Path) -> None:
    before = sys.stdout, sys.stderr
    with pytest.raises(ValueError), copied(tmp_path, 0):
        raise ValueError
    assert (sys.stdout, sys.stderr) == before


def test_stream_that_outlives_its_attempt_still_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with copied(tmp_path, 0):
        stream = sys.stdout
    print("later", file=stream)
    assert capsys.readouterr().out == "later\n"
    assert kept(tmp_path) == ""
