"""Values of a training before its end: reported ones and expected ones."""

from dataclasses import dataclass
from typing import NamedTuple

from bbkb.orchestrator.bandit.strategy import TrialForecast


class StepReport(NamedTuple):
    """A value that an attempt reported at a step of its training, on the user's scale."""

    trial: int
    attempt: int
    step: int
    value: float


class StepRewards(NamedTuple):
    """A report as rewards to maximize."""

    trial: int
    step: int
    reward: float  # of the first objective
    compared: float | None  # of the metric that is compared at rungs; None if it is not reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The model's forecast of the final value of an unfinished trial, on the user's scale."""

    trial: int
    mean: float  # the expected value
    # two standard deviations of the model's score below it (above it if values are minimized)
    low: float
    high: float  # two standard deviations of the score above it


def forecast_of(expected: TrialForecast, sign: float) -> Forecast:
    """Return a strategy's forecast on the user's scale."""
    mean, low, high = (sign * reward for reward in (expected.mean, expected.low, expected.high))
    return Forecast(trial=expected.trial, mean=mean, low=low, high=high)
