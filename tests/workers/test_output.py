"""Tests of the output of attempts in worker processes, each test with a process of its own, and of
the evaluating thread in a process with others."""

import contextlib
import logging
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bbkb.workers.output import copy_thread
from bbkb.workers.output_files import OutputFile, find_output, read_end, running_folder
from tests.processes import run_python

BEGINNING = """
import os, subprocess, sys, warnings
from pathlib import Path
from bbkb.workers.messages import Attempt
from bbkb.workers.output import keep_output
from bbkb.workers.output_files import find_output, read_end
trials = Path(sys.argv[1])

def output(trial, attempt=1):
    return keep_output(Attempt(trial, 0, {}, 0, attempt, trials=trials), owns_process=True)
"""


def run(trials: Path, program: str) -> "subprocess.CompletedProcess[str]":
    """Run a worker process; `output(trial, attempt)` saves the output of an attempt."""
    text = BEGINNING + textwrap.dedent(program)
    return run_python("-c", text, str(trials))


@pytest.fixture
def trials(tmp_path: Path) -> Path:
    running_folder(tmp_path / "trials").mkdir(parents=True)
    return tmp_path / "trials"


def kept(trials: Path, trial: int, attempt: int = 1) -> str:
    return read_end(find_output(trials, trial, attempt), 10_000).decode()


def test_python_descriptors_and_children_print_into_one_file_in_order(trials: Path) -> None:
    done = run(
        trials,
        """
        with output(7, 2):
            print("python", flush=True)
            os.write(2, b"descriptor\\n")
            subprocess.run(["echo", "child"])
            warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)
            warnings.warn("warning")
            print("no newline", end="")
        """,
    )
    assert kept(trials, 7, 2) == "python\ndescriptor\nchild\nwarning\nno newline"
    assert done.stdout == done.stderr == ""


def test_attempt_has_its_own_output_and_text_in_between_belongs_to_none(trials: Path) -> None:
    done = run(
        trials,
        """
        for trial in range(3):
            with output(trial):
                print("of", trial)
            print("between")
        """,
    )
    assert [kept(trials, trial) for trial in range(3)] == ["of 0\n", "of 1\n", "of 2\n"]
    assert done.stdout == "between\n" * 3


def test_output_of_a_killed_process_is_saved(trials: Path) -> None:
    run(
        trials,
        """
        with output(4, 3):
            print("the last words")
            sys.stdout.flush()
            os.kill(os.getpid(), 9)
        """,
    )
    assert kept(trials, 4, 3) == "the last words\n"


def test_end_of_the_output_returns_with_the_outcome_without_the_runs_folder(tmp_path: Path) -> None:
    done = run(
        tmp_path / "on another machine",
        """
        with output(1) as first:
            print("of 1")
        with output(2) as second:
            pass
        print(repr(first.unshared_end), repr(second.unshared_end))
        """,
    )
    assert done.stdout.splitlines()[-1] == "'of 1\\n' ''"
    assert not (tmp_path / "on another machine").exists()


def test_evaluation_that_closes_all_descriptors_ends_with_a_result(trials: Path) -> None:
    done = run(
        trials,
        """
        with output(1):
            os.closerange(1, 100)
        with output(2):
            print("of 2")
        sys.exit(7)
        """,
    )
    assert done.returncode == 7


def test_output_of_an_objective_that_replaces_the_streams_is_saved(trials: Path) -> None:
    run(
        trials,
        """
        with output(1):
            sys.stdout = open(1, "w", closefd=False)
            print("through a stream of its own")
        """,
    )
    assert kept(trials, 1) == "through a stream of its own\n"


@contextlib.contextmanager
def copied(trials: Path, trial: int) -> Iterator[None]:
    with contextlib.closing(OutputFile(trials, trial, 1)) as file, copy_thread(file):
        yield


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
        assert kept(tmp_path, 0).count(word) >= 1
        assert word in shown.out + shown.err


def test_output_of_another_thread_is_not_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with copied(tmp_path, 0):
        print("mine")
        other = threading.Thread(target=print, args=("progress",))
        other.start()
        other.join()
    assert kept(tmp_path, 0) == "mine\n"
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


def test_evaluation_inside_an_evaluation_has_its_own_file(tmp_path: Path) -> None:
    with copied(tmp_path, 0):
        print("before")
        with copied(tmp_path, 1):
            print("inside")
        print("after")
    assert [kept(tmp_path, trial) for trial in (0, 1)] == ["before\nafter\n", "inside\n"]


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
    assert kept(tmp_path, 0) == ""
