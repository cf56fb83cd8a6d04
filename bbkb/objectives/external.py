"""User-defined objectives: any importable function, or any shell command.

Both are specified as text that the worker resolves. The worker must therefore be able to import the
module or run the program. `check` resolves them early, for `bbkb validate`.

A training may use a `Trial`, for reports, and for checkpoints in the trial's folder. The callbacks
of libraries and the trainings in `problems.training` use it, too.
"""

import functools
import inspect
import itertools
import math
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

from typing_extensions import Doc

from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.objective import (
    MOST_METRICS,
    NAME_CHARACTERS,
    RANK_VARIABLES,
    Evaluation,
    EvaluationStopped,
    ObjectiveError,
    Parameters,
    Report,
    folder_of,
    gives_value,
    machine_of,
    single_machine,
)
from bbkb.objectives.reference import import_reference
from bbkb.objectives.returned import ARGUMENTS, as_evaluation, number_of


class Trial:
    """The trial in which a training runs.

    Attributes:
        folder: the trial's folder for checkpoints, or None.
        checkpoint: the newest complete checkpoint in it, or None.
        step: the step after which that checkpoint was saved; 0 if there is none.
        is_first: whether this process is the first process of the training. Only the first one
            reports and saves checkpoints. It is determined from the machine of `report` and from
            the variables of torchrun and mpirun, unless a library sets it.
    """

    def __init__(self, report: Report | None = None, folder: str | os.PathLike[str] | None = None) -> None:
        """Find the trial's folder and its newest checkpoint.

        Args:
            report: the function's argument `report`. By default, reports are printed as lines
                `BBKB_REPORT step value name=number …`, as in a command.
            folder: the folder for checkpoints. By default, the folder of `report` (which may have
                none), or else the one in the variable BBKB_FOLDER.
        """
        if folder is None:
            folder = getattr(report, "folder", os.environ.get("BBKB_FOLDER") or None)
        self._report = report or _print_report
        ranks = [os.environ.get(name, "") for name in RANK_VARIABLES]  # of torchrun and mpirun
        has_higher_rank = any(rank.isdecimal() and int(rank) for rank in ranks)
        self.is_first = gives_value(report) and not has_higher_rank
        self.folder = None if folder is None else Path(folder)
        self.checkpoint: Path | None = None
        self.step = 0
        for path in [] if self.folder is None else self.folder.glob("step-*"):
            step = path.name.removeprefix("step-").partition(".")[0]
            if step.isdecimal() and int(step) > self.step:
                self.checkpoint, self.step = path, int(step)

    def report(self, metrics: Mapping[str, object], name: str, step: int) -> bool:
        """Report the metric `name` at `step`, counted from 1, with the other numbers in `metrics`.

        Report a step before its checkpoint is saved: a training that is killed between the two
        calls then repeats the step, and its curve has no gap.

        Return whether the campaign stops the trial, which is False in all but the first process.
        Raises KeyError if the metric does not exist.
        """
        if not self.is_first:
            return False
        if name not in metrics:
            raise KeyError(f"metric {name!r} must be one that the training computes: {', '.join(metrics) or 'none'}")
        # the other numbers that a report can contain, with underscores in place of spaces in their names
        numbers = (("_".join(str(key).split()), number_of(metric)) for key, metric in metrics.items() if key != name)
        further = {
            key: number
            for key, number in numbers
            if number is not None and key not in ARGUMENTS and 0 < len(key) <= NAME_CHARACTERS
        }
        others = dict(itertools.islice(further.items(), MOST_METRICS))
        try:
            self._report(float(metrics[name]), step, **others)  # type: ignore[arg-type]  # a number
        except EvaluationStopped:
            return True
        return False

    def save(self, write: Callable[[str], object], step: int, suffix: str = "", all_write: bool = False) -> None:
        """Save a checkpoint with `write`, rename it when complete, and remove the previous one.

        Args:
            write: called with a path that ends with `suffix`, unless the trial has no folder.
            step: the step after which the checkpoint is saved.
            suffix: the file's suffix, by which a library selects the format.
            all_write: whether all processes of a training call `write`.
        """
        if self.folder is None or not (self.is_first or all_write):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f"draft-{step}{suffix}"
        write(str(draft))
        self.keep(draft, step, suffix)

    def keep(self, draft: Path, step: int, suffix: str = "") -> None:
        """Move a complete checkpoint, a file or a folder on the same disk, to its final path.

        The previous checkpoint, and drafts of attempts that died while saving, are removed.
        """
        if self.folder is None or not self.is_first:
            return
        before = self.checkpoint
        complete = self.folder / f"step-{step}{suffix}"
        if complete.is_dir():  # from an attempt that died before it removed the previous one
            shutil.rmtree(complete)
        self.folder.mkdir(parents=True, exist_ok=True)
        draft.rename(complete)
        self.checkpoint = complete
        self.step = step
        replaced = [before] if before is not None and before != complete else []
        for path in [*replaced, *self.folder.glob("draft-*")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _print_report(value: float, step: int | None = None, **metrics: float) -> None:
    """Print a report; in a campaign's command on a separate line, even after a progress bar."""
    named = "".join(f" {name}={number!r}" for name, number in metrics.items())
    start = "\n" if "BBKB_RESULT" in os.environ else ""
    print(f"{start}BBKB_REPORT {step} {value!r}{named}\n", end="", flush=True)  # in one piece


# further arguments, for functions whose signature names them
SUPPLIED = ("seed", "report", "folder", "machine")
CONFIG = "config"  # the argument that gets all parameters as one mapping


@runtime_checkable
class HasFunction(Protocol):
    """An objective that calls a function."""

    def function(self) -> Callable[..., object]:
        """Return the function."""


@functools.lru_cache(maxsize=8)
def load_once(objective: HasFunction) -> Callable[..., object]:
    """Return the objective's function, loaded once for each process."""
    return objective.function()


@dataclass(frozen=True, slots=True)
class PythonCallable:
    """A function that is imported by the process that calls it.

    It is called with the parameters as keyword arguments. It also gets `seed`, `report`, `folder`
    (the trial's folder, a Path) and `machine` (a `Machine`) if its signature has them and no
    parameter has that name. It returns a number, or a mapping with `value` and other numbers, which
    become metrics.
    """

    path: Annotated[str, Doc("`package.module:function` or `path/to/file.py:function`.")]
    search_paths: Annotated[tuple[str, ...], Doc("Folders that are inserted at the front of `sys.path` first.")] = ()

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Call the function. Raises its errors, and InvalidValueError without a number."""
        return call_with(load_once(self), parameters, seed, report, self.path)

    def prepare(self) -> None:
        """Import the function. Raises the errors of its module."""
        load_once(self)

    def check(self, parameters: Iterable[str], conditional: Collection[str] = ()) -> None:
        """Raise ObjectiveError unless the function can be imported and called with these
        parameters, also without the `conditional` ones."""
        check_signature(self.function(), parameters, f"objective.callable {self.path!r}", conditional)

    def function(self) -> Callable[..., object]:
        """Return the object at `path`. Raises ObjectiveError if it cannot be imported or called."""
        try:
            imported = import_reference(self.path, self.search_paths)
        except ObjectiveError as error:
            raise ObjectiveError(f"objective.callable: {error}") from error
        if not callable(imported):
            raise ObjectiveError(f"objective.callable must name a function, {self.path!r} is {type(imported).__name__}")
        function: Callable[..., object] = imported
        return function


def call_with(
    function: Callable[..., object], parameters: Parameters, seed: int, report: Report, origin: str
) -> Evaluation:
    """Call a user's function with `parameters` as keyword arguments, or nested in its argument `config`, and
    with those arguments of `SUPPLIED` that its signature has.

    `origin` names the function in messages. Raises the function's errors, and InvalidValueError if
    it does not return a number.
    """
    supplied = {"seed": seed, "report": report, "folder": folder_of(report)}
    named, _ = _arguments_of(function)
    arguments = {name: value for name, value in supplied.items() if name in named}
    if "machine" in named:
        arguments["machine"] = machine_of(report) or single_machine()
    given = {CONFIG: nested(parameters)} if _takes_config(named, parameters) else parameters
    returned = function(**{**arguments, **given})
    return as_evaluation(returned, origin) if gives_value(report) else Evaluation(math.nan)


def nested(parameters: Parameters) -> dict[str, Any]:
    """Return parameters as nested mappings: `optimizer.lr` becomes `["optimizer"]["lr"]`."""
    tree: dict[str, Any] = {}
    for name, value in parameters.items():
        *parents, last = name.split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return tree


def _takes_config(named: Mapping[str, inspect.Parameter], parameters: Collection[str]) -> bool:
    """Return whether a function gets all parameters in its argument `config`: it has this argument without
    a default, and none that is a parameter."""
    is_needed = CONFIG in named and named[CONFIG].default is inspect.Parameter.empty
    return is_needed and named.keys().isdisjoint(parameters)


def takes_argument(objective: object, name: str, is_required: bool = False) -> bool:
    """Return whether the objective is a function with the argument `name`, one of `SUPPLIED`.
    `is_required`: only if it has no default.

    Raises ObjectiveError if the function cannot be found.
    """
    if not isinstance(objective, HasFunction):
        return False
    argument = _arguments_of(objective.function())[0].get(name)
    return argument is not None and not (is_required and argument.default is not argument.empty)


def check_signature(
    function: Callable[..., object], parameters: Iterable[str], origin: str, conditional: Collection[str] = ()
) -> None:
    """Raise ObjectiveError unless `function` can be called with these parameters, also without the
    `conditional` ones, and returns its value directly. `origin` begins the message."""
    if isinstance(function, type):
        remedy = "write a function that makes an object and returns its value"
        raise ObjectiveError(f"{origin} must be a function, not a class; {remedy}")
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    called = inner if inspect.isroutine(inner) else type(inner).__call__
    if inspect.iscoroutinefunction(called):
        remedy = "wrap it: def objective(**parameters): return asyncio.run(train(**parameters))"
        raise ObjectiveError(f"{origin} must be an ordinary function, not an async one; {remedy}")
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        remedy = "return the value, and give intermediate values to report(value, step)"
        raise ObjectiveError(f"{origin} must return its value, it has a yield; {remedy}")
    named, accepts_any = _arguments_of(function)
    required = set(parameters)
    if _takes_config(named, required):
        for name in sorted(required):
            outer = next((each for each in sorted(required) if name.startswith(f"{each}.")), None)
            if outer is not None:
                raise ObjectiveError(
                    f"{origin} gets {name!r} in config[{outer!r}], which is a parameter itself: rename one of them"
                )
        required = {CONFIG}
        conditional = ()
    for name in sorted(required - named.keys()):
        if not accepts_any:
            raise ObjectiveError(
                f"{origin} must accept parameter {name!r} of the space, its signature has "
                f"{', '.join(named) or 'none'}{did_you_mean(name, named) or '; add it, or **parameters for all'}"
            )
    for name, argument in named.items():
        if name in conditional and argument.default is argument.empty:
            raise ObjectiveError(
                f"{origin} must give {name!r} a default: the parameter is omitted if its condition does not hold"
            )
        if argument.default is argument.empty and name not in required and name not in SUPPLIED:
            similar = did_you_mean(name, required - named.keys())
            raise ObjectiveError(f"{origin} needs {name!r}; add it to the space or give it a default{similar}")


def _arguments_of(function: Callable[..., object]) -> tuple[dict[str, inspect.Parameter], bool]:
    """Return the arguments that a call can name, and whether it may also name any other one.

    A C function without a signature accepts any.
    """
    try:
        arguments = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return {}, True
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    accepts_any = any(argument.kind is argument.VAR_KEYWORD for argument in arguments)
    return {argument.name: argument for argument in arguments if argument.kind in named}, accepts_any
