"""`bbkb.orchestrator.files`: Files written whole or not at all: a draft beside the target, synced, then
renamed onto it.
"""

import errno
import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bbkb.orchestrator import files


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_private_file_is_readable_by_its_owner_only_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        files.write_text(tmp_path / "new", "one")
        (tmp_path / "old").write_text("old")
        files.write_text(tmp_path / "old", "two")
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in ("new", "old")] == [0o600, 0o600]
    assert (tmp_path / "old").read_text() == "two"


def test_shared_file_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_bytes(tmp_path / "export.csv", b"a,b", is_private=False)
    finally:
        os.umask(before)
    assert mode(tmp_path / "export.csv") == 0o640


def test_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    files.write_text(target, "old")

    def raise_disk_full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", raise_disk_full)
    with pytest.raises(OSError, match="No space left"):
        files.write_text(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_link_keeps_pointing_and_a_device_stays_a_device(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    files.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"
    files.write_text(Path(os.devnull), "anything")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_pipe_is_written_if_it_has_a_reader_and_refused_otherwise(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):
        files.write_text(tmp_path / "pipe", "results")
    reading, writing = os.pipe()
    files.write_text(Path(f"/proc/self/fd/{writing}"), "results")
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        assert pipe.read() == "results"


def test_make_private_keeps_an_existing_file_and_its_locks(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("content")
    with open(tmp_path / "there", "r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        files.make_private(tmp_path / "there")
        lock = "import fcntl; fcntl.lockf(open('there', 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        other = subprocess.run([sys.executable, "-c", lock], cwd=tmp_path, capture_output=True, check=False)
        assert b"BlockingIOError" in other.stderr
        assert file.read() == "content"
    files.make_private(tmp_path / "new")
    assert mode(tmp_path / "new") == 0o600
