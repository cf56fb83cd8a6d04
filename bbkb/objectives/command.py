"""A shell command as an objective, run in its own process group, which ends with the evaluation.

The whole group ends with the command, with any exception in the worker (a time-out, an interrupt),
and with the worker's death, so that no child continues computing. The worker need not cooperate
when it dies: the group contains a watcher, which reads from a pipe that only the worker can write
to, and kills the group when the pipe closes.

A placeholder is replaced where the shell reads it as a plain word. A small parser of POSIX shell
syntax (quotes, backslashes, comments, command substitution, arithmetic, here-documents) determines
whether a position is in one of the other constructs; it does not need to understand a command.
"""

import json
import math
import os
import re
import shlex
import signal
import string
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Annotated

from typing_extensions import Doc

from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.objective import (
    END_SECONDS,
    PLACEHOLDERS,
    AttemptReport,
    Evaluation,
    InvalidValueError,
    Machine,
    ObjectiveError,
    Parameters,
    Report,
    folder_of,
    gives_value,
    machine_of,
    single_machine,
)
from bbkb.objectives.returned import PREFIX, STOP_GRACE_SECONDS, ReportLines, as_evaluation

_HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"\\]?)([A-Za-z0-9_.-]+)['\"]?")
_NAMES = {
    "double": "double quotes",
    "single": "single quotes",
    "dollar-single": "single quotes",
    "back": "backquotes",
    "arithmetic": "an arithmetic expansion",
    "comment": "a comment",
    "here-document": "a here-document",
    "backslash": "an escape",
}
_PLAIN = ("plain", "parenthesis")
_COMMANDS = (*_PLAIN, "back")  # constructs whose text consists of words
_ENDS = {
    "single": "'",
    "dollar-single": "'",
    "double": '"',
    "arithmetic": "))",
    "parenthesis": ")",
    "back": "`",
}
# the constructs by the signs that open them: also inside double quotes, and between words
_EXPANSIONS = {"$((": "arithmetic", "$(": "parenthesis", "`": "back"}
_OPENERS = {**_EXPANSIONS, "$'": "dollar-single", "'": "single", '"': "double", "(": "parenthesis"}


def places(literals: Sequence[str]) -> list[str]:
    """Return the context of each placeholder of a command; "" for a plain word. The placeholders
    are between these pieces of the command's text.

    A command with n placeholders has n + 1 pieces.
    """
    stack = ["plain"]  # the open constructs, the innermost last
    is_word_start = True
    is_escaped = False
    delimiters: list[str] = []  # of here-documents whose text begins on the next line
    line = ""
    found = []
    for text in literals[:-1]:
        at = 0
        while at < len(text):
            mode = stack[-1]
            taken = 1  # the number of characters of the sign at this position
            ends_line = False
            allowed = _OPENERS if mode in _COMMANDS else _EXPANSIONS if mode in ("double", "arithmetic") else {}
            if is_escaped:
                is_escaped = is_word_start = False
            elif mode in ("comment", "here-document"):  # both of which end with a line
                if text[at] != "\n":
                    line += text[at]
                elif mode == "comment" or line.lstrip("\t") == delimiters[0]:
                    stack.pop()
                    if mode == "here-document":
                        delimiters.pop(0)
                    ends_line = True
                else:
                    line = ""
            elif text[at] == "\\" and mode != "single":
                is_escaped = True
            elif mode in _ENDS and text.startswith(_ENDS[mode], at):
                is_word_start &= mode != "parenthesis"
                stack.pop()
                taken = len(_ENDS[mode])
            elif opener := next((sign for sign in allowed if text.startswith(sign, at)), ""):
                stack.append(allowed[opener])
                if allowed[opener] not in ("arithmetic", "back"):
                    is_word_start = allowed[opener] == "parenthesis"
                taken = len(opener)
            elif mode not in _COMMANDS:
                pass
            elif document := _HERE_DOCUMENT.match(text, at) if not text.startswith("<<<", at) else None:
                delimiters.append(document[2])
                taken = document.end() - at
            elif text[at] == "#" and is_word_start:
                stack.append("comment")
            else:
                ends_line = text[at] == "\n"
                is_word_start = text[at] in " \t;&|"
            if ends_line:
                is_word_start = True
                line = ""
                if delimiters:
                    stack.append("here-document")
            at += taken
        if is_escaped:
            found.append(_NAMES["backslash"])
        elif "back" in stack:  # the meaning of quotes inside differs between shells
            found.append(_NAMES["back"])
        else:
            found.append("" if stack[-1] in _PLAIN else _NAMES[stack[-1]])
        is_word_start = is_escaped = False  # the placeholder is part of a word
    return found


