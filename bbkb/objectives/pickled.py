"""A function of the caller's program as an objective.

For workers in other processes it is pickled by value, so lambdas and closures are possible. The
file is written by the Python API (`bbkb.orchestrator.api`). Loading it runs code, like importing a
module. Its digest is part of the campaign's settings, so a replaced file is rejected. In this
process the function itself is called, so everything that it changes stays changed.
"""

import functools
import hashlib
import inspect
import io
import os
import re
import sys
import time
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from pickle import PickleBuffer
from types import CodeType
from typing import Annotated, Any, ClassVar

import cloudpickle
from typing_extensions import Doc

from bbkb.objectives.errors import is_installed, warn_user
from bbkb.objectives.external import call_with, check_signature, load_once
from bbkb.objectives.objective import Evaluation, ObjectiveError, Parameters, Report
from bbkb.objectives.reference import import_reference

LARGE_BYTES = 50_000_000  # the size of a pickle above which the caller is warned
_NAMED = 3  # the number of objects that the warning names
_KEPT_SECONDS = 7 * 86_400
_OMITTED = "<dynamic-code>"  # written by cloudpickle instead of the name of a file
LIVE = "live:"  # the beginning of the path of a function that is not pickled
_IMPORTABLE = re.compile(rf"{LIVE}((?!__main__:)[\w.]+:[\w.]+)")  # `module:function` that another process can import
_shared: dict[str, object] = {}  # what `_share_with_children` has added to `__main__`


@dataclass(frozen=True, slots=True)
class PickledFunction:
    """A function in a file, called like a `PythonCallable`."""

    path: Annotated[str, Doc("The file with the function.")]
    sha256: Annotated[str, Doc("The digest of the file's content.")]
    code: Annotated[str, Doc("The digest of the function's code, wherever it is in its file.")] = ""
    search_paths: Annotated[
        tuple[str, ...],
        Doc("Folders that are put in front of `sys.path` first, for modules that the function imports."),
    ] = ()

    def with_content(self) -> "SentFunction":
        """Return a copy for processes that may not have the file. Raises ObjectiveError without it."""
        return SentFunction(self.path, self.sha256, self.code, self.search_paths, PickleBuffer(self._read()))

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Call the function. Raises its errors, and InvalidValueError without a number."""
        function = load_once(self)
        _share_with_children(function)
        return call_with(function, parameters, seed, report, name_of(function))

    def prepare(self) -> None:
        """Load the function. Raises the errors of its modules."""
        load_once(self)

    def check(self, parameters: Iterable[str], conditional: Collection[str] = ()) -> None:
        """Raise ObjectiveError unless the function can be loaded and called with these parameters,
        also without the `conditional` ones."""
        function = self.function()
        check_signature(function, parameters, f"the function {name_of(function)!r}", conditional)

    def function(self) -> Callable[..., object]:
        """Return the function. Raises ObjectiveError if its file is missing or was changed."""
        content = self._read()
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise ObjectiveError(f"{self.path} is not the function that the campaign began with: its content changed")
        for folder in reversed(self.search_paths):
            if folder not in sys.path:
                sys.path.insert(0, folder)
        try:
            function: Callable[..., object] = cloudpickle.loads(content)
        except Exception as error:
            raise ObjectiveError(
                f"the campaign's function in {self.path} cannot be loaded here: {type(error).__name__}: {error}"
            ) from error
        return function

    def _read(self) -> bytes | PickleBuffer:
        try:
            return Path(self.path).read_bytes()
        except OSError as error:
            raise ObjectiveError(
                f"the campaign's function cannot be read from {self.path} ({error.strerror}): restore the file, or "
                "start a new campaign from Python"
            ) from error


@dataclass(frozen=True, slots=True)
class SentFunction(PickledFunction):
    """A function with the content of its file, which Ray's object store holds once for each node."""

    content: PickleBuffer = field(default_factory=lambda: PickleBuffer(b""), repr=False, compare=False)

    def _read(self) -> PickleBuffer:
        return self.content


