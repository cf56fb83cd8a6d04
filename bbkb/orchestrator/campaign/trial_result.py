"""`TrialResult`: one trial as a value for users' code, in campaigns and in ask and tell."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bbkb.orchestrator.campaign.goals import CampaignGoals


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """One trial with its result.

    Args:
        trial: its index; None for a result that was known before the campaign.
        parameters: the configuration.
        value: the result, on the user's scale; None if the trial failed. For a recommended
            configuration with several evaluations, it is their mean.
        status: queued, running, succeeded, stopped or failed; existing if the result was known
            before the campaign.
        metrics: the numbers that the objective returned beside its value; with several objectives,
            the values of all of them.
        seconds: the duration of its last finished attempt; None before the first one has finished.
        error: the cause of its failure; empty if a later attempt succeeded.
        is_feasible: whether the result satisfies all constraints; None if there are no constraints
            or there is no result.
        estimate: the model's estimate of the noise-free value; None if the values are not noisy or
            the model is unknown.
        deviation: the standard deviation of `estimate`; None if there is no estimate.
        evaluations: the number of evaluations whose mean is `value`.
    """

    trial: int | None
    parameters: Mapping[str, Any]
    value: float | None
    status: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    error: str = ""
    is_feasible: bool | None = None
    estimate: float | None = None
    deviation: float | None = None
    evaluations: int = 1


Trials: TypeAlias = tuple[TrialResult, ...]


def metrics_with_first(goals: CampaignGoals, value: float | None, metrics: Mapping[str, float]) -> Mapping[str, float]:
    """Return the metrics of a `TrialResult`: with several goals, they begin with the first objective."""
    if value is None or goals.is_single:
        return metrics
    return {goals.objectives[0].metric: value, **metrics}
