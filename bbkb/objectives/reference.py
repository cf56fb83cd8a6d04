"""Names of Python objects in a campaign file: `package.module:attribute`, or
`path/to/file.py:attribute`."""

import hashlib
import importlib
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from bbkb.objectives.errors import is_installed
from bbkb.objectives.keywords import did_you_mean
from bbkb.objectives.objective import ObjectiveError


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
        raise ObjectiveError(
            "a Python name must be written package.module:attribute or path/to/file.py:attribute, got "
            f"{reference!r}{_with_colon(reference)}"
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


def _with_colon(reference: str) -> str:
    """Return `; did you mean 'train:loss'?` for `train.loss`, which lacks the colon, and the form of
    a reference for `train.py`."""
    if reference.endswith(".py"):
        return f"; write {f'{reference}:name'!r} with the name of its function"
    place, _, attribute = reference.rpartition(".")
    is_name = ":" not in reference and place and all(part.isidentifier() for part in reference.split("."))
    return f"; did you mean {f'{place}:{attribute}'!r}?" if is_name else ""


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
    return (
        f"{reference!r}: importing {what} failed{_line_of(error)} with {type(error).__name__}: {error}{_remedy(error)}"
    )


def _line_of(error: BaseException) -> str:
    """Return ` at FILE:LINE` for the last line of the user's code on the way to the error, or of
    the imported package if all of it is installed; empty before a SyntaxError, which names it."""
    frames = traceback.extract_tb(error.__traceback__)
    importing = ("<frozen", importlib.__file__, __file__)
    imported = [frame for frame in frames if not frame.filename.startswith(importing)]
    users = [frame for frame in imported if not is_installed(frame.filename)]
    return next((f" at {frame.filename}:{frame.lineno}" for frame in (*users[-1:], *imported)), "")


def _remedy(error: Exception) -> str:
    """Return the remedy for a relative import in a file."""
    if "no known parent package" in str(error):
        return "; name a module with relative imports by its package: package.module:attribute"
    return ""
