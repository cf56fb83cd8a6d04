"""Checks the calibrated model of a state against its predictions, refits it, and records and
restores it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.model.outputs import Scale, mean_rewards
from bbkb.orchestrator.bandit.sparse.calibrated import CHECKED_FROM, Belief, Calibration, check, with_fit
from bbkb.orchestrator.bandit.sparse.posterior import SparsePosterior
from bbkb.orchestrator.bandit.sparse.state import SparseState, sparse_belief
from bbkb.orchestrator.bandit.strategy import Observation, Record

S = TypeVar("S", bound=SparseState)


def calibrate(
    after: S,
    before: SparseState,
    observations: Sequence[Observation],
    model: Model | None,
    belief: Belief | None = None,
) -> S:
    """Return `after` with its calibrated `model` checked against its predictions, and fitted to all
    pulls if a fit is due.

    Args:
        after: the state with `observations`; returned unchanged if there is no model.
        before: the state without them.
        observations: the newly finished pulls, some of which `belief` predicted.
        model: the strategy's calibrated model, or None.
        belief: returns mean and variance of arms at `before`; None for those of the sparse
            posterior.
    """
    if model is None:
        return after
    if after.calibration is not None and before.pulls.total >= CHECKED_FROM:
        predicted = sparse_belief(before) if belief is None else belief
        curves = before.curve_evidence
        scale = Scale(mean_rewards(before.evidence), before.model.outputs) if curves is None else curves.scale
        final = (
            observations
            if curves is None and before.goals.is_single
            else [observation for observation in observations if not observation.is_stopped]
        )
        calibration = check(after.calibration, before.model.regularization, scale, predicted, final)
        after = replace(after, calibration=calibration)
    return refit(after, model)


def posterior_before(before: SparseState, after: SparseState) -> SparsePosterior:
    """Return the posterior whose variances determine a new dictionary. It is the posterior of
    `before`. If the kernel was refitted, it is computed from the same evidence with the kernel and
    the curves of `after`."""
    if after.model is before.model:
        return before.posterior
    curves = after.curve_state.known
    knowledge = replace(before.knowledge, model=after.model, calibration=after.calibration, curves=curves)
    return knowledge.posterior


def refit(state: S, model: Model) -> S:
    """Return `state` with the model fitted to its evidence, if a fit is due."""
    if state.calibration is None or state.layout is None:
        return state
    if state.knowledge.learns_curves and model.is_fitted:
        evidence = state.knowledge.make_curve_evidence()
        curves = state.knowledge.curves
        span = float(curves.first), float(curves.end)
        fitted = state.calibration.fitted
        if curves.learned is not curves and len(evidence.values.sizes) < fitted.curve_trials:
            # the fit is to values that are no longer learned
            fitted = replace(fitted, curve_trials=0)
        fitted = model.refit_curves(fitted, evidence, state.layout, span)
    else:
        fitted = model.refit(state.calibration.fitted, state.evidence, state.layout, state.model.arms)
    return _with_calibration(state, model, replace(state.calibration, fitted=fitted))


def calibration_record(state: SparseState) -> Record:
    """Return the record for `restore_calibration`, including the most often pulled arm; empty if
    there is no calibrated model."""
    if state.calibration is None:
        return {}
    arm = int(np.argmax(state.pulls.counts))
    most = {"most_pulled": [arm, int(state.pulls.counts[arm])], "pulls": state.pulls.total}
    return {"model": {**state.calibration.recorded(), **most}}


def restore_calibration(state: S, model: Model | None, record: Record) -> S:
    """Return `state` with the fitted values and the counts of predictions in `record`."""
    return state if model is None else _with_calibration(state, model, Calibration.from_record(record["model"]))


def _with_calibration(state: S, model: Model, calibration: Calibration) -> S:
    if state.layout is None:
        return state
    sparse = with_fit(state.model, model, calibration.fitted, state.layout)
    return replace(state, model=sparse, calibration=calibration)
