"""Names of Python things written in a campaign file: `package.module:attribute`."""

import difflib
import importlib
import sys
from collections.abc import Iterable
from typing import Any

from objectives.objective import ObjectiveError


def import_reference(reference: str, search_paths: Iterable[str] = ()) -> Any:
    """The attribute `package.module:attribute` names; `search_paths` are put in front of `sys.path` first, to stay.

    Raises ObjectiveError when it is not written that way, the module cannot be imported or lacks the attribute.
    """
    module_name, _, attribute = reference.partition(":")
    if not (all(part.isidentifier() for part in module_name.split(".")) and attribute.isidentifier()):
        raise ObjectiveError(f"a Python name must be written package.module:attribute, got {reference!r}")
    for path in search_paths:
        if path not in sys.path:
            sys.path.insert(0, path)
    importlib.invalidate_caches()  # the module may have been written after its folder was first listed
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ObjectiveError(_import_failure(reference, module_name, error)) from error
    if not hasattr(module, attribute):
        raise ObjectiveError(
            f"{reference!r}: module {module_name!r} has no {attribute!r}{did_you_mean(attribute, dir(module))}"
        )
    return getattr(module, attribute)


def _import_failure(reference: str, module_name: str, error: Exception) -> str:
    # a module that is there but fails to import another one is a different mistake than a misspelt name
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
        return f"{reference!r}: no module named {error.name!r} is installed or on the search path ({sys.path[0]!r}, …)"
    return f"{reference!r}: importing module {module_name!r} failed with {type(error).__name__}: {error}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` with the known word nearest to `word`, or nothing."""
    nearest = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
