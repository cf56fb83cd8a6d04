"""`bbkb.objectives.shell_text`: the context of a placeholder in a shell command: a plain word, or a
construct in which the shell would not read it as one word.
"""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.objective import ObjectiveError, Parameters
from bbkb.objectives.shell_text import places


class Unheard:
    folder = None

    def __call__(self, value: object, step: int | None = None, **metrics: float) -> None:
        return None


def place_of(command: str) -> str:
    (place,) = places(command.split("@"))
    return place


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("train --lr=@", ""),
        ("train 'a b' --lr=@ \"c\"", ""),
        ("x=$(train @) && echo $x", ""),
        ('x="$(train @)"', ""),
        ("(train @; true)", ""),
        ("echo a#b @", ""),
        ("# that's it\ntrain @", ""),
        ("cat <<EOF\n'\nEOF\ntrain @", ""),
        ("case $x in a) train @;; esac", ""),
        ("echo \\' @", ""),
        ('echo "a \\" b" @', ""),
        ("echo $((1 + 2)) @", ""),
        ('python -c "print(@)"', "double quotes"),
        ("python -c 'print(@)'", "single quotes"),
        ("echo $'a @'", "single quotes"),
        ("echo `train @`", "backquotes"),
        ('echo "`train @`"', "backquotes"),
        ("echo $((2 * @))", "an arithmetic expansion"),
        ("true # @", "a comment"),
        ("cat <<EOF\n@\nEOF", "a here-document"),
        ("cat <<-'EOF'\n\tx\n\t@\n\tEOF", "a here-document"),
        ("echo \\@", "an escape"),
        ('echo "$(echo "@")"', "double quotes"),
    ],
)
def test_placeholder_context_is_found_in_any_command(command: str, place: str) -> None:
    assert place_of(command) == place


@pytest.mark.parametrize("command", ['sh -c "echo {x}"', "echo '{x}'", "echo `echo {x}`", "echo 1 # {x}"])
def test_placeholder_inside_quotes_is_rejected_with_the_form_to_use(command: str) -> None:
    with pytest.raises(ObjectiveError, match=r"\{x\} must be outside of quotes, got it in .*: write --x=\{x\}"):
        ShellCommand(command)


COMMANDS = ["$(touch pwned)", "`touch pwned`", "'; touch pwned; '", '"; touch pwned; "']
HOSTILE = [*COMMANDS, "a b", "a\nb", "*", "-n", "", "\\", "~"]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    "command",
    [
        "printf %s {x} | wc -c",
        'v={x}; printf %s "$v" | wc -c',
        "n=$(printf %s {x} | wc -c); echo $n",
        'n="$(printf %s {x} | wc -c)"; echo "$n"',
    ],
)
def test_shell_value_is_one_word_and_never_executed(command: str, value: str, tmp_path: Path) -> None:
    parameters: Parameters = {"x": value}
    evaluation = ShellCommand(command, str(tmp_path)).evaluate(parameters, 0, Unheard())
    assert evaluation.value == len(value.encode())
    assert not list(tmp_path.iterdir())


@given(st.text(alphabet="'\"\\`$()#<>EOF \n;a@{}", max_size=30).filter(lambda text: text.count("@") == 1))
def test_plain_word_is_a_single_word_in_a_shell(text: str) -> None:
    """An oracle: with the variable in its place, the shell never runs the text of its value."""
    if place_of(text):
        return
    command = text.replace("@", '"$VALUE"')
    script = "a() { :; }; E() { :; }; " + command
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"VALUE": "$(echo pwned >&2)`echo pwned >&2`; echo pwned >&2", "PATH": ""},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=240,
        cwd="/proc",
    )
    assert b"\npwned" not in b"\n" + done.stderr
