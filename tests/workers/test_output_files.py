"""Tests of the files of what attempts print: names, bounds, reading."""

import os
from pathlib import Path

import pytest

from workers.output_files import (
    FILE_BYTES,
    OutputFile,
    older_file,
    output_file,
    read_end,
    tail_of,
    written_attempts,
)


def written(trials: Path, *pieces: bytes, trial: int = 26, attempt: int = 1) -> Path:
    file = OutputFile(trials, trial, attempt)
    for piece in pieces:
        file.write(piece)
    file.close()
    return output_file(trials, trial, attempt)


def test_an_attempt_that_prints_nothing_has_no_file_and_no_folder(tmp_path: Path) -> None:
    assert not written(tmp_path, b"").exists()
    assert list(tmp_path.iterdir()) == []
    assert written_attempts(tmp_path, 26) == []


def test_the_file_is_named_by_trial_and_attempt_and_is_the_users_alone(tmp_path: Path) -> None:
    path = written(tmp_path, b"one\n", attempt=2)
    assert path == tmp_path / "000026" / "output-2.txt"
    assert path.stat().st_mode & 0o777 == 0o600
    assert written_attempts(tmp_path, 26) == [2]


def test_what_is_read_is_what_was_printed_also_without_a_last_newline(tmp_path: Path) -> None:
    assert read_end(written(tmp_path, b"one\ntw", b"o"), 1000) == b"one\ntwo"


def test_a_line_is_in_the_file_as_soon_as_it_ends(tmp_path: Path) -> None:
    file = OutputFile(tmp_path, 26, 1)
    file.write(b"epoch 1\nepo")
    assert read_end(output_file(tmp_path, 26, 1), 1000) == b"epoch 1\n"
    file.close()


def test_the_end_of_a_long_output_begins_with_a_line(tmp_path: Path) -> None:
    path = written(tmp_path, b"".join(b"epoch %d\n" % number for number in range(100)))
    assert read_end(path, 20) == b"epoch 98\nepoch 99\n"


def test_two_parts_of_a_long_output_are_kept(tmp_path: Path) -> None:
    pieces = [letter * (FILE_BYTES - 1) + b"\n" for letter in (b"a", b"b", b"c")]
    path = written(tmp_path, *pieces)
    assert read_end(path, 4) == b"ccc\n"
    assert read_end(older_file(path), 4) == b"bbb\n"
    assert sum(file.stat().st_size for file in path.parent.iterdir()) < 2.1 * FILE_BYTES


def test_a_file_that_cannot_be_written_is_a_warning_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "000026").write_text("a file where the folder should be")
    written(tmp_path, b"one\n", b"two\n")
    assert len([record for record in caplog.records if "is not kept any more" in record.message]) == 1


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_or_a_pipe_in_the_place_of_an_output_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = output_file(tmp_path, 26, 1)
    path.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(written(tmp_path, b"secret\n", trial=27))
    with pytest.raises(OSError):
        read_end(path, 1000)


def test_the_tail_has_the_last_lines_and_no_nul() -> None:
    tail = tail_of(b"".join(b"line %d\n" % number for number in range(100)) + b"a\0b\n\n")
    assert tail.splitlines()[-2:] == ["line 99", "a\\x00b"]
    assert len(tail.splitlines()) == 20
