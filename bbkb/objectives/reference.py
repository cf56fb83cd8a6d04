"""Names of objectives in a campaign file: `package.module:attribute`, `path/to/file.py:attribute`, or
an entry of `OBJECTIVES`.

A listed class is a frozen dataclass of options. To add one, write a new file and one line here;
`package.module:Name` in a campaign file needs no edit at all. A name is resolved when it is used,
so a long table has no cost.
"""

import hashlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Protocol, runtime_checkable

from bbkb.objectives.errors import did_you_mean, is_installed
from bbkb.objectives.objective import Objective, ObjectiveError
from bbkb.objectives.parameters import Space


def import_reference(reference: str, search_paths: Sequence[str] = ()) -> object:
    """Return the attribute that a reference names.

    Args:
        reference: `package.module:attribute`, or `path/to/file.py:attribute`. A file is found even
            if packages with the same name are installed; a relative path is searched for in
            `search_paths`, then in the working directory.
        search_paths: folders to insert at the front of `sys.path`, in this order; they remain
            there.

    Raises:
        ObjectiveError: if the reference has another form, or if its module or file is missing,
            cannot be imported, or lacks the attribute.
    """
    place, _, attribute = reference.rpartition(":")
    is_file = place.endswith(".py")
    is_name = all(part.isidentifier() for part in place.split("."))
    if not ((is_file or is_name) and attribute.isidentifier()):
        remedy = ""
        outer, _, last = reference.rpartition(".")
        if reference.endswith(".py"):
            remedy = f"; write {f'{reference}:name'!r} with the name of its function"
        elif ":" not in reference and outer and all(part.isidentifier() for part in reference.split(".")):
            remedy = f"; did you mean {f'{outer}:{last}'!r}?"
        raise ObjectiveError(
            "a Python name must be written package.module:attribute or path/to/file.py:attribute, got "
            f"{reference!r}{remedy}"
        )
    for path in reversed(search_paths):
        if path not in sys.path:
            sys.path.insert(0, path)
    module = _load_file(reference, place, search_paths) if is_file else _load_module(reference, place, search_paths)
    if not hasattr(module, attribute):
        public = [name for name in dir(module) if not name.startswith("_")]
        similar = did_you_mean(attribute, public)
        where = "" if is_file else f" ({getattr(module, '__file__', 'built into Python')})"
        raise ObjectiveError(f"{reference!r}: {place!r}{where} has no {attribute!r}{similar}")
    return getattr(module, attribute)


def _load_module(reference: str, name: str, search_paths: Sequence[str]) -> ModuleType:
    importlib.invalidate_caches()  # the module may be newer than the listing of its folder
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        # an existing module that fails to import another one is a different mistake than a
        # misspelled name
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            beside = [path.stem for folder in search_paths for path in _files_in(Path(folder))]
            similar = did_you_mean(error.name, beside) if error.name == name else ""
            raise ObjectiveError(
                f"{reference!r}: no module named {error.name!r} is installed or on the search path "
                f"({sys.path[0]!r}, …){similar}"
            ) from error
        raise ObjectiveError(_failure(reference, f"module {name!r}", error)) from error


def _load_file(reference: str, place: str, search_paths: Sequence[str]) -> ModuleType:
    """Load the file as a separate module. Its folder is searched for its imports, as if it were run
    as a script."""
    folders = list(dict.fromkeys(Path(folder).resolve() for folder in search_paths)) or [Path.cwd()]
    file = next((folder / place for folder in folders if (folder / place).is_file()), None)
    if file is None:
        where = " or ".join(map(str, folders))
        beside = [path.name for folder in folders for path in _files_in((folder / place).parent)]
        similar = did_you_mean(Path(place).name, beside)
        raise ObjectiveError(f"{reference!r}: there is no file {place} in {where}{similar}")
    file = file.resolve()
    name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    loader = _FileLoader(name, str(file))
    module = ModuleType(name)
    module.__file__ = str(file)
    module.__loader__ = loader
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]  # also after Ctrl-C: half a module must not be found again
        if isinstance(error, Exception | SystemExit):
            raise ObjectiveError(_failure(reference, f"the file {file}", error)) from error
        raise
    return module


def modules_of_files() -> list[ModuleType]:
    """Return the modules loaded from files, which another process cannot import by name."""
    return [module for module in sys.modules.values() if isinstance(getattr(module, "__loader__", None), _FileLoader)]


class _FileLoader(SourceFileLoader):
    """Loads a module from the file in a reference."""


def _files_in(folder: Path) -> list[Path]:
    """Return the Python files in a folder; none if it cannot be read."""
    try:
        return sorted(folder.glob("*.py"))
    except OSError:
        return []


