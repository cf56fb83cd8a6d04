"""Values of a training before its end: reported ones and expected ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bbkb.orchestrator.campaign.goals import CampaignGoals


class StepReport(NamedTuple):
    """A value that an attempt reported at a step of its training, on the user's scale."""

    trial: int
    attempt: int
    step: int
    value: float


class StepRewards(NamedTuple):
    """The rewards of a report: of each objective, then the margins of the constraints; None for a
    metric that is not reported."""

    trial: int
    step: int
    rewards: tuple[float | None, ...]

    @property
    def first(self) -> float:
        """The reward of the first objective, which each report has."""
        return math.nan if self.rewards[0] is None else self.rewards[0]


class Band(NamedTuple):
    """A forecast of a further objective's final value, or of a constraint's final margin."""

    mean: float
    low: float  # two standard deviations worse; infinite if nothing is known
    high: float  # two standard deviations better; likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The model's forecast of the final value of an unfinished trial, on the user's scale."""

    trial: int
    mean: float  # the expected value
    # two standard deviations of the model's score below it (above it if values are minimized)
    low: float
    high: float  # two standard deviations of the score above it
    # of the further objectives, on the user's scale, then of the constraints' margins
    further: tuple[Band, ...] = ()


def forecast_of(trial: int, bands: Sequence[Sequence[float]], goals: CampaignGoals) -> Forecast:
    """Return the forecast of `trial` on the user's scale. `bands`: mean, low and high reward of each
    objective, then of the margins of the constraints."""
    signs = [*(goal.sign for goal in goals.objectives), *(1.0 for _ in goals.constraints)]
    pairs = zip(signs, bands, strict=True)
    first, *further = [Band(*(sign * one for one in band)) for sign, band in pairs]
    mean, low, high = first
    return Forecast(trial=trial, mean=mean, low=low, high=high, further=tuple(further))
