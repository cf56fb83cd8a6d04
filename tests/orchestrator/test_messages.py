"""What an operator reads: one line of the log for each event with any text, without credentials; durations and numbers;
no traceback of a mistake in a notebook."""

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
import sqlalchemy as sa
from hypothesis import assume, given
from hypothesis import strategies as st

from bbkb.orchestrator import credentials, logs
from bbkb.orchestrator.credentials import (
    UnsetVariableError,
    has_password,
    redact,
    resolve_url,
    stored,
    without_secrets,
)
from bbkb.orchestrator.errors import ConfigError, RunError
from bbkb.orchestrator.logs import FILE_NAME, TextFormatter, log_into
from bbkb.orchestrator.wording import duration, iso, moment, plural, printable, rounded

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


SECRET = "hunter2/s3cret"
WITH_SECRET = [
    f"postgresql://ann:{SECRET}@db:5432/results",
    f"postgresql+psycopg://ann:{SECRET}@/results?host=/var/run",
    f"postgresql://ann@db/results?password={SECRET}",
    f"postgresql://ann@db/results?sslmode=require&sslpassword={SECRET}",
    f"postgresql://ann:{SECRET}@with@db/results",
    f"bbkb run x.yaml --set store=postgresql://ann:{SECRET}@db/results --set 'budget.evaluations=3'",
    f"postgresql://ann:{SECRET}@",
    f"postgresql://ann@db/results?PASSWORD={SECRET}",
    f"store=postgresql://ann: {SECRET}@db/results",
    f'store must be text, got {{"postgresql://ann": "{SECRET}@db/results"}}',
    f"host=db password={SECRET}",
    f"host=db password = '{SECRET} and more' dbname=results",
]


@pytest.mark.parametrize("text", ["a" * 10**6, "a." * 10**6, "a:" * 10**6, "?a=" * 10**6, "://" * 10**6])
def test_redaction_of_a_long_text_takes_linear_time(text: str) -> None:
    """In quadratic time, it would take hours."""
    assert redact(text)


@pytest.mark.parametrize("text", WITH_SECRET)
def test_redaction_leaves_no_part_of_a_password(text: str) -> None:
    hidden = redact(text)
    for part in (SECRET, "hunter2", "s3cret", "with"):
        assert part not in hidden.replace("psycopg", "").replace("--set", "")
    assert "***" in hidden
    assert redact(hidden) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "sqlite",
        "sqlite:////data/c.sqlite",
        "postgresql://db/results",
        "postgresql://ann@db/results",
        "postgresql://ann:${DB_PASSWORD}@db/results",
        "${DATABASE_URL}",
        "file.py:12: a plain sentence, at ann@example.org",
    ],
)
def test_text_without_a_password_stays_as_it_is(text: str) -> None:
    assert redact(text) == text
    assert not has_password(text)


@given(
    password=st.text(min_size=1),
    host=st.sampled_from(["db", "db:5432", "[::1]:5432", ""]),
)
def test_stored_url_is_the_same_without_its_password(password: str, host: str) -> None:
    complete = sa.URL.create("postgresql", "ann", password, database="results").render_as_string(hide_password=False)
    complete = complete.replace("@/", f"@{host}/") if host else complete
    assume("${" not in password)
    assert has_password(complete)
    assert not has_password(stored(complete))
    without, original = resolve_url(stored(complete), {}), resolve_url(complete, {})
    assert (without.password, original.password) == (None, password)
    assert (without.username, without.host, without.port) == (original.username, original.host, original.port)


@pytest.mark.parametrize("key", ["password", "PASSWORD", "pass%77ord", "sslpassword"])
def test_stored_url_has_no_secret_option(key: str) -> None:
    assert stored(f"postgresql://ann@db/x?{key}={SECRET}&sslmode=require") == "postgresql://ann@db/x?sslmode=require"


@pytest.mark.parametrize("path", ["/a?password=b/c.db", "/u:p@h/c.db", "/a${X}%20/c.db"])
def test_path_is_stored_as_it_is(path: str) -> None:
    assert stored(f"sqlite:///{path}") == f"sqlite:///{path}"


def test_variables_are_replaced_part_by_part_so_that_a_value_may_hold_any_character() -> None:
    url = resolve_url(
        "postgresql://${USER_}:${PW}@db/results?application_name=${APP}", {"USER_": "a", "PW": "p@/:%4", "APP": "x y"}
    )
    assert (url.username, url.password, url.host, url.database) == ("a", "p@/:%4", "db", "results")
    assert url.query["application_name"] == "x y"
    assert resolve_url("${URL}", {"URL": "postgresql://a:b@c/d"}).password == "b"
    assert resolve_url("postgresql://db:${PORT}/results", {"PORT": "6000"}).port == 6000


def test_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(UnsetVariableError, match="PW"):
        resolve_url("postgresql://ann:${PW}@db/results", {})


def test_drivers_message_keeps_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "from the environment")
    message = without_secrets("cannot use 'from the environment'", "postgresql://ann:${PW}@db/results")
    assert message == "cannot use '***'"
    assert SECRET not in without_secrets(f"invalid port {SECRET!r}", WITH_SECRET[0])
    assert credentials.HIDDEN in without_secrets(f"connect {WITH_SECRET[0]}", "sqlite")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0 s"), (59.4, "59.4 s"), (60, "1 min 0 s"), (3599.9, "1 h 0 min"), (7380, "2 h 3 min"), (9e4, "1 d 1 h")],
)
def test_durations_have_readable_units(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_wall_clock_and_virtual_times_are_written_differently() -> None:
    assert moment(1.75e9) == "2025-06-15 15:06:40 UTC"
    assert moment(12.25) == "12.2 s (virtual)"


def test_time_that_no_date_can_have_is_written_as_the_nearest_one() -> None:
    assert iso(3.6e15) == "9999-12-31T23:59:59.000000Z"
    assert moment(1e300) == "9999-12-31 23:59:59 UTC"
    assert iso(float("nan")).endswith("Z")
    assert iso(1_772_374_509.25) == "2026-03-01T14:15:09.250000Z"


def test_characters_that_mislead_a_reader_are_escaped_and_all_others_stay() -> None:
    assert printable("a\u202eb\u200b\ufeff\U000e0041\x1b") == r"a\u202eb\u200b\ufeff\U000e0041\x1b"
    plain = "Größe ≥ 2\n\tשלום नमस्ते 👩\u200d🔬 می\u200cخواهم"
    assert printable(plain) == plain


def test_plural_of_one_is_singular() -> None:
    assert [plural(count, "batch", "es") for count in (0, 1, 2)] == ["0 batches", "1 batch", "2 batches"]


@pytest.mark.parametrize(
    ("number", "digits", "expected"),
    [(71605.2, 4, "71610"), (1634.0, 2, "1600"), (0.0031249, 3, "0.00312"), (12e6, 2, "1.2e+07"), (0.0, 2, "0")],
)
def test_rounded_numbers_have_an_exponent_only_from_a_million_on(number: float, digits: int, expected: str) -> None:
    assert rounded(number, digits) == expected


def test_notebook_shows_the_message_of_a_users_mistake_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    IPython = pytest.importorskip("IPython")
    shell = IPython.core.interactiveshell.InteractiveShell()
    shell.user_ns["ConfigError"] = ConfigError
    shell.run_cell("raise ConfigError('x.yaml:3: seed must be >= 0, got -1')")
    shown = capsys.readouterr()
    assert (shown.out + shown.err).strip() == "ConfigError: x.yaml:3: seed must be >= 0, got -1"