@dataclass(frozen=True, slots=True)
class LiveFunction:
    """A function of this process, called as it is: for executors that evaluate here.

    Another process finds it only if it can be imported. Otherwise, it must be passed again.
    """

    path: Annotated[str, Doc("`live:module:function`; other objects have parentheses: `live:module:partial()`.")]
    code: Annotated[str, Doc("The digest of the function's code, wherever it is in its file.")]
    search_paths: Annotated[
        tuple[str, ...],
        Doc("Folders that are put in front of `sys.path` before the function is imported."),
    ] = ()
    held: Callable[..., object] | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, function: Callable[..., object]) -> "LiveFunction":
        """Return the record of `function`, without the function."""
        module = getattr(function, "__module__", None) or type(function).__module__
        name = getattr(function, "__qualname__", None) or f"{type(function).__qualname__}()"
        return cls(f"{LIVE}{module}:{name}", code_digest(function), search_paths_now())

    def holding(self, function: Callable[..., object]) -> "LiveFunction":
        """Return a copy that calls `function`."""
        copy = replace(self)
        object.__setattr__(copy, "held", function)
        return copy

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Call the function. Raises its errors, and InvalidValueError without a number."""
        function = self.function()
        return call_with(function, parameters, seed, report, name_of(function))

    def check(self, parameters: Iterable[str], conditional: Collection[str] = ()) -> None:
        """Raise ObjectiveError unless the function is known here and can be called with these
        parameters, also without the `conditional` ones."""
        function = self.function()
        check_signature(function, parameters, f"the function {name_of(function)!r}", conditional)

    def function(self) -> Callable[..., object]:
        """Return the function. Raises ObjectiveError if another process began the run and the
        function cannot be imported."""
        if self.held is not None:
            return self.held
        remedy = "pass it again from Python: tune(function, …, resume=FOLDER), with the folder of the run"
        name = self.path.removeprefix(LIVE)
        if not _IMPORTABLE.fullmatch(self.path):
            raise ObjectiveError(
                f"the function {name} was called in the process that began the run, and cannot be imported here: "
                f"{remedy}"
            )
        try:
            imported = import_reference(name, self.search_paths)
        except ObjectiveError as error:
            raise ObjectiveError(f"the campaign's function: {error}; {remedy}") from error
        if not callable(imported):
            raise ObjectiveError(f"the campaign's function {name} is {type(imported).__name__} now: {remedy}")
        function: Callable[..., object] = imported
        return function

    def __reduce__(self) -> tuple[type["LiveFunction"], tuple[object, ...]]:
        """Pickle the record: other processes import the function."""
        return LiveFunction, (self.path, self.code, self.search_paths)


def name_of(function: Callable[..., object]) -> str:
    """Return the name of a function in messages."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def code_digest(function: Callable[..., object]) -> str:
    """Return a digest of a function's instructions and constants, wherever they are in a file.

    Pickles cannot be compared, because the same function may have different bytes in another
    process. Called functions and the values of global names are ignored.
    """
    return hashlib.sha256(repr(_essence(_code_of(function))).encode("utf-8", "surrogatepass")).hexdigest()


def _share_with_children(function: Callable[..., object]) -> None:
    """Add the functions and classes of the user's script to this process's `__main__`.

    A function that was pickled by value refers to them by `__main__.name`. Processes that the
    function forks, such as those of `multiprocessing.Pool`, look them up there. Processes that it
    spawns import the script again, from the file of `__main__`.
    """
    main = sys.modules["__main__"]
    inner = function.func if isinstance(function, functools.partial) else function
    variables = getattr(inner, "__globals__", None) or getattr(type(inner).__call__, "__globals__", {})
    for name, value in list(variables.items()):
        if getattr(value, "__module__", None) == "__main__" and getattr(value, "__name__", None) == name:
            there = getattr(main, name, None)
            if there is None or there is _shared.get(name):
                setattr(main, name, value)
                _shared[name] = value
    code = _code_of(inner)
    if _shared and code is not None and Path(code.co_filename).is_file():
        main.__file__ = code.co_filename


