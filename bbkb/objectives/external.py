"""User-defined objectives: any importable function, or any shell command.

Both are specified as text that the worker resolves. The worker must therefore be able to import the
module or run the program. `check` resolves them early, for `bbkb validate`.
"""

import functools
import inspect
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

from typing_extensions import Doc

from bbkb.objectives.keywords import did_you_mean
from bbkb.objectives.machines import folder_of, gives_value, machine_of, single_machine
from bbkb.objectives.objective import Evaluation, ObjectiveError, Parameters, Report
from bbkb.objectives.reference import import_reference
from bbkb.objectives.returned import as_evaluation

# further arguments, for functions whose signature names them
SUPPLIED = ("seed", "report", "folder", "machine")


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
    """Call a user's function with `parameters` as keyword arguments, and with those arguments of
    `SUPPLIED` that its signature has.

    `origin` names the function in messages. Raises the function's errors, and InvalidValueError if
    it does not return a number.
    """
    supplied = {"seed": seed, "report": report, "folder": folder_of(report)}
    named = _named_arguments(function)
    arguments = {name: value for name, value in supplied.items() if name in named}
    if "machine" in named:
        arguments["machine"] = machine_of(report) or single_machine()
    returned = function(**{**arguments, **parameters})
    return as_evaluation(returned, origin) if gives_value(report) else Evaluation(math.nan)


def takes_argument(objective: object, name: str, is_required: bool = False) -> bool:
    """Return whether the objective is a function with the argument `name`, one of `SUPPLIED`.
    `is_required`: only if it has no default.

    Raises ObjectiveError if the function cannot be found.
    """
    if not isinstance(objective, HasFunction):
        return False
    argument = _named_arguments(objective.function()).get(name)
    return argument is not None and not (is_required and argument.default is not argument.empty)


def check_signature(
    function: Callable[..., object], parameters: Iterable[str], origin: str, conditional: Collection[str] = ()
) -> None:
    """Raise ObjectiveError unless `function` can be called with these parameters, also without the
    `conditional` ones, and returns its value directly. `origin` begins the message."""
    _check_returns_at_once(function, origin)
    named = _named_arguments(function)
    required = set(parameters)
    accepts_any = any(argument.kind is argument.VAR_KEYWORD for argument in _signature(function))
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


def _check_returns_at_once(function: Callable[..., object], origin: str) -> None:
    """Raise ObjectiveError if `function` is a class, or a coroutine or generator function."""
    if isinstance(function, type):
        remedy = "write a function that makes an object and returns its value"
        raise ObjectiveError(f"{origin} must be a function, not a class; {remedy}")
    while isinstance(function, functools.partial):
        function = function.func
    called = function if inspect.isroutine(function) else type(function).__call__
    if inspect.iscoroutinefunction(called):
        remedy = "wrap it: def objective(**parameters): return asyncio.run(train(**parameters))"
        raise ObjectiveError(f"{origin} must be an ordinary function, not an async one; {remedy}")
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        remedy = "return the value, and give intermediate values to report(value, step)"
        raise ObjectiveError(f"{origin} must return its value, it has a yield; {remedy}")


def _signature(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Return the signature of `function`, or `**anything` if a C function does not provide it."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return [inspect.Parameter("anything", inspect.Parameter.VAR_KEYWORD)]


def _named_arguments(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {argument.name: argument for argument in _signature(function) if argument.kind in named}
