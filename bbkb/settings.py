"""The sections of a campaign file, for the arguments of `tune` and `Campaign`.

    from bbkb import Budget, Workers, tune

    tune(f, space, budget=Budget(evaluations=100, hours=2), workers=Workers(count=8, gpus=1), …)

A mapping with the same keys does the same: `workers={"count": 8, "gpus": 1}`.
"""

from bbkb.orchestrator.campaign.settings import (
    Asha,
    Budget,
    CandidateSettings,
    Computing,
    Data,
    FromParameter,
    Log,
    Median,
    ModelStopping,
    Simulation,
    StopWhen,
    Workers,
)

__all__ = [
    "Asha",
    "Budget",
    "CandidateSettings",
    "Computing",
    "Data",
    "FromParameter",
    "Log",
    "Median",
    "ModelStopping",
    "Simulation",
    "StopWhen",
    "Workers",
]
