"""`bbkb.objectives.command`: a shell command runs in its own process group, which ends with the
evaluation; its placeholders are words for the shell.
"""

import os
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.objectives.command import KEPT_BYTES, CommandFailedError, ShellCommand, places
from bbkb.objectives.objective import Evaluation, EvaluationStopped, InvalidValueError, ObjectiveError, Parameters
from tests.examples import examples
from tests.waiting import is_alive, wait_until

PYTHON = shlex.quote(sys.executable)
REPOSITORY = Path(__file__).parents[2]


def report(value: object, step: int | None = None, **metrics: float) -> None: ...


def run(command: str, parameters: dict[str, object] | None = None, seed: int = 0, **options: Any) -> Evaluation:
    return ShellCommand(command, **options).evaluate(parameters or {}, seed, report)


@settings(max_examples=examples(25))
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20))
def test_command_receives_any_text_unchanged(text: str) -> None:
    evaluation = run('test {word} = "$WORD" && echo 1', {"word": text}, environment={"WORD": text})
    assert evaluation.value == 1


def test_values_are_formatted_and_braces_written_twice() -> None:
    assert run("x={a}; echo ${{x}}{b:02d}", {"a": 1, "b": 5}).value == 105
    assert run("test {flag} = True && test {none} = None && echo 1", {"flag": True, "none": None}).value == 1
    assert run("echo {rate:.1f}", {"rate": 0.26}).value == 0.3


def test_parameters_and_seed_are_in_the_environment(tmp_path: Path) -> None:
    script = "import json, os; print(json.loads(os.environ['BBKB_PARAMETERS'])['x'] + int(os.environ['BBKB_SEED']))"
    assert run(f"{PYTHON} -c {shlex.quote(script)}", {"x": 0.5}, seed=7).value == 7.5
    assert run("test $PWD -ef {here} && echo 1", {"here": str(tmp_path)}, working_directory=str(tmp_path)).value == 1


def test_args_are_all_existing_parameters_as_options() -> None:
    script = "import sys; print(int(sys.argv[1:] == ['--lr=-0.1', '--of b=it is', '--momentum=0.9']))"
    parameters = {"lr": -0.1, "of b": "it is", "momentum": 0.9}
    command = ShellCommand(f"{PYTHON} -c {shlex.quote(script)} {{args}}")
    assert command.evaluate(parameters, 0, report).value == 1
    assert command.evaluate({"lr": -0.1}, 0, report).value == 0
    assert command.unused(parameters) == []
    assert run("echo {args}", {"args": 3}).value == 3


def test_report_of_a_python_command_arrives_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    script = "import os, time; print('BBKB_REPORT 1 0.5'); time.sleep(20); os._exit(0)"

    def stop(value: object, step: int | None = None, **metrics: float) -> None:
        raise EvaluationStopped

    with pytest.raises(EvaluationStopped):
        ShellCommand(f"{PYTHON} -c {shlex.quote(script)}").evaluate({}, 0, stop)


