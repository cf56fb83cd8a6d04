"""`bbkb.orchestrator.display.console`: The console of all commands, which escapes control sequences in
texts from outside.
"""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bbkb.orchestrator.display.console import SafeConsole
from bbkb.orchestrator.display.terminal import say

ATTACKS = ["\x1b]0;title\x07", "\x1b[2J\x1b[H", "\x9b31m", "a\rb", "\u202eevil", "\x1b]52;c;aGk=\x07", "\ud800"]


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
