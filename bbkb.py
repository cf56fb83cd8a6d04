"""The public names of the project: `import bbkb`, the `bbkb` command and `python -m bbkb`.

    from bbkb import Campaign, Optimizer, load, tune

Everything that is imported from here is kept stable between minor versions; the packages below are free to change.
"""

import importlib
import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from objectives.objective import EvaluationStopped
    from objectives.parameters import Choice, Ordered, Range
    from orchestrator.api import Campaign, Result, load, tune
    from orchestrator.ask_tell.candidates import Optimizer
    from orchestrator.version import __version__

__all__ = [
    "Campaign",
    "Choice",
    "EvaluationStopped",
    "Optimizer",
    "Ordered",
    "Range",
    "Result",
    "__version__",
    "load",
    "main",
    "tune",
]

_HOMES = {  # imported when they are first used: `Optimizer` needs numpy and scipy only
    "Campaign": "orchestrator.api",
    "Choice": "objectives.parameters",
    "EvaluationStopped": "objectives.objective",
    "Optimizer": "orchestrator.ask_tell.candidates",
    "Ordered": "objectives.parameters",
    "Range": "objectives.parameters",
    "Result": "orchestrator.api",
    "__version__": "orchestrator.version",
    "load": "orchestrator.api",
    "tune": "orchestrator.api",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(_HOMES[name]), name)
    return found


def import_own_packages() -> None:
    """Import our packages from beside this file, though a user's folder of the same name stands first on `sys.path`.

    Importing this module does it; so does a worker process of Ray that starts where there is such a folder.

    Raises:
        ImportError: when another package of that name was imported before, or this project's is missing.

    """
    beside = Path(__file__).resolve().parent
    for name in ("objectives", "workers", "orchestrator"):
        if name not in sys.modules:
            spec = PathFinder.find_spec(name, [str(beside)])
            if spec is None or spec.loader is None:
                raise ImportError(f"bbkb is not installed completely: its package {name!r} is missing in {beside}")
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        elif beside / name not in [Path(path).resolve() for path in getattr(sys.modules[name], "__path__", ())]:
            raise ImportError(
                f"bbkb has a package {name!r}, and another one was imported before: "
                f"{getattr(sys.modules[name], '__file__', None)}; import bbkb first, or rename the other package"
            )


import_own_packages()


def main() -> None:
    """Run the `bbkb` command on this process's arguments, and exit with its exit code."""
    from orchestrator.cli.main import main as command  # here, so that a script's `import bbkb` stays quick

    command()


if __name__ == "__main__":
    main()