def _failure(reference: str, what: str, error: Exception | SystemExit) -> str:
    if isinstance(error, SystemExit):
        return (
            f"{reference!r}: importing {what} ended the program with sys.exit({error.code!r}): what it does as a "
            'script must be below `if __name__ == "__main__":`'
        )
    # the last line of the user's code on the way to the error, or of the imported package if all of it is
    # installed; none before a SyntaxError, which names it
    frames = traceback.extract_tb(error.__traceback__)
    importing = ("<frozen", importlib.__file__, __file__)
    imported = [frame for frame in frames if not frame.filename.startswith(importing)]
    users = [frame for frame in imported if not is_installed(frame.filename)]
    line = next((f" at {frame.filename}:{frame.lineno}" for frame in (*users[-1:], *imported)), "")
    remedy = ""
    if "no known parent package" in str(error):
        remedy = "; name a module with relative imports by its package: package.module:attribute"
    return f"{reference!r}: importing {what} failed{line} with {type(error).__name__}: {error}{remedy}"


FOLDER_VARIABLE = "BBKB_DATA"


@dataclass(frozen=True, slots=True)
class DataSource:
    """The user's data folder, if there is one, and whether a data set that it lacks may be
    downloaded."""

    folder: Path | None = None
    may_download: bool = False

    @classmethod
    def find(cls, folder: Path | None = None, may_download: bool = False) -> "DataSource":
        """Return `folder`, or the one in the environment variable BBKB_DATA if it is not given."""
        named = folder or os.environ.get(FOLDER_VARIABLE) or None
        return cls(Path(named).expanduser() if named else None, may_download)

    def file(self, name: str) -> Path | None:
        """Return the path of `name` in the folder; None if it is not there. Raises ObjectiveError
        if a folder is specified and does not exist, because other data must not replace it."""
        if self.folder is not None and not self.folder.is_dir():
            raise ObjectiveError(
                f"data.folder (or {FOLDER_VARIABLE} in the environment) must name a folder, and there is none at "
                f"{self.folder}: correct the path, or remove the setting to use data that need no folder"
            )
        path = self.folder / name if self.folder else None
        return path if path and path.is_file() else None


OBJECTIVES: Mapping[str, str] = MappingProxyType(
    {
        "abalone": "bbkb.objectives.problems.synthetic:Abalone",
        "branin": "bbkb.objectives.problems.synthetic:Branin",
        "cadata": "bbkb.objectives.problems.synthetic:Cadata",
        "fcnet": "bbkb.objectives.problems.benchmark_tables:FcNet",
        "hpobench_mlp": "bbkb.objectives.problems.benchmark_tables:HpobenchMlp",
        "mnist_cnn": "bbkb.objectives.problems.training.cnn:ConvolutionalNetwork",
        "mnist_logistic_regression": "bbkb.objectives.problems.training.softmax:SoftmaxRegression",
        "nas_bench_101": "bbkb.objectives.problems.benchmark_tables:NasBench101",
        "nas_bench_201": "bbkb.objectives.problems.benchmark_tables:NasBench201",
        "nas_cell": "bbkb.objectives.problems.training.nas_cell:CellNetwork",
        "sine": "bbkb.objectives.problems.synthetic:Sine",
        "sklearn": "bbkb.objectives.estimator:SklearnEstimator",
    }
)


class ObjectiveOptions(Protocol):
    """The interface of a listed class, whose fields are the options in a campaign file."""

    def load(self, source: DataSource) -> Objective:
        """Return the objective with its data.

        Args:
            source: the folder of data sets, and whether they may be downloaded.

        Raises:
            ObjectiveError: if the data are not available.
        """

    def default_space(self) -> Space | None:
        """Return the space for a file without one; None if the objective has candidates."""


@runtime_checkable
class ReadsFiles(Protocol):
    """Options of an objective that contain paths relative to the campaign file's folder."""

    def with_absolute_paths(self, folder: Path) -> "ObjectiveOptions":
        """Return the same options with absolute paths.

        Args:
            folder: the folder of the campaign file, to which relative paths refer.
        """


@runtime_checkable
class KnowsParameters(Protocol):
    """Options of an objective that knows the parameters that a space may have."""

    def space_problems(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the mistakes in parameters, by name: a rule such as `is not a parameter of …`.

        Args:
            names: the parameters of a space.

        Raises:
            ObjectiveError: if the parameters cannot be determined.
        """


def find_objective(name: str) -> type[ObjectiveOptions]:
    """Return the class of an objective's options.

    Args:
        name: a name in the table, or `package.module:Name`.

    Raises:
        ObjectiveError: if there is no such class, or it is not a class of options.
    """
    if ":" not in name and name not in OBJECTIVES:
        raise ObjectiveError(
            f"objective.name must be one of {', '.join(OBJECTIVES)} or package.module:Name, "
            f"got {name!r}{did_you_mean(name, OBJECTIVES)}"
        )
    cls = import_reference(OBJECTIVES.get(name, name))
    missing = [method for method in ("load", "default_space") if not callable(getattr(cls, method, None))]
    if not isinstance(cls, type) or missing:
        lacks = " and ".join(f"{method}()" for method in missing) or "being a class"
        raise ObjectiveError(
            f"objective.name must name a class with load() and default_space(), {name!r} lacks {lacks}"
        )
    return cls
