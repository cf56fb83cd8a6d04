"""Learning curves with several objectives or constraints.

Each output (an objective, or the margin of a constraint) that trials report at steps has a model
over steps of its own: the model of `curve_fit`, as if this output were the only objective. In the
posterior of all outputs, on which arms are chosen, an unfinished trial counts as one pull with the
expected final rewards of these models. Outputs that are known only at the end of a trial are missing
in this pull.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from bbkb.orchestrator.bandit.arms import Layout
from bbkb.orchestrator.bandit.arrays import read_only
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.model.outputs import Scale, mean_rewards
from bbkb.orchestrator.bandit.model.reliability import reliability
from bbkb.orchestrator.bandit.results import Turn
from bbkb.orchestrator.bandit.sparse.calibrated import Calibration, with_fit
from bbkb.orchestrator.bandit.sparse.curve_fit import fit_evidence, pair_variances
from bbkb.orchestrator.bandit.sparse.dictionary import draw_pairs
from bbkb.orchestrator.bandit.sparse.forecasts import (
    FORECAST_WIDTH,
    PausedCandidate,
    PausedTrials,
    forecasts_by,
)
from bbkb.orchestrator.bandit.sparse.knowledge import OutputFit, OutputFits
from bbkb.orchestrator.bandit.sparse.scalarization import Scalarizing, bounds_of
from bbkb.orchestrator.bandit.sparse.state import SparseState
from bbkb.orchestrator.bandit.strategy import Record, TrialForecast

S = TypeVar("S", bound=SparseState)
Moments = tuple[float, float]  # mean and standard deviation of a final score


def learn_outputs(state: S, model: Model | None, oversampling: float, limit: int) -> S:
    """Return `state` with a model over steps for each output whose curves have a value before the
    last step. `oversampling`, `limit`: of the dictionaries of pairs."""
    is_fitted = model is not None and model.is_fitted
    if model is None or not is_fitted or state.goals.is_single or state.calibration is None:
        return state
    fits = tuple(
        _learn(state, output, model, (oversampling, limit)) for output in range(1 + state.goals.further)
    )  # fmt: skip
    return _with_fits(state, fits) if any(fits) else state


def _learn(
    state: SparseState, output: int, model: Model, drawing: tuple[float, int]
) -> OutputFit | None:  # fmt: skip
    knowledge = state.knowledge
    curves = knowledge.curves_of(output)
    if not curves.is_informative or state.calibration is None or state.layout is None:
        return None
    fits = state.curve_state.output_fits
    known = fits[output] if fits else None
    if known is None:
        dictionary = read_only((), np.intp)
        known = OutputFit(state.model, Calibration(state.calibration.fitted), dictionary)
    evidence = knowledge.of_output(output, known).make_curve_evidence()
    span = float(curves.first), float(curves.end)
    fitted = model.refit_curves(known.calibration.fitted, evidence, state.layout, span)
    sparse = with_fit(known.model, model, fitted, state.layout)
    posterior = fit_evidence(sparse, evidence, known.dictionary)
    variances = pair_variances(posterior, evidence)
    dictionary = draw_pairs(evidence.values.numbers, variances, *drawing)
    return OutputFit(sparse, Calibration(fitted), dictionary)


def outputs_record(state: SparseState) -> Record:
    """Return the record that `restore_outputs` reads, and the reliability of steps: the least of all
    objectives. Empty without models over steps."""
    fits = state.curve_state.output_fits
    if not fits:
        return {}
    objectives = [
        {int(step): correlation for step, correlation in reliability(state.knowledge.curves_of(output))}
        for output, fit in enumerate(fits[: state.goals.objectives])
        if fit is not None
    ]
    return {
        "outputs": [None if fit is None else fit.recorded() for fit in fits],
        "reliability": [
            [step, min(steps.get(step, 1.0) for steps in objectives)]
            for step in next(iter(objectives), {})
        ],
    }  # fmt: skip


def restore_outputs(state: S, model: Model | None, record: Record) -> S:
    """Return `state` with the models over steps in `record`; those before if it has none."""
    layout = state.layout
    if model is None or layout is None or "outputs" not in record:
        return state
    fits = tuple(_restored(state, model, layout, one) for one in record["outputs"])
    return _with_fits(state, fits)


def _with_fits(state: S, fits: OutputFits) -> S:
    return replace(state, curve_state=replace(state.curve_state, output_fits=fits))


def _restored(
    state: SparseState, model: Model, layout: Layout, record: Record | None
) -> OutputFit | None:  # fmt: skip
    if record is None:
        return None
    calibration = Calibration.from_record(record["model"])
    sparse = with_fit(state.model, model, calibration.fitted, layout)
    return OutputFit(sparse, calibration, read_only(record["dictionary"], np.intp))


def goal_forecasts(state: SparseState, trials: Sequence[int]) -> tuple[TrialForecast, ...]:
    """Return the forecasts of the given trials, whose first objective has a model over steps."""
    if not state.knowledge.outputs or state.knowledge.outputs[0] is None:
        return ()
    outputs = [
        {one.trial: one for one in (forecasts_by(knowledge, trials) if knowledge else ())}
        for knowledge in state.knowledge.outputs
    ]
    curves = state.curve_state.known.by_trial
    forecasts = []
    for trial, first in outputs[0].items():
        further = [
            (known[trial].mean, known[trial].low, known[trial].high)
            if trial in known
            else _band(state, output, curves[trial].arm)
            for output, known in enumerate(outputs[1:], start=1)
        ]
        forecasts.append(replace(first, further=tuple(further)))
    return tuple(forecasts)


def _band(state: SparseState, output: int, arm: int) -> tuple[float, float, float]:
    """Return the mean, low and high reward of an output that the trial has not reported, by the
    posterior of all outputs."""
    pulls = state.evidence.outputs[output]
    if not len(pulls.arms):
        return 0.0, -math.inf, math.inf
    mean, deviation = _moments(state, output, arm)
    half = FORECAST_WIDTH * math.hypot(deviation, math.sqrt(state.model.regularization))
    scores = mean + half * np.array([0.0, -1.0, 1.0])
    middle, low, high = Scale(mean_rewards(pulls), state.model.outputs).rewards(scores).tolist()
    return middle, low, high


def _moments(state: SparseState, output: int, arm: int) -> Moments:
    """Return the mean and deviation of the quality of `arm`, in scores of the output.

    The variance is that without the pull of the unfinished trial, in which the output is missing:
    with v the variance of an arm with n pulls, on the 1/λ scale, it is 1/(1/v − n).
    """
    arms = np.array([arm], np.intp)
    _, (variance,), rows = state.posterior.moments(arms)
    fit = state.posterior.fit
    mean = float(np.vecdot(rows, fit.loadings[output])[0]) + float(fit.offsets[output])
    evidence = state.evidence
    own = evidence.counts[arm] - evidence.outputs[output].counts[arm]
    variance /= max(1e-3, 1.0 - own * variance)
    return mean, math.sqrt(state.model.regularization * variance)


class PausedGoals:
    """The stopped trials of a state with several objectives or constraints that can be continued."""

    def __init__(self, state: SparseState, pending: Sequence[int], deviations: float) -> None:
        """`pending`: the arms of running trials. `deviations`: the width of upper bounds."""
        self._come_first = state.curve_state.compete == Turn.PAUSED_FIRST
        curves = state.curve_state.known.by_trial
        excluded = {*pending, *state.set_aside.tolist()}
        self._left = [
            curve
            for trial in state.curve_state.paused.tolist()
            if (curve := curves.get(trial)) is not None and curve.arm not in excluded and not curve.has_diverged
        ]
        moments = [
            _final_moments(state, output, [curve.trial for curve in self._left])
            for output in range(1 + state.goals.further)
        ]
        offsets = state.posterior.fit.offsets
        self._upper = np.array(
            [
                [mean - offsets[output] + width * deviation for mean, deviation in moments[output]]
                for output, width in bounds_of(state.goals, deviations)
            ]
        )

    def take(self, scalarizing: Scalarizing, least: float) -> PausedCandidate | None:
        """Remove and return the stopped trial with the largest score if it exceeds `least`, the
        score of a new trial, or if stopped trials come first; otherwise return None."""
        if not self._left:
            return None
        scores = scalarizing.scores(self._upper)
        at = int(np.argmax(scores))
        if scores[at] <= least and not self._come_first:
            return None
        curve = self._left.pop(at)
        self._upper = np.delete(self._upper, at, axis=1)
        return PausedCandidate(curve.trial, curve.arm, float(scores[at]))


def competing_trials(
    state: SparseState, pending: Sequence[int], deviations: float
) -> PausedTrials | PausedGoals | None:
    """Return the paused trials that compete with new ones; None if there are none."""
    curves = state.curve_state
    if not len(curves.paused) or curves.compete == Turn.NEW_FIRST:
        return None
    paused = PausedTrials if state.goals.is_single else PausedGoals
    return paused(state, pending, deviations)


def _final_moments(state: SparseState, output: int, trials: Sequence[int]) -> list[Moments]:
    """Return the mean and deviation of the quality that each trial reaches at its end, in scores of
    the posterior of all outputs. A trial's own effect and noise are left out, as for a new trial."""
    known = _by_curves(state, output, trials)
    arms = state.curve_state.known.by_trial
    return [known.get(trial) or _moments(state, output, arms[trial].arm) for trial in trials]


def _by_curves(state: SparseState, output: int, trials: Sequence[int]) -> Mapping[int, Moments]:
    knowledge = state.knowledge.outputs[output] if state.knowledge.outputs else None
    predictions = None if knowledge is None else knowledge.predictions(trials)
    if knowledge is None or predictions is None or knowledge.curve_evidence is None:
        return {}
    curve = knowledge.calibration and knowledge.calibration.fitted.curve
    own = curve.own if curve else 0.0
    spread = np.sqrt(np.maximum(predictions.deviations**2 - predictions.noise - own, 0.0))
    rewards = knowledge.curve_evidence.scale.rewards
    scale = Scale(mean_rewards(state.evidence.outputs[output]), state.model.outputs)
    means = scale.scores(rewards(predictions.means))
    upper = scale.scores(rewards(predictions.means + spread))
    columns = (predictions.trials.tolist(), means.tolist(), (upper - means).tolist())
    return {trial: (mean, spread) for trial, mean, spread in zip(*columns, strict=True)}
