"""Tests of what the inline executor keeps of the evaluating thread's output."""

import logging
import sys
import threading
from pathlib import Path

import pytest

from workers.output_files import OutputFile, output_file, read_end
from workers.thread_output import copy_of_thread


def kept(trials: Path, trial: int = 0) -> str:
    return read_end(output_file(trials, trial, 1), 10_000).decode()


def test_output_errors_and_log_lines_are_kept_and_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = logging.StreamHandler(sys.stderr)
    logging.root.addHandler(handler)
    try:
        with copy_of_thread(OutputFile(tmp_path, 0, 1)):
            print("to output")
            print("to errors", file=sys.stderr)
            logging.getLogger("of.a.user").error("to the log")
    finally:
        logging.root.removeHandler(handler)
    shown = capsys.readouterr()
    for word in ("to output", "to errors", "to the log"):
        assert kept(tmp_path).count(word) >= 1
        assert word in shown.out + shown.err


def test_what_another_thread_prints_is_not_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with copy_of_thread(OutputFile(tmp_path, 0, 1)):
        print("mine")
        other = threading.Thread(target=print, args=("progress",))
        other.start()
        other.join()
    assert kept(tmp_path) == "mine\n"
    assert "progress" in capsys.readouterr().out


def test_two_threads_that_evaluate_have_a_file_each(tmp_path: Path) -> None:
    both_run = threading.Barrier(2)

    def evaluate(trial: int) -> None:
        with copy_of_thread(OutputFile(tmp_path, trial, 1)):
            both_run.wait()
            print("of", trial)
            both_run.wait()

    threads = [threading.Thread(target=evaluate, args=(trial,)) for trial in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [kept(tmp_path, trial) for trial in (0, 1)] == ["of 0\n", "of 1\n"]


def test_the_streams_are_those_of_before_afterwards(tmp_path: Path) -> None:
    before = sys.stdout, sys.stderr
    with pytest.raises(ValueError), copy_of_thread(OutputFile(tmp_path, 0, 1)):
        raise ValueError
    assert (sys.stdout, sys.stderr) == before


def test_a_stream_that_was_kept_from_an_attempt_still_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with copy_of_thread(OutputFile(tmp_path, 0, 1)):
        stream = sys.stdout
    print("later", file=stream)
    assert capsys.readouterr().out == "later\n"
    assert kept(tmp_path) == ""
