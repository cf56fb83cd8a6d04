"""`bbkb.workers.children`: all processes that an evaluation has started are ended with it, including
detached ones.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from bbkb.workers.children import end_children
from tests.waiting import is_alive, wait_until


def pid_written(file: Path) -> int:
    return int(wait_until(lambda: file.exists() and file.read_text().strip()))


def test_forgotten_child_is_killed_and_reaped() -> None:
    with end_children():
        child = subprocess.Popen(["sleep", "100"])
        assert is_alive(child.pid)
    assert not Path(f"/proc/{child.pid}").exists()
    child.poll()


def test_child_that_ignores_signals_and_has_detached_itself_is_ended(tmp_path: Path) -> None:
    daemon = tmp_path / "daemon"
    script = f"trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM HUP; echo $$ > {daemon}; sleep 100' & exit 0"
    with end_children():
        subprocess.run(["sh", "-c", script], check=True)
        pid = pid_written(daemon)
        assert is_alive(pid)
    assert not is_alive(pid)


def test_older_children_and_ended_children_are_left_alone() -> None:
    before = subprocess.Popen(["sleep", "100"])
    try:
        with end_children():
            assert subprocess.run([sys.executable, "-c", "raise SystemExit(7)"], check=False).returncode == 7
        assert before.poll() is None
    finally:
        before.kill()
        assert before.wait() == -signal.SIGKILL


def test_children_are_ended_when_the_evaluation_raises() -> None:
    pid = 0
    try:
        with end_children():
            pid = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "100")
            raise KeyError
    except KeyError:
        assert not is_alive(pid)
