"""Find parameters that the docstring of a public class or function omits."""

import inspect
from collections.abc import Callable
from typing import Any, cast

from bbkb.orchestrator.annotations import documentation_of


def is_protocol(cls: object) -> bool:
    return isinstance(cls, type) and bool(getattr(cls, "_is_protocol", False))


def missing_arguments(function: Callable[..., Any]) -> list[str]:
    """Return the parameters that neither the argument section of `function` or a base class nor
    the annotation of a field describes. Protocols have none."""
    if is_protocol(function):
        return []
    if "Arguments: see `tune`" in (inspect.getdoc(function) or ""):
        return []
    constructor = cast(Any, function).__init__ if isinstance(function, type) else function
    parameters = [
        parameter for parameter in inspect.signature(constructor).parameters if parameter not in ("self", "cls")
    ]
    documented = "".join(
        (inspect.getdoc(cls) or "").partition("Args:\n")[2] for cls in getattr(function, "__mro__", (function,))
    )
    described = documentation_of(function) if isinstance(function, type) else {}
    return [parameter for parameter in parameters if f"{parameter}:" not in documented and parameter not in described]
