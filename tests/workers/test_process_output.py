"""Tests of what a worker process keeps of its attempts' output, each in a process of its own."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from workers.output_files import FILE_BYTES, older_file, output_file, read_end
from workers.process_output import prepare_folder, recover, remove_folder

BEGINNING = """
import os, subprocess, sys, threading, warnings
from pathlib import Path
from workers.process_output import ProcessOutput, LOOK_SECONDS
from workers.output_files import output_file, older_file, FILE_BYTES
trials = Path(sys.argv[1])
output = ProcessOutput(trials)
"""


def run(trials: Path, program: str) -> "subprocess.CompletedProcess[str]":
    """Run a worker process; `output` is its ProcessOutput."""
    text = BEGINNING + textwrap.dedent(program)
    return subprocess.run([sys.executable, "-c", text, str(trials)], capture_output=True, text=True, timeout=120)


@pytest.fixture
def trials(tmp_path: Path) -> Path:
    prepare_folder(tmp_path / "trials")
    return tmp_path / "trials"


def kept(trials: Path, trial: int, attempt: int = 1) -> str:
    return read_end(output_file(trials, trial, attempt), 10_000).decode()


def test_python_descriptors_and_children_print_into_one_file_in_order(trials: Path) -> None:
    done = run(
        trials,
        """
        with output.of(7, 2):
            print("python", flush=True)
            os.write(2, b"descriptor\\n")
            subprocess.run(["echo", "child"])
            warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)
            warnings.warn("warning")
            print("no newline", end="")
        """,
    )
    assert kept(trials, 7, 2) == "python\ndescriptor\nchild\nwarning\nno newline"
    assert done.stdout == "python\ndescriptor\nchild\nwarning\nno newline"  # where it would have been printed, too


def test_an_attempt_without_output_makes_no_file(trials: Path) -> None:
    run(
        trials,
        """
        for trial in range(1000):
            with output.of(trial, 1):
                pass
        assert len(list((trials / ".output").iterdir())) == 1
        """,
    )
    assert [entry.name for entry in trials.iterdir()] == [".output"]


def test_each_attempt_has_its_own_output_and_what_lies_between_belongs_to_none(trials: Path) -> None:
    done = run(
        trials,
        """
        for trial in range(3):
            with output.of(trial, 1):
                print("of", trial)
            print("between")
        """,
    )
    assert [kept(trials, trial) for trial in range(3)] == ["of 0\n", "of 1\n", "of 2\n"]
    assert done.stdout == "of 0\nbetween\nof 1\nbetween\nof 2\nbetween\n"


def test_the_output_of_a_killed_process_is_recovered(trials: Path) -> None:
    run(
        trials,
        """
        with output.of(4, 3):
            print("the last words")
            sys.stdout.flush()
            os.kill(os.getpid(), 9)
        """,
    )
    recover(trials, 4, 3)
    assert kept(trials, 4, 3) == "the last words\n"


def test_recovering_another_attempt_leaves_the_file(trials: Path) -> None:
    run(
        trials,
        """
        with output.of(4, 3):
            os.write(1, b"x\\n")
            os.kill(os.getpid(), 9)
        """,
    )
    recover(trials, 4, 2)
    assert not (trials / "000004").exists()
    remove_folder(trials)  # at the end of the campaign it goes to its attempt
    assert kept(trials, 4, 3) == "x\n"
    assert not (trials / ".output").exists()


def test_output_can_be_read_while_the_attempt_runs(trials: Path) -> None:
    done = run(
        trials,
        """
        import time
        with output.of(5, 1):
            os.write(1, b"epoch 1\\n")
            while not output_file(trials, 5, 1).exists():  # until the process is ended by the test's limit
                time.sleep(0.01)
            text = output_file(trials, 5, 1).read_text()
        assert "epoch 1" in text
        """,
    )
    assert done.returncode == 0, done.stderr


def test_a_long_output_is_divided_and_its_older_parts_go(trials: Path) -> None:
    done = run(
        trials,
        """
        import time
        with output.of(6, 1):
            for letter in (b"a", b"b", b"c"):
                os.write(1, letter * FILE_BYTES + b"\\n")
                if letter != b"c":
                    older = older_file(output_file(trials, 6, 1))
                    while not older.exists() or older.read_bytes()[-2:] != letter + b"\\n":
                        time.sleep(0.05)  # until the process is ended by the test's limit
        """,
    )
    assert done.returncode == 0, done.stderr[-500:]
    path = output_file(trials, 6, 1)
    assert read_end(path, 4) == b"ccc\n"
    assert read_end(older_file(path), 4) == b"bbb\n"
    assert sum(file.stat().st_size for file in path.parent.iterdir()) < 2.1 * FILE_BYTES


def test_without_the_runs_folder_the_end_of_the_output_is_returned(tmp_path: Path) -> None:
    done = run(
        tmp_path / "on another machine",
        """
        with output.of(1, 1):
            print("of 1")
        first = output.unshared_end()
        with output.of(2, 1):
            pass
        print(repr(first), repr(output.unshared_end()))
        """,
    )
    assert done.stdout.splitlines()[-1] == "'of 1\\n' ''"
    assert not (tmp_path / "on another machine").exists()


def test_an_evaluation_that_closes_all_descriptors_ends_with_a_result(trials: Path) -> None:
    done = run(
        trials,
        """
        with output.of(1, 1):
            os.closerange(1, 100)
        sys.exit(7)
        """,
    )
    assert done.returncode == 7


def test_an_objective_that_replaces_the_streams_is_kept_too(trials: Path) -> None:
    run(
        trials,
        """
        with output.of(1, 1):
            sys.stdout = open(1, "w", closefd=False)
            print("through a stream of its own")
        """,
    )
    assert kept(trials, 1) == "through a stream of its own\n"
