"""The public names of the project: `import bbkb`, the `bbkb` command and `python -m bbkb`.

    from bbkb import Campaign, Optimizer, load, tune
    from bbkb.strategies import BBKB  # strategies with options
    from bbkb import strategy, adapters  # for strategies of your own; for Optuna and Ray Tune
    from bbkb.integrations.xgboost import TrialCallback  # also lightgbm, keras, lightning, huggingface

The names of this module, `bbkb.strategies`, `bbkb.strategy`, `bbkb.adapters` and
`bbkb.integrations` stay compatible between minor versions. Their defining packages may change in
any version.
"""

import atexit
import importlib
import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from objectives.goals import Constraint, Objective
    from objectives.machines import Machine
    from objectives.objective import EvaluationStopped, ObjectiveError
    from objectives.parameters import Choice, Ordered, Range
    from orchestrator.api import Campaign, Result, Submitted, load, tune
    from orchestrator.ask_tell.candidates import CandidateOptimizer
    from orchestrator.ask_tell.space import OpenTrial, Optimizer
    from orchestrator.campaign.trial_result import TrialResult
    from orchestrator.errors import (
        BbkbError,
        CampaignError,
        ConfigError,
        RunError,
        StoreError,
        UserError,
    )
    from orchestrator.public import adapters, integrations, strategies, strategy, types
    from orchestrator.version import __version__

__all__ = [
    "BbkbError", "Campaign", "CampaignError", "CandidateOptimizer", "Choice", "ConfigError",
    "Constraint", "EvaluationStopped", "Machine", "Objective", "ObjectiveError", "OpenTrial",
    "Optimizer", "Ordered", "Range", "Result", "RunError", "StoreError", "Submitted", "TrialResult",
    "UserError", "__version__", "adapters", "integrations", "load", "main", "strategies",
    "strategy", "tune", "types",
]  # fmt: skip

# module → its names, imported on first use, so that `CandidateOptimizer` needs only numpy and scipy
_NAMES = {
    "objectives.goals": ("Constraint", "Objective"),
    "objectives.machines": ("Machine",),
    "objectives.objective": ("EvaluationStopped", "ObjectiveError"),
    "objectives.parameters": ("Choice", "Ordered", "Range"),
    "orchestrator.api": ("Campaign", "Result", "Submitted", "load", "tune"),
    "orchestrator.ask_tell.candidates": ("CandidateOptimizer",),
    "orchestrator.ask_tell.space": ("OpenTrial", "Optimizer"),
    "orchestrator.campaign.trial_result": ("TrialResult",),
    "orchestrator.errors": ("BbkbError", "CampaignError", "ConfigError", "RunError", "StoreError", "UserError"),
    "orchestrator.version": ("__version__",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
_MODULES = ("adapters", "integrations", "strategies", "strategy", "types")
_FOLDER = Path(__file__).resolve().parent
# the folder in which `import bbkb.strategy` finds its module
__path__ = [str(_FOLDER / "orchestrator" / "public")]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    attribute: object = getattr(importlib.import_module(_HOMES[name]), name)
    return attribute


def __dir__() -> list[str]:
    return list(__all__)


def import_own_packages() -> None:
    """Import this project's packages from this file's folder, even if `sys.path` lists a user's
    folder with the same name first.

    Called when this module is imported, and by a Ray worker that starts in such a folder.

    Raises:
        ImportError: if another package with that name was imported before, or a package of this
            project is missing.
    """
    for name in ("objectives", "workers", "orchestrator"):
        if name not in sys.modules:
            spec = PathFinder.find_spec(name, [str(_FOLDER)])
            if spec is None or spec.loader is None:
                raise ImportError(f"bbkb is not installed completely: its package {name!r} is missing in {_FOLDER}")
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        elif _FOLDER / name not in [Path(path).resolve() for path in getattr(sys.modules[name], "__path__", ())]:
            raise ImportError(
                f"bbkb has a package {name!r}, and another one was imported before: "
                f"{getattr(sys.modules[name], '__file__', None)}; import bbkb first, or rename the other package"
            )


import_own_packages()


def main() -> None:
    """Run the `bbkb` command with this process's arguments, and exit with its exit code."""
    try:
        # imported here to keep a script's `import bbkb` fast
        from orchestrator.cli.main import main as command

        command()
    except KeyboardInterrupt:
        print("bbkb: interrupted", file=sys.stderr)
        sys.exit(130)


def _run_process() -> None:
    """Run the `bbkb` command as the only work of this process, and end the process with it."""
    codes: list[int] = []
    atexit.register(_end_process, codes)  # the first one that is registered is called last
    try:
        main()
    except SystemExit as ended:
        codes += [ended.code] if isinstance(ended.code, int) else []
        raise


def _end_process(codes: list[int]) -> None:
    """End the process with the code of the command, if there is one, before Python frees all modules.
    That takes up to two seconds after Ray, SciPy and Plotly were imported."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # None or a broken pipe, which Python reports
        return
    for code in codes:
        os._exit(code)


if __name__ == "__main__":
    _run_process()
