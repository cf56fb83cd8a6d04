"""`bbkb.workers.output`: the files with the output of attempts, in worker processes and of an evaluating
thread.
"""

import contextlib
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bbkb.workers.output import (
    HEADER_BYTES,
    KEPT_BYTES,
    OutputFile,
    copy_thread,
    find_output,
    move_all_outputs,
    move_output,
    output_file,
    read_end,
    running_folder,
    tail_of,
    written_attempts,
)
from tests.processes import run_python

BEGINNING = """
import os, subprocess, sys, warnings
from pathlib import Path
from bbkb.workers.messages import Attempt
from bbkb.workers.output import keep_output
from bbkb.workers.output import find_output, read_end
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


def test_everything_that_an_attempt_prints_is_in_its_own_file(trials: Path) -> None:
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
        for trial in range(3):
            with output(trial):
                print("of", trial)
            print("between")
        with output(3):
            sys.stdout = open(1, "w", closefd=False)
            print("through a stream of its own")
        """,
    )
    assert kept(trials, 7, 2) == "python\ndescriptor\nchild\nwarning\nno newline"
    assert [kept(trials, trial) for trial in range(3)] == ["of 0\n", "of 1\n", "of 2\n"]
    assert kept(trials, 3) == "through a stream of its own\n"
    assert (done.stdout, done.stderr) == ("between\n" * 3, "")


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


