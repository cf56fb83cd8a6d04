"""The public names of the project: `import bbkb`, the `bbkb` command and `python -m bbkb`.

    from bbkb import Campaign, Optimizer, load, tune

Everything that is imported from here is kept stable between minor versions; the packages below are free to change.
"""

import importlib
from typing import TYPE_CHECKING

from orchestrator.optimizer import Optimizer
from orchestrator.version import __version__

if TYPE_CHECKING:
    from orchestrator.api import Campaign, Result, load, tune

__all__ = ["Campaign", "Optimizer", "Result", "__version__", "load", "main", "tune"]

_CAMPAIGNS = ("Campaign", "Result", "load", "tune")  # imported when they are first used: `Optimizer` needs numpy only


def __getattr__(name: str) -> object:
    if name not in _CAMPAIGNS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module("orchestrator.api"), name)
    return found


def main() -> None:
    """Run the `bbkb` command on this process's arguments, and exit with its exit code."""
    from orchestrator.cli.main import main as command  # here, so that a script's `import bbkb` stays quick

    command()


if __name__ == "__main__":
    main()