@pytest.mark.parametrize(
    ("command", "value", "metrics"),
    [
        ("echo epoch 1; echo 0.25; echo; echo '  '", 0.25, {}),
        ("""echo 3; echo '{{"value": 0.5, "loss": 2}}' > $BBKB_RESULT""", 0.5, {"loss": 2.0}),
        ("echo 0.75 > $BBKB_RESULT", 0.75, {}),
        ("true & wait; echo 1", 1.0, {}),
    ],
)
def test_value_is_in_the_result_file_or_on_the_last_line(command: str, value: float, metrics: dict[str, float]) -> None:
    evaluation = run(command)
    assert (evaluation.value, dict(evaluation.metrics)) == (value, metrics)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("true", "the command's last line must be a number .*got no output"),
        ("echo done", "the command's last line must be a number .*got 'done'"),
        ("echo oops > $BBKB_RESULT", "BBKB_RESULT must be JSON, got 'oops"),
        ("echo '[1]' > $BBKB_RESULT", "BBKB_RESULT must return a number, got list"),
        ("echo '{{}}' > $BBKB_RESULT", "BBKB_RESULT must return a mapping with 'value'"),
    ],
)
def test_command_that_gives_no_number_is_an_invalid_value(command: str, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        run(command)


def test_failing_command_reports_its_status_and_the_end_of_its_errors() -> None:
    with pytest.raises(CommandFailedError) as caught:
        run("for i in $(seq 100); do echo line $i >&2; done; echo 1; exit 3")
    assert "ended with status 3" in str(caught.value)
    assert str(caught.value).endswith("line 99\nline 100")
    assert "line 80\n" not in str(caught.value)
    with pytest.raises(CommandFailedError, match="was killed by SIGSEGV; its standard error is empty"):
        run("kill -SEGV $$")


def test_endless_output_is_bounded_and_its_end_kept() -> None:
    flood = f"head -c {300 * KEPT_BYTES} /dev/zero"
    with pytest.raises(CommandFailedError) as caught:
        run(f"{flood} >&2; {flood}; echo the end >&2; exit 1")
    assert len(str(caught.value)) < 5000
    assert str(caught.value).endswith("the end")
    assert run(f"{flood} >&2; {flood}; echo; echo 4").value == 4


def test_command_kills_its_remaining_processes_at_its_end(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    assert run("sleep 1000 & echo $! > {file}; echo 1", {"file": str(pid_file)}).value == 1
    wait_until(lambda: not is_alive(int(pid_file.read_text())))


def test_exception_in_the_worker_kills_the_whole_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file, waiting = tmp_path / "pid", tmp_path / "waiting"
    waitid = os.waitid

    def announce_waitid(*arguments: int) -> object:
        waiting.touch()
        return waitid(*arguments)

    def interrupt(signum: int, frame: object) -> None:
        raise TimeoutError("time is up")

    monkeypatch.setattr(os, "waitid", announce_waitid)
    previous = signal.signal(signal.SIGUSR1, interrupt)
    try:
        # stubborn processes; the command itself interrupts the worker once that waits
        command = (
            "trap '' TERM; sleep 1000 & echo $! > {file}; while [ ! -e {waiting} ]; do sleep 0.01; done; "
            f"kill -USR1 {os.getpid()}; sleep 1000"
        )
        with pytest.raises(TimeoutError, match="time is up"):
            run(command, {"file": str(pid_file), "waiting": str(waiting)})
    finally:
        signal.signal(signal.SIGUSR1, previous)
    wait_until(lambda: not is_alive(int(pid_file.read_text())))


def test_workers_death_kills_the_whole_group(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"""
        from bbkb.objectives.command import ShellCommand
        ShellCommand("sleep 1000 & echo $! > {pid_file}; sleep 1000").evaluate({{}}, 0, print)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], cwd=REPOSITORY) as worker:
        wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
        child = int(pid_file.read_text())
        assert is_alive(child)
        worker.kill()
    wait_until(lambda: not is_alive(child))


def test_child_outside_the_group_does_not_delay_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bbkb.objectives.command.DRAIN_SECONDS", 0.2)
    pid_file = tmp_path / "pid"
    # the leaver keeps the pipes open; it is awaited, so that it has left before the group is killed
    leaver = "setsid sh -c 'echo $$ > \"$0\"; exec sleep 1000' {file}"
    command = f"{leaver} & while [ ! -s {{file}} ]; do sleep 0.01; done; echo 1"
    try:
        assert run(command, {"file": str(pid_file)}).value == 1
    finally:
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


def test_memory_is_limited_for_the_command_only() -> None:
    greedy = f"{PYTHON} -c 'bytearray(400_000_000); print(1)'"
    assert run(greedy).value == 1
    with pytest.raises(CommandFailedError, match="MemoryError"):
        run(greedy, memory_bytes=300_000_000)
    assert run(greedy).value == 1


def test_command_leaves_no_file_and_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        run("echo 1 > $BBKB_RESULT")
    assert list(tmp_path.iterdir()) == []
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.parametrize("text", ["echo {", "echo }", "echo {} 1", "echo {x!r}"])
def test_invalid_template_is_rejected_when_built(text: str) -> None:
    with pytest.raises(ObjectiveError, match=r"a literal brace is written \{\{ or \}\}"):
        ShellCommand(text)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (ShellCommand("train --lr {learnin_rate}"), r"\{learnin_rate\} must be .* did you mean 'learning_rate'"),
        (ShellCommand("echo ${HOME}"), r"\{HOME\} must be one of the parameters learning_rate"),
        (
            ShellCommand("true", working_directory="/no/such/folder"),
            "working directory '/no/such/folder' does not exist",
        ),
    ],
)
def test_command_that_does_not_match_the_space_is_rejected_early(command: ShellCommand, message: str) -> None:
    with pytest.raises(ObjectiveError, match=message):
        command.check(["learning_rate"])
    ShellCommand("train --lr {learning_rate}").check(["learning_rate", "unused"])


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
    assert places(command.split("@")) == [place]


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
    evaluation = ShellCommand(command, str(tmp_path)).evaluate(parameters, 0, report)
    assert evaluation.value == len(value.encode())
    assert not list(tmp_path.iterdir())


@given(st.text(alphabet="'\"\\`$()#<>EOF \n;a@{}", max_size=30).filter(lambda text: text.count("@") == 1))
def test_plain_word_is_a_single_word_in_a_shell(text: str) -> None:
    """An oracle: with the variable in its place, the shell never runs the text of its value."""
    if places(text.split("@")) != [""]:
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