def test_evaluating_thread_has_its_own_file_and_another_thread_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both_run = threading.Barrier(2)

    def evaluate(trial: int) -> None:
        with copied(tmp_path, trial):
            both_run.wait()
            print("of", trial)
            other = threading.Thread(target=print, args=("progress",))
            other.start()
            other.join()
            both_run.wait()

    threads = [threading.Thread(target=evaluate, args=(trial,)) for trial in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [kept(tmp_path, trial) for trial in (0, 1)] == ["of 0\n", "of 1\n"]
    assert capsys.readouterr().out.count("progress") == 2


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


def written(trials: Path, *pieces: bytes, trial: int = 26, attempt: int = 1) -> Path:
    with closing(OutputFile(trials, trial, attempt)) as file:
        for piece in pieces:
            file.write(piece)
    return output_file(trials, trial, attempt)


def killed(trials: Path, text: bytes, trial: int = 26, attempt: int = 1) -> None:
    """Leave the output of an attempt as a killed process leaves it."""
    path = written(trials, b"x", trial=trial, attempt=attempt)
    content = path.read_bytes()[:HEADER_BYTES] + text
    path.unlink()
    path.parent.rmdir()
    (running_folder(trials) / f"{trial:06d}-output-{attempt}.txt").write_bytes(content)


def test_output_of_an_attempt_that_prints_nothing_leaves_no_file(tmp_path: Path) -> None:
    assert not written(tmp_path, b"").exists()
    assert list(tmp_path.iterdir()) == [running_folder(tmp_path)]
    assert written_attempts(tmp_path, 26) == []
    move_all_outputs(tmp_path)
    assert not tmp_path.exists()


def test_output_file_is_named_by_trial_and_attempt_and_is_private(tmp_path: Path) -> None:
    path = written(tmp_path, b"one\ntw", b"o", attempt=2)
    assert path == tmp_path / "000026" / "output-2.txt"
    assert path.stat().st_mode & 0o777 == 0o600
    assert written_attempts(tmp_path, 26) == [2]
    assert read_end(path, 1000) == b"one\ntwo"


def test_output_is_found_while_the_attempt_runs(tmp_path: Path) -> None:
    with closing(OutputFile(tmp_path, 26, 1)) as file:
        assert written_attempts(tmp_path, 26) == []
        file.write(b"epoch 1\nepo")
        assert written_attempts(tmp_path, 26) == [1]
        assert read_end(find_output(tmp_path, 26, 1), 1000) == b"epoch 1\nepo"
    assert read_end(find_output(tmp_path, 26, 1), 1000) == b"epoch 1\nepo"


def test_output_of_a_killed_process_is_found_and_moved(tmp_path: Path) -> None:
    killed(tmp_path, b"the last words\n")
    killed(tmp_path, b"", trial=27)
    killed(tmp_path, b"others\n", trial=28)
    assert written_attempts(tmp_path, 26) == [1]
    assert written_attempts(tmp_path, 27) == []
    move_output(tmp_path, 26, 1)
    move_output(tmp_path, 26, 1)  # twice is harmless
    assert read_end(output_file(tmp_path, 26, 1), 100) == b"the last words\n"
    assert not output_file(tmp_path, 28, 1).exists()
    move_all_outputs(tmp_path)
    assert read_end(output_file(tmp_path, 28, 1), 100) == b"others\n"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["000026", "000028"]


def test_read_end_begins_with_a_whole_line(tmp_path: Path) -> None:
    path = written(tmp_path, b"".join(b"epoch %d\n" % number for number in range(100)))
    assert read_end(path, 20) == b"epoch 98\nepoch 99\n"


def test_long_output_is_shortened_when_the_attempt_ends(tmp_path: Path) -> None:
    line = b"a" * 1023 + b"\n"
    path = written(tmp_path, line * (3 * KEPT_BYTES // 1024), b"the end\n")
    assert KEPT_BYTES // 2 < path.stat().st_size < 1.1 * KEPT_BYTES
    assert read_end(path, 8) == b"the end\n"
    assert path.read_bytes()[HEADER_BYTES : HEADER_BYTES + 1024] == line


def test_end_of_a_piece_is_kept_although_the_output_is_shortened_meanwhile(tmp_path: Path) -> None:
    line = b"a" * 1023 + b"\n"
    for trial in range(8):
        with closing(OutputFile(tmp_path, trial, 1)) as file:
            writer = threading.Thread(target=file.write, args=(line * (3 * KEPT_BYTES // 1024),))
            writer.start()
            while writer.is_alive():
                file.limit_size()
        assert read_end(output_file(tmp_path, trial, 1), 1024) == line


def test_long_output_is_shortened_while_a_child_process_prints(tmp_path: Path) -> None:
    with closing(OutputFile(tmp_path, 26, 1)) as file, subprocess.Popen("yes", stdout=file.descriptor) as child:
        path = find_output(tmp_path, 26, 1)
        largest = 0
        sizes: list[int] = []
        while len(sizes) < 3:  # ends when the file has become shorter three times
            size = path.stat().st_size
            sizes += [size] * (size < largest)
            largest = size
            time.sleep(0.001)
        child.kill()
    assert set(read_end(output_file(tmp_path, 26, 1), 1000).split()) == {b"y"}
    assert output_file(tmp_path, 26, 1).stat().st_size <= 2 * KEPT_BYTES + HEADER_BYTES


def test_output_that_cannot_be_written_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(OutputFile(tmp_path, 26, 1)) as file:
        os.close(file.descriptor)
        file.write(b"one\n")
        file.write(b"two\n")
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "output of an evaluation is no longer saved"
    ]


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_read_end_rejects_a_link_and_a_pipe(tmp_path: Path, kind: str) -> None:
    path = output_file(tmp_path, 26, 1)
    path.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(written(tmp_path, b"secret\n", trial=27))
    with pytest.raises(OSError):
        read_end(path, 1000)


def test_tail_has_the_last_lines_and_no_nul() -> None:
    tail = tail_of(b"".join(b"line %d\n" % number for number in range(100)) + b"a\0b\n\n")
    assert tail.splitlines()[-2:] == ["line 99", "a\\x00b"]
    assert len(tail.splitlines()) == 20
    assert tail_of(b"cut\n" + b"x" * 999 + b"\n" + b"y" * 1000) == "x" * 999 + "\n" + "y" * 1000
    assert tail_of(b"z" * 999 + b"\n" + b"x" * 500 + b"\n" + b"y" * 600) == "x" * 500 + "\n" + "y" * 600
    assert tail_of(b"x" * 3000) == "x" * 2000
