"""BBKB inside other libraries: `BBKBSampler` for Optuna, `BBKBSearch` for Ray Tune.

    from bbkb.adapters import BBKBSampler

Each adapter, with its library, is imported on first use.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bbkb.orchestrator.adapters.optuna import BBKBSampler
    from bbkb.orchestrator.adapters.tune import BBKBSearch

__all__ = ["BBKBSampler", "BBKBSearch"]

_MODULES = {"BBKBSampler": "bbkb.orchestrator.adapters.optuna", "BBKBSearch": "bbkb.orchestrator.adapters.tune"}
_EXTRAS = {"BBKBSampler": ("Optuna", "optuna"), "BBKBSearch": ("Ray Tune", "tune")}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(_MODULES[name])
    except ModuleNotFoundError as error:
        library, extra = _EXTRAS[name]
        raise ImportError(
            f"{name} needs {library}, whose module {error.name!r} is not installed: install bbkb with its extra "
            f"[{extra}]"
        ) from error
    attribute: object = getattr(module, name)
    return attribute


def __dir__() -> list[str]:
    return list(__all__)
