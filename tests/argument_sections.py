"""What the docstring of a public class or function leaves out."""

import inspect
from collections.abc import Callable
from typing import Any, cast


def is_protocol(cls: object) -> bool:
    return isinstance(cls, type) and bool(getattr(cls, "_is_protocol", False))


def missing_arguments(function: Callable[..., Any]) -> list[str]:
    """Parameters of a function or constructor that its argument section does not name, nor that of a base class whose
    parameters it has; none of a protocol."""
    if is_protocol(function):
        return []
    constructor = cast(Any, function).__init__ if isinstance(function, type) else function
    parameters = [one for one in inspect.signature(constructor).parameters if one not in ("self", "cls")]
    documented = "".join(
        (inspect.getdoc(one) or "").partition("Args:\n")[2] for one in getattr(function, "__mro__", (function,))
    )
    return [one for one in parameters if f"{one}:" not in documented]
