"""Scores of values at any step on one scale, for the dense model."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
from scipy.special import ndtri

from orchestrator.bandit.model.outputs import Outputs, scores_of

Values = Mapping[int, float]  # values of a trial by step


class Scores(StrEnum):
    """`reference`: half-rank scores with the latest value of each trial as reference. `nested`: the
    quantile q among the trials at a step becomes 1 − s (1 − q), s the share of trials that reached
    the step, then Φ⁻¹."""

    REFERENCE = "reference"
    NESTED = "nested"


def score_curves(curves: Sequence[Values], kind: Scores) -> list[dict[int, float]]:
    """The scores of all values of the trials `curves`, by step."""
    return _by_reference(curves) if kind is Scores.REFERENCE else _by_nested_ranks(curves)


def _by_reference(curves: Sequence[Values]) -> list[dict[int, float]]:
    latest = np.array([values[max(values)] for values in curves if values])
    if not len(latest):
        return [{} for _ in curves]
    scores = scores_of(latest, Outputs.HALF_RANK)
    order = np.argsort(latest, kind="stable")
    knots, first = np.unique(latest[order], return_index=True)
    heights = scores[order][first]
    middle = len(knots) // 2
    rise = float(knots[-1] - knots[middle])
    slope = float(heights[-1] - heights[middle]) / rise if rise > 0 else 0.0
    slope = slope if np.isfinite(slope) else 0.0

    values = np.array([value for by_step in curves for value in by_step.values()])
    scored = np.interp(values, knots, heights) + slope * np.maximum(0.0, values - knots[-1])
    flat = iter(scored.tolist())
    return [{step: next(flat) for step in by_step} for by_step in curves]


def _by_nested_ranks(curves: Sequence[Values]) -> list[dict[int, float]]:
    steps = sorted({step for values in curves for step in values})
    begun, scored = sum(bool(values) for values in curves), [dict[int, float]() for _ in curves]
    reached = {step: sum(bool(values) and max(values) >= step for values in curves) for step in steps}
    for step in steps:
        trials = [number for number, values in enumerate(curves) if step in values]
        values = np.array([curves[number][step] for number in trials])
        quantiles = (np.searchsorted(np.sort(values), values, side="right") - 0.5) / len(values)
        scores = ndtri(1.0 - reached[step] / begun * (1.0 - quantiles)).tolist()
        for number, score in zip(trials, scores, strict=True):
            scored[number][step] = score
    return scored
