"""The token of a Ray that this process starts: which files are removed, and which are kept."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bbkb.orchestrator.running.coordinator.environment import _token_file
from bbkb.orchestrator.store.lease import Identity
from tests.waiting import wait_until

MAKE = """
import os, signal
from bbkb.orchestrator.running.coordinator.environment import require_token
print(require_token(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    return tmp_path


def token_of_a_killed_process(folder: Path) -> Path:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    done = subprocess.run(
        [sys.executable, "-c", MAKE], env={**inherited, "TMPDIR": str(folder)}, stdout=subprocess.PIPE, text=True
    )
    return Path(done.stdout.strip())


def test_token_of_a_killed_process_is_removed_by_the_next_one(folder: Path) -> None:
    token = token_of_a_killed_process(folder)
    assert token.is_file()
    new_token = _token_file.__wrapped__()
    assert not token.parent.exists()
    assert new_token.is_file()
    assert new_token.parent.stat().st_mode & 0o777 == 0o700


def test_token_of_a_running_process_is_kept(folder: Path) -> None:
    token = token_of_a_killed_process(folder)
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "RAY_AUTH_TOKEN_PATH": str(token)}) as ray_that_lives:
        environment = Path(f"/proc/{ray_that_lives.pid}/environ")
        assert wait_until(environment.read_bytes)  # it is empty for a moment after the start
        _token_file.__wrapped__()
        assert token.is_file()
        ray_that_lives.kill()


def test_folders_of_living_and_unknown_owners_are_kept(folder: Path) -> None:
    written = {
        "alive": Identity.of_this_process().to_text(),
        "elsewhere": Identity("another", 1, "1", "another boot").to_text(),
        "damaged": "{",
    }
    for name, text in written.items():
        (folder / f"bbkb-token-{name}").mkdir()
        (folder / f"bbkb-token-{name}" / "owner").write_text(text)
    (folder / "bbkb-token-of-an-older-version").mkdir()
    _token_file.__wrapped__()
    assert len(list(folder.glob("bbkb-token-*"))) == len(written) + 2
