"""What trials that have not finished will reach, and which stopped ones are worth continuing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.bandit.sparse.state import SparseState
from orchestrator.bandit.strategy import TrialForecast

FORECAST_WIDTH = 2.0  # standard deviations of the band


def forecasts(state: SparseState, trials: Sequence[int]) -> tuple[TrialForecast, ...]:
    """The forecasts of these trials, of those that have a curve; none before the model has steps."""
    predictions, evidence = state.predictions(trials), state.curve_evidence
    if predictions is None or evidence is None:
        return ()
    half = FORECAST_WIDTH * predictions.deviations
    bands = [evidence.scale.rewards(predictions.means + shift) for shift in (0.0, -half, half)]
    return tuple(
        TrialForecast(*numbers)
        for numbers in zip(
            predictions.trials.tolist(),
            *(band.tolist() for band in bands),
            predictions.means.tolist(),
            predictions.deviations.tolist(),
            strict=True,
        )
    )


@dataclass(frozen=True)
class PausedTrial:
    """A stopped trial that can be continued: its `trial` number, its `arm`, and the upper bound `bound` on its final
    score."""

    trial: int
    arm: int
    bound: float


class PausedTrials:
    """The stopped trials at a state, by their upper bounds on the final score, μ + w σ of the trial itself."""

    def __init__(self, state: SparseState, pending: Sequence[int], deviations: float) -> None:
        """`pending`: arms of running trials, which are not continued again; `deviations`: w."""
        predictions = state.predictions(state.paused.tolist()) if len(state.paused) else None
        self._own = 0.0
        self._left: list[PausedTrial] = []
        if predictions is None or state.calibration is None or state.calibration.fitted.curve is None:
            return
        self._own = state.calibration.fitted.curve.own
        running = {*pending, *state.set_aside.tolist()}
        spread = np.sqrt(np.maximum(predictions.deviations**2 - predictions.noise, 0.0))
        bounds = predictions.means + deviations * spread
        order = np.argsort(bounds, kind="stable")
        columns = (predictions.trials[order], predictions.arms[order], bounds[order])
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self._left = [PausedTrial(*row) for row in rows if row[1] not in running]
        self._deviations = deviations

    def take(self, mean: float, variance: float) -> PausedTrial | None:
        """The best of them, which is then not among them, if its bound exceeds that of a new trial; else None.

        `mean` and `variance` are those of the new trial's quality g, in scores; its own part is added to the variance.
        """
        if not self._left or self._left[-1].bound <= mean + self._deviations * math.sqrt(variance + self._own):
            return None
        return self._left.pop()
