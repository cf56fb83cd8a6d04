"""Errors of users: the base class of all errors of the project, the error of an objective, warnings, the place
of a mistake in the user's program, and suggestions for unknown names. They are in this module because
`objectives` imports no other package."""

import difflib
import functools
import inspect
import reprlib
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast

_LONGEST_LINE = 3000  # characters: a message quotes texts of users, who may have a megabyte on one line


class BbkbError(Exception):
    """The base class of all errors for users: `except BbkbError` catches them. Of a line that is too
    long to read, the message has both ends, because the remedy is the last part."""

    def __init__(self, message: str = "", *further: object) -> None:
        half = _LONGEST_LINE // 2
        lines = str(message).split("\n")
        short = (line if len(line) <= _LONGEST_LINE else f"{line[:half]} … {line[-half:]}" for line in lines)
        super().__init__("\n".join(short), *further)


class ObjectiveError(BbkbError):
    """An objective, space or data set cannot be built as specified. This is the user's mistake, and
    the message gives the remedy."""


def warn_user(message: str) -> None:
    """Warn at the line of the user's program that called this project."""
    frame = sys._getframe()
    level = 1  # that of this function
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)


def has_users_frame(error: BaseException) -> bool:
    """Return whether an error has passed code that belongs neither to this project nor to an installed package."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(not _is_ours(frame) and not is_installed(frame.f_code.co_filename) for frame in frames)


def users_cause(error: BaseException) -> BaseException | None:
    """Return the nearest cause of an error that has passed the user's code; None if none has."""
    cause = error.__cause__ or error.__context__
    while cause is not None and not has_users_frame(cause):
        cause = cause.__cause__ or cause.__context__
    return cause


def is_raised_in(error: BaseException, *packages: str) -> bool:
    """Return whether a module in one of these packages has raised an error."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__", "")).startswith(packages)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "bbkb"


def is_installed(file: str) -> bool:
    """Return whether a file or folder belongs to the standard library or to installed packages."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    is_packaged = not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)
    return file.startswith("<") or is_packaged or any(Path(file).is_relative_to(folder) for folder in folders)


Callee = TypeVar("Callee", bound=Callable[..., Any])

# words of other programs and of everyday language → keys and arguments with the same meaning
_MEANT = {
    "timeout": ("timeout_seconds", "hours"),
    "max": ("high", "at_most", "maximize"),
    "min": ("low", "at_least", "minimize"),
    "values": ("choices",),
    "options": ("choices",),
    "categories": ("choices",),
    "value": ("constant",),
    "metric": ("objectives",),
    "max_failures": ("retries",),
    "existing_data": ("known_results",),
    "earlier": ("known_results",),
    **dict.fromkeys(("preset", "model", "coverage", "verify", "kernel", "regularization"), ("strategy",)),
    **dict.fromkeys(("time", "max_time", "duration", "time_budget_s"), ("hours",)),
    **dict.fromkeys(("n_jobs", "max_concurrent_trials", "max_concurrent"), ("count", "workers")),
    **dict.fromkeys(("parallelism", "concurrency"), ("count", "workers")),
    **dict.fromkeys(("trials", "n_trials", "num_samples", "max_evals", "n_calls", "n_iter"), ("evaluations",)),
    **dict.fromkeys(("n", "batch_size", "num"), ("limit",)),
    **dict.fromkeys(("mode", "goal", "maximize", "minimize"), ("direction",)),
    **dict.fromkeys(("random_state", "rng"), ("seed",)),
    **dict.fromkeys(("scheduler", "pruner", "stop"), ("early_stopping",)),
    **dict.fromkeys(("sampler", "search_alg", "algorithm", "optimizer"), ("strategy",)),
    **dict.fromkeys(("search_space", "parameters", "config", "param_space"), ("space",)),
    **dict.fromkeys(("callback", "callbacks"), ("on_result",)),
    **dict.fromkeys(("verbose", "show_progress_bar"), ("progress",)),
    **dict.fromkeys(("enqueue", "forbid", "store", "tags", "target", "gpus", "cpus", "retries"), ("settings",)),
}


def suggestion(word: str, choices: Sequence[str]) -> str:
    """Return `did you mean …?` if a name is similar or has the same meaning; otherwise all
    names."""
    return did_you_mean(word, choices).removeprefix("; ") or f"valid names: {', '.join(choices)}"


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` if one of `choices` has the same meaning or is similar;
    otherwise an empty text."""
    meant = nearest(word, choices)
    return f"; did you mean {meant!r}?" if meant else ""


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the member of `choices` that other programs call `word`, or else the most similar one;
    None if none is similar. Among equally near words, one with the same letters is preferred."""
    known = list(choices)
    similar = difflib.get_close_matches(word, known)
    same_letters = [choice for choice in similar if sorted(choice) == sorted(word)]
    return meaning(word, known) or next(iter([*same_letters, *similar]), None)


def meaning(word: str, choices: Sequence[str]) -> str | None:
    """Return the member of `choices` that other programs call `word`; None if there is none."""
    return next((key for key in _MEANT.get(word, ()) if key in choices), None)


def arguments_of(callee: Callable[..., object]) -> list[str]:
    """Return the names of the arguments of a function or method, without `self`."""
    return [name for name in inspect.signature(callee).parameters if name != "self"]


def refuse_unknown(callee: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Raise ValueError if one of `names` is not one of the arguments `known` of `callee`."""
    for name in names:
        if name not in known:
            remedy = did_you_mean(name, known) or f"; its arguments are {', '.join(known)}"
            raise ValueError(f"{name} is not an argument of {callee}{remedy}")


def checks_arguments(callee: Callee) -> Callee:
    """Return a function or class that raises ValueError for unknown arguments and for too many
    positional ones, with a remedy. Python's own TypeError suggests no remedy. The tracebacks of its
    errors for users end near their line."""
    if isinstance(callee, type):
        callee.__init__ = checks_arguments(callee.__init__)  # type: ignore[misc]
        return callee
    parameters = inspect.signature(callee).parameters.values()
    arguments = arguments_of(callee)
    by_position = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    by_name = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    title = callee.__qualname__.removesuffix(".__init__")
    is_constructor = title != callee.__qualname__  # elsewhere, a ValueError may be an error of this project
    mistakes = (BbkbError, ValueError) if is_constructor else (BbkbError,)

    @functools.wraps(callee)
    def checked(*args: Any, **options: Any) -> Any:
        refuse_unknown(title, options, arguments)
        if by_name and len(args) > len(by_position):
            listed = ", ".join(name for name in by_position if name != "self")
            raise ValueError(
                f"{title} takes only {listed} by position: write the name of the argument "
                f"{reprlib.repr(args[len(by_position)])}, such as {by_name[0]}=…"
            )
        try:
            return callee(*args, **options)
        except mistakes as error:
            if has_users_frame(error):
                raise
            raise error.with_traceback(None) from users_cause(error)

    return cast(Callee, checked)