def _code_of(function: Callable[..., object]) -> CodeType | None:
    """Return the code of a function, of the one inside a partial, or of a callable object; None if
    it is not written in Python."""
    if isinstance(function, functools.partial):
        return _code_of(function.func)
    code = getattr(function, "__code__", None)
    if code is None:
        code = getattr(type(function).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _essence(value: object) -> object:
    """Return code without its position in a file; other values are represented by their repr."""
    if not isinstance(value, CodeType):
        # 1 is not True
        return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
    return (value.co_code, value.co_names, value.co_varnames, *map(_essence, value.co_consts))


@dataclass(frozen=True, slots=True)
class FunctionDraft:
    """A pickled function that has not been written to its file yet."""

    options: PickledFunction
    content: bytes
    function: Callable[..., object]

    def write(self) -> PickledFunction:
        """Write the file unless it exists, and return the function in it. Raises OSError."""
        path = Path(self.options.path)
        folder = path.parent
        size = len(self.content)
        if size > LARGE_BYTES:
            variables = _pickled_variables(self.function)
            sizes = sorted(((_size_of(value), name) for name, value in variables.items()), reverse=True)
            large = [f"{name} ({_megabytes(taken)})" for taken, name in sizes[:_NAMED] if taken > size / 100]
            named = f": {', '.join(large)}" if large else ""
            warn_user(
                f"the function {name_of(self.function)!r} takes {_megabytes(size)} of other objects "
                f"along, to each worker and into {folder}{named}; let the function load them, for example from a file, "
                "and keep them in a variable of its module"
            )
        if path.exists():
            with suppress(OSError):  # it may belong to another user
                os.utime(path)  # it is needed from now on: see `_remove_unneeded`
            return self.options
        _remove_unneeded(folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        unfinished.touch(0o600)
        unfinished.write_bytes(self.content)
        unfinished.replace(path)
        return self.options


def draft_function(function: Callable[..., object], folder: Path) -> FunctionDraft:
    """Pickle `function` for a file in `folder` that is named after its content.

    Raises ObjectiveError if the function cannot be pickled (because it refers to a lock, an open
    file, a connection …).
    """
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump(function)
    except Exception as error:
        raise ObjectiveError(
            f"the function {name_of(function)!r} cannot be sent to the workers: "
            f"{type(error).__name__}: {error}; create what cannot be pickled inside the function"
        ) from error
    content = buffer.getvalue()
    sha256 = hashlib.sha256(content).hexdigest()
    path = os.path.abspath(folder / f"{sha256[:16]}.pkl")
    options = PickledFunction(path, sha256, code_digest(function), search_paths_now())
    return FunctionDraft(options, content, function)


def search_paths_now() -> tuple[str, ...]:
    """Return the folders from which this program imports its own modules."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    beside = [str(Path(script).resolve().parent)] if script else []
    folders = [os.path.abspath(folder) for folder in sys.path if os.path.isdir(folder)]
    added = [folder for folder in folders if not is_installed(folder)]  # by the program
    return tuple(dict.fromkeys([str(Path.cwd()), *beside, *added]))


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    """Return cloudpickle's parts of a code object, with the name of its file if that exists.

    cloudpickle 3.1 omits the name, so tracebacks would not say which line of a script failed. The
    temporary names of a notebook's cells are still omitted, so that equal cells have equal pickles.
    """
    build, parts = cloudpickle.Pickler.dispatch_table[CodeType](code)
    recorded = _OMITTED if _OMITTED in parts else code.co_filename  # cloudpickle before 3.1 omits none
    name = os.path.abspath(code.co_filename)
    name = name if os.path.isfile(name) else _OMITTED
    return build, tuple(name if part == recorded else part for part in parts)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    dispatch_table: ClassVar = ChainMap({CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table)


def _pickled_variables(function: Callable[..., object]) -> dict[str, object]:
    """Return the values that are pickled with a function, by name: variables of enclosing scopes,
    arguments of a partial, and attributes of an object."""
    if isinstance(function, functools.partial):
        arguments = {f"argument {number}": value for number, value in enumerate(function.args, 1)}
        return {**_pickled_variables(function.func), **arguments, **function.keywords}
    if inspect.ismethod(function):
        return {**vars(function.__self__), **_pickled_variables(function.__func__)}
    if not inspect.isfunction(function):
        return dict(getattr(function, "__dict__", {}))
    defaults = {name: argument.default for name, argument in inspect.signature(function).parameters.items()}
    try:
        captured = inspect.getclosurevars(function)
    except ValueError:  # a variable of an enclosing scope has no value yet
        return defaults
    return {**captured.globals, **captured.nonlocals, **defaults}


def _size_of(value: object) -> int:
    """Return the size of a value's pickle in bytes; 0 if the value cannot be pickled alone."""
    try:
        return len(cloudpickle.dumps(value))
    except Exception:
        return 0


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def _remove_unneeded(folder: Path) -> None:
    """Remove large pickles that no run beside `folder` refers to and that are a week old: a program
    may be about to start a run with a newer one. Remove nothing if a run cannot be read."""
    try:
        old = [
            path
            for path in folder.glob("*.pkl")
            if path.stat().st_size > LARGE_BYTES and time.time() - path.stat().st_mtime > _KEPT_SECONDS
        ]
        if not old:
            return
        named = "".join(file.read_text(encoding="utf-8") for file in folder.parent.glob("*/campaign.yaml"))
        for path in old:
            if path.name not in named:
                path.unlink(missing_ok=True)
    except (OSError, UnicodeDecodeError):
        return
