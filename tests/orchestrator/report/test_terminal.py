"""The terminal: escaped control sequences, the display of a running campaign on every kind of console,
and output that cannot be written."""

import errno
import io
import json
import os
import sys
import time
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.facts import headline
from bbkb.orchestrator.history.fold import fold
from bbkb.orchestrator.report.terminal import (
    JsonConsole,
    PlainView,
    SafeConsole,
    TerminalView,
    console_for,
    render,
    say,
    view,
    write_output,
)
from bbkb.orchestrator.wording import duration
from tests.orchestrator.synthetic_log import SyntheticLog

ATTACKS = ["\x1b]0;title\x07", "\x1b[2J\x1b[H", "\x9b31m", "a\rb", "\u202eevil", "\x1b]52;c;aGk=\x07", "\ud800"]
ERASE_LINE = "\x1b[2K"
EVENTS = SyntheticLog(trials=40, workers=3, sessions=1, failure_share=0.4, is_closed=False).events()


def text_on_console(text: str, is_terminal: bool) -> str:
    file = io.StringIO()
    console = SafeConsole(file=file, force_terminal=is_terminal, color_system=None, width=200)
    say(console, text)
    table = Table.grid()
    table.add_row(Text(text, style="bold"), text.replace("[", "("))
    console.print(table)
    with Live(table, console=console, auto_refresh=False):
        pass
    return file.getvalue()


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("attack", ATTACKS)
def test_console_escapes_control_sequences(attack: str, is_terminal: bool) -> None:
    output = text_on_console(f"before {attack} after", is_terminal)
    assert attack not in output
    assert "before" in output
    for character in ("\x07", "\x9b", "\u202e", "\x1b]", "\x1b[2J", "\x1b[H", "\ud800", "\x1b[31m"):
        assert character not in output


@given(st.text(max_size=50))
def test_console_writes_only_printable_characters(text: str) -> None:
    written = text_on_console(text, is_terminal=False)
    assert all(
        character in "\n\t" or character.isprintable() or character.isspace() or ord(character) > 0x9F
        for character in written
    )
    assert "\x1b" not in written


def status_in_the_middle() -> Status:
    """In the middle, with three trials running."""
    middle = next(i for i in range(len(EVENTS) // 2, len(EVENTS)) if fold(EVENTS[:i]).status().trials.in_flight == 3)
    history = fold(EVENTS[:middle])
    return history.status(now=history.campaign.clock.last_time + 5.0)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def text_of(status: Status, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render(status))
    return written(console)


def test_live_view_shows_running_trials_results_and_failures() -> None:
    status = status_in_the_middle()
    text = text_of(status)
    for running in status.trials.running:
        assert f"trial {running.trial}  {duration(running.seconds)}:" in text
    newest = next(attempt for attempt in reversed(status.trials.recent) if not attempt.failure)
    assert f"trial {newest.trial}: {newest.value:.6g}" in text
    for cause in status.trials.failures:
        assert f"{cause.kind}  trial {cause.trial}: " in text
    assert "trials/" in text
    assert " left" in text


def test_live_view_before_the_first_session_shows_the_budget() -> None:
    text = text_of(fold(EVENTS[:1]).status())
    assert "0/40" in text
    assert "no session yet" in text
    assert "one is starting, or `bbkb resume` starts one" in text


def test_live_view_shows_no_negative_time() -> None:
    for position in range(2, len(EVENTS), 7):
        history = fold(EVENTS[:position])
        status = history.status(now=history.campaign.clock.last_time - 3.0)  # a clock that went back
        assert status.budget.left_seconds is None or status.budget.left_seconds >= 0.0
        assert all(running.seconds >= 0.0 for running in status.trials.running)
        text = text_of(status)
        if status.phase == "running" and not status.trials.done:
            assert "time left: known after the first result" in text


def test_json_view_writes_status_and_messages() -> None:
    console = console_for(is_quiet=False, as_json=True)
    assert isinstance(console, JsonConsole)
    console.file = io.StringIO()
    with view(console) as shown:
        say(console, "run /somewhere")
        shown.wait_for("starting Ray on this machine")
        shown.update(status_in_the_middle())
        shown.update(status_in_the_middle())  # nothing new
    lines = [json.loads(line) for line in written(console).splitlines()]
    assert [list(line) for line in lines[:2]] == [["message"], ["message"]]
    assert len([line for line in lines if "status" in line]) == 1
    first = status_in_the_middle().trials.failures[0]
    assert lines[2]["message"].startswith(f"trial {first.trial} failed ({first.kind}): ")
    assert lines[0]["message"] == "run /somewhere"
    assert lines[-1]["status"]["in_flight"] == 3


def test_quiet_console_prints_nothing() -> None:
    console = console_for(is_quiet=True, as_json=False)
    console.file = io.StringIO()
    with view(console) as shown:
        shown.wait_for("starting Ray on this machine")
        shown.update(status_in_the_middle())
        shown.say("evaluating")
    assert written(console) == ""


def test_terminal_view_shows_a_clock_during_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    console = SafeConsole(file=io.StringIO(), force_terminal=True, width=80)
    with TerminalView(console) as shown:
        shown.wait_for("starting Ray on this machine")
        now = 107.0
    assert "starting Ray on this machine (7 s)" in written(console)


def test_view_of_a_terminal_without_control_sequences_prints_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(view(SafeConsole(file=io.StringIO(), force_terminal=True)), PlainView)


def test_terminal_view_removes_the_block_only_at_the_end_of_a_session() -> None:
    for is_closed in (True, False):
        console = Console(file=io.StringIO(), force_terminal=True, width=100)
        history = fold([event for event in EVENTS if is_closed or event.kind != "session_closed"])
        with TerminalView(console) as shown:
            shown.update(replace(history.status(), phase="closed" if is_closed else "running"))
        output = written(console)
        assert (ERASE_LINE in output.rpartition("\n")[2]) == is_closed


def test_plain_view_announces_stopping_once_and_immediately() -> None:
    console, status = Console(file=io.StringIO(), width=200), status_in_the_middle()
    view_of_lines = PlainView(console, clock=lambda: 0.0)
    for phase in ("running", "stopping", "stopping"):
        view_of_lines.update(replace(status, phase=phase, reason="interrupted"))
    text = written(console)
    assert text.count("stopping (interrupted): 3 running evaluations end first") == 1
    assert "first; Ctrl-C again stops at once" in text
    view_of_lines.update(replace(status, phase="running"))
    view_of_lines.update(replace(status, phase="stopping", reason="time budget spent"))
    assert "first; Ctrl-C twice stops at once" in written(console)
    learning = replace(
        status,
        phase="stopping",
        reason="time budget spent",
        activity="refitting the model",
        trials=replace(status.trials, in_flight=0),
    )
    assert "stopping (time budget spent): refitting the model" in text_of(learning)
    assert " left" not in headline(replace(status, phase="stopping"))


class Broken(io.RawIOBase):
    """A file whose writes fail with `error`."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error

    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        raise self._error


@dataclass
class Output:
    """Standard output without a buffer of its own."""

    buffer: io.RawIOBase

    def isatty(self) -> bool:
        return False


def test_output_to_a_full_disk_is_a_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(sys, "stdout", Output(Broken(full)))
    with pytest.raises(UserError, match="the output cannot be written: No space left on device"):
        write_output(b"trial,arm\r\n")


def test_closed_pipe_is_not_a_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Output(Broken(BrokenPipeError())))
    with pytest.raises(BrokenPipeError):
        write_output(b"trial,arm\r\n")
