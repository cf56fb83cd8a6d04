"""Estimates from learning curves alone how reliably the value at a step predicts the final value.

A link is the correlation ρ between the values at a step and those at twice this step. It is the
rank correlation r among the trials that reached both steps, corrected for selection, because mostly
good trials continue. The value at a step is that of the last report until then. If trials report
rarely, two steps with the same last report have the link 1. With normal scores, and with u the
ratio between their standard deviation among all trials and among the trials that continued,

    ρ = r u / √(1 + r² (u² − 1))        (Thorndike 1949, case 2).

With the variance 1/u² before a link, the trials that continued have the variance ρ²/u² + 1 − ρ²
after it. Fisher's z of ρ is averaged with that of a typical link, which has the weight of
`TYPICAL_TRIALS` trials. A typical link is `TYPICAL_LINK` averaged with the earlier links. The
correlation between the values at a step and at the end is the product of the links between them, as
if each value depended only on the previous one.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.curves import Curves
from bbkb.orchestrator.bandit.model.outputs import Outputs, scores_of
from bbkb.orchestrator.bandit.results import TrialCurve

TYPICAL_LINK = 0.95
TYPICAL_TRIALS = 8
_LEAST_TRIALS = 4  # for a rank correlation
_LARGEST = 0.99  # the largest correlation, whose z must be finite
_LARGEST_RATIO = 4.0  # the largest u


def reliability_and_cautious(curves: Curves) -> tuple[list[list[float]], list[list[float]]]:
    """Return pairs [step, correlation with the final value] for …, ¼, ½ and 1 of the last step, and
    cautious ones: one standard error of z is subtracted from each link, which is 1/√n for the weight of
    n trials."""
    steps, links = _links(curves)
    return _correlations(steps, links, 0.0), _correlations(steps, links, 1.0)


@dataclass(frozen=True, slots=True)
class _Pooled:
    """Fisher's z of a correlation, estimated from a number of trials."""

    z: float = 0.0
    trials: int = 0

    def averaged(self, other: "_Pooled") -> "_Pooled":
        """Return the average with `other`, weighted by trials; one of both must have some."""
        trials = self.trials + other.trials
        return _Pooled((self.trials * self.z + other.trials * other.z) / trials, trials)


_SAME_VALUE = _Pooled(math.inf, 1)  # the link between two steps with the same last report


def _links(curves: Curves) -> tuple[list[int], list[_Pooled]]:
    """Return the steps …, ¼, ½ and 1 of the last step, and the links between neighbors."""
    steps = [curves.end]
    while steps[-1] > max(2, curves.first):
        steps.append(math.ceil(curves.end / 2 ** len(steps)))
    steps.reverse()
    # the steps of all reports if a trial skips an octave; otherwise none: curves lack later reports of an octave,
    # so that any step may have been reported
    lengths = ([step.bit_length() for step in curve.steps] for curve in curves.trials)
    is_rare = any(later - length >= 2 for curve in lengths for length, later in pairwise(curve))
    reported = sorted({step for curve in curves.trials for step in curve.steps}) if is_rare else []
    links = []
    variance = 1.0  # of the values at a step among the trials that reached it
    typical = _Pooled(math.atanh(TYPICAL_LINK), TYPICAL_TRIALS)
    for step, later in pairwise(_last_report(reported, step) for step in steps):
        if step == later:
            links.append(_SAME_VALUE)
            continue
        found, variance = _link(curves.trials, step, later, variance)
        pooled = found.averaged(replace(typical, trials=TYPICAL_TRIALS))
        typical = found.averaged(typical)
        link = _positive(pooled.z)
        variance = link**2 * variance + 1.0 - link**2
        links.append(pooled)
    return steps, links


def _correlations(steps: Sequence[int], links: Sequence[_Pooled], deviations: float) -> list[list[float]]:
    likely = [_positive(link.z - deviations / math.sqrt(link.trials)) for link in links]
    correlations = [math.prod(likely[at:]) for at in range(len(steps))]
    return [[step, round(correlation, 3)] for step, correlation in zip(steps, correlations, strict=True)]


def _last_report(reported: Sequence[int], step: int) -> int:
    """Return the last one of the `reported` steps up to `step`, or the first one; `step` itself if
    none is larger, so that trials may still report it."""
    at = bisect_right(reported, step)
    return reported[max(0, at - 1)] if at < len(reported) else step


def _link(trials: Sequence[TrialCurve], step: int, later: int, variance: float) -> tuple[_Pooled, float]:
    """Return the correlation between the values at `step` and `later`, and the variance of the
    values at `step` among the trials that reached `later`.

    Args:
        trials: all curves.
        step: a step.
        later: a later step.
        variance: that of the values at `step` among the trials that reached it; 1 among all trials.
    """
    reached = [curve for curve in trials if _has_reached(curve, step)]
    continued = [_has_reached(curve, later) for curve in reached]
    count = sum(continued)
    if count < _LEAST_TRIALS:
        return _Pooled(), variance
    scores = _normal_scores([_value_at(curve, step) for curve in reached])
    before = scores[np.array(continued)]
    after = _normal_scores([_value_at(curve, later) for curve in compress(reached, continued)])
    variance *= float(before.var()) or 1.0
    correlation = float(np.mean(_normal_scores(before) * after))
    ratio = min(_LARGEST_RATIO, 1.0 / math.sqrt(variance))  # u
    found = correlation * ratio / math.sqrt(1.0 + correlation**2 * (ratio**2 - 1.0))  # ρ
    return _Pooled(math.atanh(min(_LARGEST, max(-_LARGEST, found))), count - _LEAST_TRIALS + 1), variance


def _positive(z: float) -> float:
    """Return the correlation with Fisher's `z`, at least 0."""
    return max(0.0, math.tanh(z))


def _has_reached(curve: TrialCurve, step: int) -> bool:
    return curve.is_finished or curve.step >= step


def _value_at(curve: TrialCurve, step: int) -> float:
    """Return the latest reward up to `step`, or the first one."""
    return curve.rewards[max(0, bisect_right(curve.steps, step) - 1)]


def _normal_scores(values: Sequence[float] | Floats) -> Floats:
    """Return the normal quantiles (n,) of the ranks of `values` (n,), with mean 0 and variance 1,
    or all 0 if the values are equal."""
    return scores_of(np.asarray(values, np.float64), Outputs.RANK)
