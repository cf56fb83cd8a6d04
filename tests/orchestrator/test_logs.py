"""The operator's log: one line for each event with any text; nothing is printed unless
requested."""

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator import logs
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.logs import FILE_NAME, TextFormatter, log_into

REPOSITORY = Path(__file__).parents[2]
LOGGER = logging.getLogger("bbkb.test")


def record(message: str, **extra: object) -> logging.LogRecord:
    log_record = logging.LogRecord("bbkb.test", logging.WARNING, __file__, 1, "%s", (message,), None)
    vars(log_record).update(extra)
    log_record.created, log_record.msecs = 1772373909.25, 250.0
    return log_record


def test_line_names_time_level_place_campaign_trial_and_attempt() -> None:
    line = TextFormatter("tuning").format(record("failed", trial=3, attempt=1))
    assert line == "2026-03-01T14:05:09.250Z WARNING bbkb.test campaign=tuning trial=3 attempt=1: failed"


@given(message=st.text())
def test_log_escapes_texts_that_forge_lines_or_control_a_terminal(message: str) -> None:
    line = TextFormatter("c").format(record(message))
    assert len(line.splitlines()) == 1
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in line)


def test_lines_of_the_level_and_above_are_appended_to_the_runs_folder(tmp_path: Path) -> None:
    for number in range(2):
        with log_into(tmp_path, "c"):
            LOGGER.debug("not shown")
            LOGGER.info("shown %d", number)
    LOGGER.warning("after the end")
    lines = (tmp_path / FILE_NAME).read_text().splitlines()
    assert ["shown" in line for line in lines] == [True, True]


def test_handlers_of_the_program_get_only_lines_of_its_own_level(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for level, expected in ((logging.WARNING, ["b"]), (logging.INFO, ["a", "b"])):
        caplog.clear()
        logging.getLogger().setLevel(level)
        with log_into(tmp_path, "c"), log_into(tmp_path, "inner"):
            LOGGER.info("a")
            LOGGER.warning("b")
        assert [line.getMessage() for line in caplog.records] == expected
    logging.getLogger().setLevel(logging.WARNING)


def test_campaign_in_an_evaluation_has_its_own_log(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("outer", "inner")]
    for folder in folders:
        folder.mkdir()
    with log_into(folders[0], "outer"):
        with log_into(folders[1], "inner"):
            LOGGER.info("inside")
        LOGGER.info("after")
    ended_elsewhere = log_into(folders[0], "outer")
    copy_context().run(ended_elsewhere.__enter__)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ended_elsewhere.__exit__, None, None, None).result()
    lines = [(folder / FILE_NAME).read_text().rpartition(": ")[2] for folder in folders]
    assert lines == ["after\n", "inside\n"]


def test_session_keeps_its_level_if_one_that_began_before_ends_first(tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    ends = []
    for folder in folders:
        folder.mkdir()
        ends.append(ExitStack())
        ends[-1].enter_context(log_into(folder, "c"))
    for end in ends:
        LOGGER.info("shown")
        end.close()
    assert [len((folder / FILE_NAME).read_text().splitlines()) for folder in folders] == [0, 2]
    root = logging.getLogger(logs.ROOT)
    assert (root.level, root.propagate, len(root.handlers)) == (logging.NOTSET, True, 1)


def test_log_without_the_folder_goes_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with log_into(tmp_path / "elsewhere", "c"):
        LOGGER.info("shown")
    assert "campaign=c: shown" in capsys.readouterr().err


def test_library_users_terminal_stays_silent() -> None:
    code = "import logging, bbkb.orchestrator.logs; logging.getLogger('bbkb.session').error('not shown')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, cwd=REPOSITORY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("make", "reason"), [(os.mkdir, "Is a directory"), (os.mkfifo, "No such device")])
def test_log_that_cannot_be_written_is_reported_by_name(
    tmp_path: Path, make: Callable[[Path], None], reason: str
) -> None:
    make(tmp_path / FILE_NAME)
    error = rf"run\.log cannot be written: {reason}"
    with pytest.raises(RunError, match=error), log_into(tmp_path, "c"):
        pass


def test_disk_that_is_full_when_the_log_closes_does_not_hide_how_the_session_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(handler: logging.FileHandler) -> None:
        real(handler)
        raise OSError(errno.ENOSPC, "No space left on device")

    real = logging.FileHandler.close
    monkeypatch.setattr(logging.FileHandler, "close", close)
    with pytest.raises(KeyError), log_into(tmp_path, "c"):
        raise KeyError("the session's own error")
    with log_into(tmp_path, "c"):
        pass
