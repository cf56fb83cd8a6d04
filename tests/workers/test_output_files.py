"""Tests of the files with the output of attempts: their names, sizes and ends."""

import os
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from bbkb.workers.output_files import (
    HEADER_BYTES,
    KEPT_BYTES,
    OutputFile,
    find_output,
    move_all_outputs,
    move_output,
    output_file,
    read_end,
    running_folder,
    tail_of,
    written_attempts,
)


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
    path = written(tmp_path, b"one\n", attempt=2)
    assert path == tmp_path / "000026" / "output-2.txt"
    assert path.stat().st_mode & 0o777 == 0o600
    assert written_attempts(tmp_path, 26) == [2]


def test_read_end_returns_the_output_without_a_last_newline(tmp_path: Path) -> None:
    assert read_end(written(tmp_path, b"one\ntw", b"o"), 1000) == b"one\ntwo"


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
