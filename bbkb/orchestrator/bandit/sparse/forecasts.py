"""Forecasts of unfinished trials, and the stopped trials that are worth continuing."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bbkb.orchestrator.bandit.arrays import Indices
from bbkb.orchestrator.bandit.results import Turn
from bbkb.orchestrator.bandit.sparse.curve_fit import CurveEvidence, TrialPredictions, curve_kernel
from bbkb.orchestrator.bandit.sparse.state import SparseState
from bbkb.orchestrator.bandit.strategy import ALL_CHOSEN, Choose, Decision, Pick, TrialForecast, Wait

FORECAST_WIDTH = 2.0  # the half-width of the band, in standard deviations
# the variance of a final score due to the unseen part of all curves, per unit of t
UNSEEN_VARIANCE = 2.0


def forecasts(state: SparseState, trials: Sequence[int]) -> tuple[TrialForecast, ...]:
    """Return forecasts of the given trials that have a curve, if the model has steps."""
    evidence = state.curve_evidence
    if evidence is None:
        return ()
    # the variance that all forecasts share before any trial has reached the last step: curves, and results
    # without a curve, contain no information about later steps than the largest one that was reported
    values = evidence.values
    reported = values.steps[np.repeat(values.trials >= 0, values.sizes)]
    furthest = float(curve_kernel(state.model).times(reported).max(initial=0.0))
    unseen_variance = UNSEEN_VARIANCE * (1.0 - furthest)
    numbers = np.array(sorted(trials), np.intp)
    paused = state.curve_state.paused
    predictions = state.knowledge.predictions(np.setdiff1d(numbers, paused).tolist())
    parts = [(predictions, None), (state.paused_predictions, numbers)]
    return tuple(
        forecast
        for predictions, only in parts
        if predictions is not None
        for forecast in _of(predictions, evidence, only, unseen_variance)
    )


def _of(
    predictions: TrialPredictions, evidence: CurveEvidence, only: Indices | None, unseen_variance: float
) -> Iterator[TrialForecast]:
    """Yield the forecasts for the trials in `only`, derived from `predictions`.

    A training may not improve further, so a band also contains the latest value, and two deviations
    of the model below it. Otherwise, the bands of poor trials would be wrong too often: no poor
    trial is continued, so the model expects all trials to improve like the good ones.
    """
    deviations = np.sqrt(predictions.deviations**2 + unseen_variance)
    means = predictions.means
    half = FORECAST_WIDTH * deviations
    latest = evidence.scale.scores(predictions.latest)
    low = np.minimum(means - half, latest - FORECAST_WIDTH * predictions.deviations)
    value, low, high = (evidence.scale.rewards(scores) for scores in (means, low, means + half))
    low = np.minimum(low, predictions.latest)  # which may be below all values with a score
    columns = np.array([value, low, high, predictions.means, deviations])
    is_wanted = slice(None) if only is None else np.isin(predictions.trials, only)
    for trial, numbers in zip(predictions.trials[is_wanted].tolist(), columns[:, is_wanted].T.tolist(), strict=True):
        yield TrialForecast(trial, *numbers)


@dataclass(frozen=True)
class PausedCandidate:
    """A stopped trial that can be continued."""

    trial: int  # the trial's index
    arm: int  # the candidate that it trains
    bound: float  # the upper bound on the trial's final score


class PausedTrials:
    """The stopped trials of a state that have not diverged, ordered by upper bounds on their final
    scores, μ + w σ."""

    def __init__(self, state: SparseState, pending: Sequence[int], deviations: float) -> None:
        """`pending`: the arms of running trials, which are not continued again. `deviations`: w."""
        self._come_first = state.curve_state.compete == Turn.PAUSED_FIRST
        self._own = 0.0
        self._deviations = deviations
        self._left: Iterator[PausedCandidate] = iter(())
        self._best: PausedCandidate | None = None
        predictions = state.paused_predictions
        if predictions is None or state.calibration is None or state.calibration.fitted.curve is None:
            return
        self._own = state.calibration.fitted.curve.own
        spread = np.sqrt(np.maximum(predictions.deviations**2 - predictions.noise, 0.0))
        bounds = predictions.means + deviations * spread
        curves = state.knowledge.curves.by_trial.values()
        diverged = [curve.arm for curve in curves if curve.has_diverged]
        excluded = {*pending, *diverged, *state.set_aside.tolist()}
        self._left = (  # by descending bound; for equal bounds, the latest first
            PausedCandidate(int(predictions.trials[at]), int(predictions.arms[at]), float(bounds[at]))
            for at in np.argsort(bounds, kind="stable")[::-1].tolist()
            if int(predictions.arms[at]) not in excluded
        )
        self._best = next(self._left, None)

    def take(self, mean: float, variance: float) -> PausedCandidate | None:
        """Remove and return the best stopped trial if its bound exceeds that of a new trial, or if
        stopped trials come first; otherwise return None.

        `mean` and `variance` are the moments of the new trial's quality g, in scores. The variance
        of the trial effect is added to `variance`.
        """
        best = self._best
        new = mean + self._deviations * math.sqrt(variance + self._own)
        if best is None or (best.bound <= new and not self._come_first):
            return None
        self._best = next(self._left, None)
        return best

    def rest(self) -> Iterator[PausedCandidate]:
        """Yield the stopped trials that are left, by descending bound."""
        while (best := self._best) is not None:
            self._best = next(self._left, None)
            yield best


def competing_trials(state: SparseState, pending: Sequence[int], deviations: float) -> PausedTrials | None:
    """Return the paused trials that compete with new ones; None if there are none."""
    curves = state.curve_state
    is_open = len(curves.paused) and curves.compete != Turn.NEW_FIRST
    return PausedTrials(state, pending, deviations) if is_open else None


def without_new_arms(
    state: SparseState, pending: Sequence[int], limit: int, deviations: float
) -> Decision | None:  # fmt: skip
    """Return the choice if no arm may begin a new trial: the most promising stopped trials, at most `limit`,
    those without a prediction last; None if one may. Without stopped trials, there is nothing to choose."""
    if len(state.blocked_arms(pending)) < len(state.model.arms):
        return None
    ordered = [(each.trial, each.arm) for each in PausedTrials(state, pending, deviations).rest()]
    known = state.curve_state.known.by_trial
    excluded = {trial for trial, _ in ordered}
    for trial in state.curve_state.paused.tolist():
        curve = known.get(trial)
        if curve is not None and trial not in excluded and not curve.has_diverged:
            ordered.append((trial, curve.arm))
    taken = {*pending, *state.set_aside.tolist()}
    picks = [Pick(arm, trial=trial) for trial, arm in ordered if arm not in taken]
    if picks:
        return Choose(tuple(picks[:limit]), "limit" if len(picks) >= limit else "no further candidate is left")
    if not state.repeats:
        return Wait(ALL_CHOSEN)
    return Wait("every candidate that is left is being trained")
