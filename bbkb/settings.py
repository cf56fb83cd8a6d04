"""The sections of a campaign file, for the arguments of `tune` and `Campaign`.

    from bbkb import tune
    from bbkb.settings import Budget, Workers

    tune(f, space, evaluations=100, workers=Workers(count=8, gpus=1), …)
    tune(f, space, settings={"budget": Budget(evaluations=100, target=0.9)}, …)

A mapping with the same keys does the same: `workers={"count": 8, "gpus": 1}`.
"""

from bbkb.orchestrator.campaign.settings import (
    Asha,
    Budget,
    CandidateSettings,
    Data,
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
    "Data",
    "Median",
    "ModelStopping",
    "Simulation",
    "StopWhen",
    "Workers",
]
