"""The public names of the project: `import bbkb`, the `bbkb` command and `python -m bbkb`.

    from bbkb import Campaign, Optimizer, load, tune
    from bbkb.strategies import BBKB  # strategies with options
    from bbkb.settings import Workers  # sections of a campaign file
    from bbkb import strategy, adapters  # for strategies of your own; for Optuna and Ray Tune
    from bbkb.integrations.xgboost import TrialCallback  # also lightgbm, keras, lightning, huggingface

The names of this module, `bbkb.strategies`, `bbkb.settings`, `bbkb.strategy`, `bbkb.adapters` and
`bbkb.integrations` stay compatible between minor versions. Their defining packages may change in
any version.
"""

import atexit
import importlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bbkb import adapters, integrations, settings, strategies, strategy, types
    from bbkb.objectives.objective import EvaluationStopped, Machine, ObjectiveError
    from bbkb.objectives.parameters import Choice, Ordered, Range
    from bbkb.orchestrator import __version__
    from bbkb.orchestrator.api.campaign import Campaign, Submitted, tune
    from bbkb.orchestrator.api.result import Result, load
    from bbkb.orchestrator.ask_tell.candidates import CandidateOptimizer
    from bbkb.orchestrator.ask_tell.space import OpenTrial, Optimizer
    from bbkb.orchestrator.campaign.goals import Constraint, Objective
    from bbkb.orchestrator.campaign.results import TrialResult
    from bbkb.orchestrator.errors import (
        BbkbError,
        CampaignError,
        ConfigError,
        RunError,
        StoreError,
        UserError,
    )

__all__ = [
    "BbkbError", "Campaign", "CampaignError", "CandidateOptimizer", "Choice", "ConfigError",
    "Constraint", "EvaluationStopped", "Machine", "Objective", "ObjectiveError", "OpenTrial",
    "Optimizer", "Ordered", "Range", "Result", "RunError", "StoreError", "Submitted", "TrialResult",
    "UserError", "__version__", "adapters", "integrations", "load", "main", "settings",
    "strategies", "strategy", "tune", "types",
]  # fmt: skip

# module → its names, imported on first use, so that `CandidateOptimizer` needs only numpy and scipy
_NAMES = {
    "bbkb.orchestrator.campaign.goals": ("Constraint", "Objective"),
    "bbkb.objectives.objective": ("EvaluationStopped", "Machine", "ObjectiveError"),
    "bbkb.objectives.parameters": ("Choice", "Ordered", "Range"),
    "bbkb.orchestrator.api.campaign": ("Campaign", "Submitted", "tune"),
    "bbkb.orchestrator.api.result": ("Result", "load"),
    "bbkb.orchestrator.ask_tell.candidates": ("CandidateOptimizer",),
    "bbkb.orchestrator.ask_tell.space": ("OpenTrial", "Optimizer"),
    "bbkb.orchestrator.campaign.results": ("TrialResult",),
    "bbkb.orchestrator.errors": ("BbkbError", "CampaignError", "ConfigError", "RunError", "StoreError", "UserError"),
    "bbkb.orchestrator": ("__version__",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
_MODULES = ("adapters", "integrations", "settings", "strategies", "strategy", "types")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    attribute: object = getattr(importlib.import_module(_HOMES[name]), name)
    return attribute


def __dir__() -> list[str]:
    return list(__all__)


def main() -> None:
    """Run the `bbkb` command with this process's arguments, and exit with its exit code."""
    try:
        # imported here to keep a script's `import bbkb` fast
        from bbkb.orchestrator.cli.main import main as command

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
