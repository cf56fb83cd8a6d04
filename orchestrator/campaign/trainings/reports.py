"""Values of a training before its end: reported ones and expected ones."""

from dataclasses import dataclass
from typing import NamedTuple


class StepReport(NamedTuple):
    """A value that an attempt reported at a step of its training, on the user's scale."""

    trial: int
    attempt: int
    step: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The model's forecast of the final value of an unfinished trial, on the user's scale."""

    trial: int
    mean: float  # the expected value
    # two standard deviations of the model's score below it (above it if values are minimized)
    low: float
    high: float  # two standard deviations of the score above it