KEPT_BYTES = 65536  # the number of bytes kept from the end of each output stream
# the limits on the standard error in a failure's message
KEPT_LINES = 20
KEPT_CHARACTERS = 4000
ALL = "args"  # the placeholder for all parameters, unless one has this name
# the longest wait for the pipes to close; only a child outside the process group can keep them open
DRAIN_SECONDS = 5.0

_PROGRAM = re.compile(r"^[\w./+-]+$")  # a first word that the shell does not expand
# $1 is the user's command, $2 the limit of its address space in KiB or "unlimited". The watcher
# reads the lifeline, a pipe on its standard input, which the command does not inherit.
WRAPPER = """
exec 3<&0 </dev/null
(trap "" TERM; read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 &
exec 3<&-
[ "$2" = unlimited ] || ulimit -v "$2" || exit
exec /bin/sh -c "$1"
"""


class CommandFailedError(RuntimeError):
    """A command ended with a non-zero status. The message quotes the end of its standard error."""


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A command for `/bin/sh` in which each `{name}` is replaced by the value of a parameter, as
    one word. The word is empty if a conditional parameter does not exist.

    A value reaches the shell in an environment variable and is never part of the command's text, so
    the shell neither executes nor splits it. A placeholder inside quotes is rejected, because the
    shell would not read it as one word. `{name:.3g}` formats as in Python; `{{` and `}}` are
    literal braces. `{args}` is replaced by `--name=value` for each parameter that exists. The
    environment of the command contains PYTHONUNBUFFERED=1, unless the variable is set, so that
    Python's reports arrive when they are printed, and BBKB_PARAMETERS (JSON), BBKB_SEED,
    BBKB_RESULT (the path of a JSON file that the command may write) and, if trials have folders,
    BBKB_FOLDER (the trial's folder). The value of the evaluation is the number in the JSON file, or
    its entry `value`; other entries are metrics. Without this file, the value is the last non-empty
    line of standard output that is not a report. A line `BBKB_REPORT step value` is an intermediate
    value.

    If an evaluation takes several machines, the command runs on each of them, and the first one
    returns the value. `{machine}`, `{machines}`, `{address}` and `{port}` are replaced by the
    machine's index (from 0), the number of machines, and the address and a free port of the first
    machine. MASTER_ADDR, MASTER_PORT, NODE_RANK, RANK and WORLD_SIZE are set for one process on
    each machine, and BBKB_HOSTFILE is the path of a file with one address on each line.

    Raises ObjectiveError if the text is not a valid template.
    """

    command: Annotated[str, Doc("The text for `/bin/sh`, with `{name}` for a parameter.")]
    working_directory: Annotated[str | None, Doc("The folder in which it runs; None: that of the worker.")] = None
    environment: Annotated[Mapping[str, str], Doc("Environment variables added to those of the worker.")] = field(
        default_factory=dict
    )
    memory_bytes: Annotated[
        int | None, Doc("The largest address space of each of its processes, in bytes; None: no limit.")
    ] = None

    def __post_init__(self) -> None:
        self._pieces()

    def check(self, parameters: Iterable[str]) -> None:
        """Raise ObjectiveError for an unknown placeholder or a missing working directory."""
        names = list(parameters)
        for _, name, _ in self._pieces():
            if name is not None and name not in (*names, *PLACEHOLDERS, ALL):
                raise ObjectiveError(
                    f"objective.command: {{{name}}} must be one of the parameters {', '.join(names)}"
                    f"{did_you_mean(name, names)} (a literal brace is written {{{{ or }}}})"
                )
        self._check_folder()

    def unused(self, parameters: Iterable[str]) -> list[str]:
        """List the parameters that the text lacks, if it contains others."""
        names = list(parameters)
        used = {name for _, name, _ in self._pieces()}
        has_all = ALL in used.difference(names) or "BBKB_PARAMETERS" in self.command
        is_complete = has_all or used.isdisjoint(names)
        return [] if is_complete else [name for name in names if name not in used]

    def missing_program(self) -> str:
        """Return the command's first word if this machine lacks that program, else an empty text.

        A first word that the shell expands, such as `$PYTHON`, is not checked.
        """
        words = self.command.split(maxsplit=1)
        word = words[0] if words else ""
        if not _PROGRAM.match(word):
            return ""
        try:  # the shell knows its keywords and built-in commands
            done = subprocess.run(
                ["/bin/sh", "-c", 'command -v -- "$1"', "sh", word],
                cwd=self.working_directory,
                env={**os.environ, **self.environment},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=10,
            )
        except (OSError, subprocess.SubprocessError):
            return ""
        return word if done.returncode else ""

    def _check_folder(self) -> None:
        if self.working_directory is not None and not Path(self.working_directory).is_dir():
            raise ObjectiveError(f"objective.command: working directory {self.working_directory!r} does not exist")

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Run the command. Raises CommandFailedError for a nonzero status, or InvalidValueError."""
        self._check_folder()
        with tempfile.TemporaryDirectory(prefix="bbkb-") as folder:
            result = Path(folder, "result.json")
            supplied = {
                "BBKB_PARAMETERS": json.dumps(dict(parameters)),
                "BBKB_SEED": str(seed),
                "BBKB_RESULT": str(result),
            }
            if (trial_folder := folder_of(report)) is not None:
                supplied["BBKB_FOLDER"] = str(trial_folder)
            machine = machine_of(report)
            if machine is not None:
                supplied |= machine.environment() | {"BBKB_HOSTFILE": str(machine.write_hostfile(Path(folder)))}
            text, values = self._substitute(parameters, machine)
            output, left_out = self._run(text, {**supplied, **values}, report)
            if not gives_value(report):
                return Evaluation(math.nan)
            evaluation = _result(result, output)
            return replace(evaluation, left_out={**evaluation.left_out, **left_out})

    def _pieces(self) -> list[tuple[str, str | None, str]]:
        """Return (literal text, placeholder or None, format) in order."""
        try:
            pieces = list(string.Formatter().parse(self.command))
        except ValueError as error:
            raise ObjectiveError(
                f"objective.command: {error} in {self.command!r}; a literal brace is written {{{{ or }}}}"
            ) from error
        for _, name, _, conversion in pieces:
            if conversion or name == "":
                raise ObjectiveError(
                    f"objective.command: a placeholder must be {{name}} or {{name:format}}, got one in "
                    f"{self.command!r} that is not; a literal brace is written {{{{ or }}}}"
                )
        literals = [""]
        names = list[str]()
        for literal, name, _, _ in pieces:  # a literal brace also splits the text
            literals[-1] += literal
            if name is not None:
                names.append(name)
                literals.append("")
        for name, place in zip(names, places(literals), strict=True):
            if place:
                raise ObjectiveError(
                    f"objective.command: {{{name}}} must be outside of quotes, got it in {place}: write "
                    f'--x={{{name}}} without quotes, or v={{{name}}}; … "$v" inside of them'
                )
        return [(literal, name, form or "") for literal, name, form, _ in pieces]

    def _substitute(
        self, parameters: Parameters, machine: Machine | None
    ) -> tuple[str, dict[str, str]]:  # fmt: skip
        """Return the command with environment variables for placeholders, and their values."""
        text = ""
        values = dict[str, str]()
        pieces = self._pieces()
        words: dict[str, object] = {}
        if machine is not None or any(name in PLACEHOLDERS for _, name, _ in pieces):
            words |= (machine or single_machine()).placeholders()
        words |= parameters
        options = {f" {shlex.quote(f'--{name}')}=": value for name, value in parameters.items()}
        for literal, name, form in pieces:
            text += literal
            named = {"": words[name]} if name in words else options if name == ALL else {}
            for option, value in named.items():
                variable = f"BBKB_ARGUMENT_{len(values)}"
                values[variable] = format(_plain(value), form)
                text += f'{option}"${variable}"'
        return text, values

    def _run(self, text: str, variables: Mapping[str, str], report: Report) -> tuple[str, dict[str, str]]:
        """Return the end of the standard output, and why reported metrics cannot be recorded."""
        limit = "unlimited" if self.memory_bytes is None else str(self.memory_bytes // 1024)
        process = subprocess.Popen(
            ["/bin/sh", "-c", WRAPPER, "bbkb", text, limit],
            cwd=self.working_directory,
            env={"PYTHONUNBUFFERED": "1", **os.environ, **self.environment, **variables},
            stdin=subprocess.PIPE,  # the lifeline
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        reports = ReportLines(report, process.pid)
        keep = report.write_output if isinstance(report, AttemptReport) else None
        output = _Tail(process.stdout, reports.take, keep)
        errors = _Tail(process.stderr, keep)
        try:
            # the process has not been reaped yet, so the group's ID is still valid when the group
            # is killed
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            if reports.is_stopped:  # the shell may end before its program has cleaned up
                output.wait(STOP_GRACE_SECONDS)
        except BaseException:
            # allows a part of a training on several machines to save its state
            if machine_of(report) is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                output.wait(END_SECONDS)
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _close(process.stdin)
        text_out = output.text()
        text_err = errors.text()
        reports.finish()
        if process.returncode:
            raise CommandFailedError(_failure(process.returncode, text_err))
        return text_out, reports.left_out


def _plain(value: object) -> object:
    if isinstance(value, list | tuple | dict):
        return json.dumps(value)
    # for these types, format() takes no format specification, or formats True as a number
    return str(value) if value is None or isinstance(value, bool) else value


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        stream.close()


class _Tail:
    """Reads a stream to its end in a thread, keeps the last `KEPT_BYTES`, and closes it. `takers`
    are called with each piece of output."""

    def __init__(self, stream: IO[bytes] | None, *takers: Callable[[bytes], None] | None) -> None:
        self._stream = stream
        self._takers = [take for take in takers if take is not None]
        self._tail = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while self._stream and (chunk := os.read(self._stream.fileno(), KEPT_BYTES)):
            self._tail = (self._tail + chunk)[-KEPT_BYTES:]
            for take in self._takers:
                take(chunk)
        _close(self._stream)

    def wait(self, seconds: float) -> None:
        """Wait, up to this time, until every process has closed the stream."""
        self._thread.join(seconds)

    def text(self) -> str:
        """Return the end of the output, which is known when the stream has ended."""
        self.wait(DRAIN_SECONDS)
        return self._tail.decode("utf-8", errors="replace")


def _failure(status: int, errors: str) -> str:
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    tail = "\n".join(errors.strip().splitlines()[-KEPT_LINES:])[-KEPT_CHARACTERS:]
    return f"the command {how}; " + (f"its standard error ends:\n{tail}" if tail else "its standard error is empty")


def _result(file: Path, output: str) -> Evaluation:
    """Return the value in the command's file of results, or else the last line of its output."""
    if file.exists():
        text = file.read_bytes()[: 16 * KEPT_BYTES].decode("utf-8", errors="replace")
        try:
            return as_evaluation(json.loads(text), "the command's BBKB_RESULT")
        except (json.JSONDecodeError, RecursionError) as error:
            raise InvalidValueError(f"BBKB_RESULT must be JSON, got {text[:80]!r}: {error}") from error
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith(PREFIX.decode())]
    last = lines[-1] if lines else ""
    try:
        return Evaluation(float(last))
    except ValueError:
        got = repr(last[:80]) if last else "no output"
        raise InvalidValueError(f"the command's last line must be a number (or write BBKB_RESULT), got {got}") from None
