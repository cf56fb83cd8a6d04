"""Scores: the transformed rewards to which the model is fitted.

Rewards have any scale: accuracies that differ by 0.01, losses near 3000, diverged runs at 1e30. A
Gaussian process with prior variance 1 and a fixed width fits none of these scales. Scores are
computed from the mean rewards of the *distinct* arms, and are recomputed with each new result. Each
arm counts once, however often it was pulled:

* `half_rank`: above the median, (y − median)/s, where s is the root mean square of the deviations
  above it, so that gaps between good arms are preserved; below the median, Φ⁻¹((rank − ½)/n), so
  that the values of bad arms have no influence.
* `rank`: Φ⁻¹((rank − ½)/n) for all arms; invariant under every increasing map of the rewards.
* `standardise`: (y − median)/MAD, clipped at ±3 normal standard deviations.
* `raw`: the rewards, as in the papers.

All except `raw` are then standardized to mean 0 and variance 1 over the n arms. They are invariant
to the scale and shift of the rewards: deviations from the median, in units of their spread, are
rounded to a multiple of 2⁻²⁰, which is far below the model's least noise and far above the rounding
errors of the rewards. So equal problems on different scales have the same scores, bit for bit, and
the same picks.

A single extreme value must not flatten the others: an arm whose deviation above the median is more
than `JUMP` times that of every other arm gets the score of the second-best arm, and is not
recommended. Two such arms confirm each other, so a search for rare high values is not hindered.
"""

from enum import StrEnum

import numpy as np
import scipy
from numpy.typing import NDArray

from bbkb.orchestrator.bandit.arrays import Floats, freeze
from bbkb.orchestrator.bandit.pulls import Pulls

RESOLUTION = 2.0**20
JUMP = 30.0
# the smallest number of arms above the median for which one can be an outlier
LEAST_ABOVE = 3
LARGEST = 1e15  # deviations, in units of their spread
LOWEST_SHARE = 1e-3  # of the ranks below the median: Φ⁻¹ of it is −3.1
WINSOR = 3.0  # normal standard deviations
MAD_TO_DEVIATION = 1.482602218505602  # of a normal distribution
_ROUNDING = 64 * float(np.finfo(np.float64).eps)


class Outputs(StrEnum):
    """The transformation of rewards to scores; see the module."""

    HALF_RANK = "half_rank"
    RANK = "rank"
    STANDARDIZE = "standardise"
    RAW = "raw"


def mean_rewards(pulls: Pulls) -> Floats:
    """Return the mean reward (p,) of each pulled arm, in the order of `pulls.arms`."""
    means: Floats = pulls.reward_sums[pulls.arms] / pulls.counts[pulls.arms]
    return means


LEAST_VARIANCE = 1e-3  # of a score's noise, the least that is fitted, so that rounding stays small
LARGEST_VARIANCE = 1e6


def score_variances(pulls: Pulls, outputs: Outputs) -> Floats | None:
    """Return the variance of the noise of each pulled arm's score (p,); None if no deviation is known.

    It follows from the scores' slope among the better arms.
    """
    if pulls.variances is None:
        return None
    slope = Scale(mean_rewards(pulls), outputs).slope
    with np.errstate(over="ignore"):
        variances = slope * slope * pulls.variances[pulls.arms]
    bounded: Floats = np.clip(np.nan_to_num(variances), LEAST_VARIANCE, LARGEST_VARIANCE)
    return bounded


def scores_of(means: Floats, outputs: Outputs) -> Floats:
    """Return the scores (p,) of arms with mean rewards `means` (p,), finite."""
    if outputs is Outputs.RAW or not len(means):
        return means
    if outputs is Outputs.RANK:
        return _standardize(scipy.special.ndtri((_ranks(means) - 0.5) / len(means)))
    median = float(np.median(means))
    deviations = means - median
    if outputs is Outputs.STANDARDIZE:
        middle = float(np.median(np.abs(deviations)))
        spread = MAD_TO_DEVIATION * middle if middle > _ROUNDING * abs(median) else float(np.abs(deviations).mean())
        return _standardize(np.clip(_round(deviations, spread, median), -WINSOR, WINSOR))
    return _half_rank(deviations, median)


def score_pulls(pulls: Pulls, outputs: Outputs) -> Pulls:
    """Return `pulls`, with each arm's sum of rewards replaced by its score times its count."""
    if outputs is Outputs.RAW:
        return pulls
    sums = np.zeros(len(pulls.counts))
    sums[pulls.arms] = scores_of(mean_rewards(pulls), outputs) * pulls.counts[pulls.arms]
    return Pulls.of(pulls.counts, freeze(sums))


def is_outlier(means: Floats) -> NDArray[np.bool_]:
    """Return a mask of the arm whose mean reward in `means` (p,) is implausibly far above all
    others, if there is one."""
    deviations = means - np.median(means)
    return deviations > _limit(np.sort(deviations[deviations >= 0]))


def _half_rank(deviations: Floats, median: float) -> Floats:
    limit = _limit(np.sort(deviations[deviations >= 0]))
    bounded = np.minimum(deviations, limit)
    above = bounded[bounded >= 0] / (limit if limit > 0 else 1.0)  # no square overflows
    spread = limit * float(np.sqrt(np.mean(above * above)))
    if spread <= _ROUNDING * abs(median):  # most arms are equally good
        spread = float(np.abs(bounded).mean())
    scores = _round(bounded, spread, median)
    is_below = scores < 0
    shares = np.clip((_ranks(scores)[is_below] - 0.5) / len(scores), LOWEST_SHARE, 0.5)
    scores[is_below] = scipy.special.ndtri(shares)
    return _standardize(scores)


def _limit(above: Floats) -> float:
    """Return the largest unclipped deviation, given the deviations `above` the median (n,)."""
    is_alone = len(above) > LEAST_ABOVE and above[-1] / JUMP > above[-2] > 0
    return float(above[-2] if is_alone else above[-1])


def _round(deviations: Floats, spread: float, median: float) -> Floats:
    """Return rounded deviations in units of `spread`; zeros if it is due only to rounding."""
    if spread <= _ROUNDING * abs(median):
        return np.zeros(len(deviations))
    bound = LARGEST * spread  # so that no quotient overflows
    rounded: Floats = np.rint(np.clip(deviations, -bound, bound) / spread * RESOLUTION) / RESOLUTION
    return rounded


def _ranks(values: Floats) -> Floats:
    """Return the ranks 1 … n (n,). Values equal up to rounding errors share their mean rank."""
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    tolerance = 4 * np.finfo(np.float64).eps * np.maximum(np.abs(ascending[1:]), np.abs(ascending[:-1]))
    group = np.concatenate(([0], np.cumsum(np.diff(ascending) > tolerance)))
    sizes = np.bincount(group)
    last = np.cumsum(sizes)
    ranks = np.empty(len(values))
    ranks[order] = (last - 0.5 * (sizes - 1.0))[group]
    return ranks


def _standardize(scores: Floats) -> Floats:
    centered: Floats = scores - scores.mean()
    spread = float(np.sqrt(np.mean(centered * centered)))
    if spread <= _ROUNDING:
        return np.zeros(len(scores))
    standardized: Floats = centered / spread
    return standardized


class Scale:
    """The map between rewards and scores, determined by the pulled arms. It is increasing and
    piecewise linear.

    Above the largest mean reward it continues with the slope between the best arms; below the
    smallest it is constant.
    """

    def __init__(self, means: Floats, outputs: Outputs) -> None:
        """`means` (p,), p ≥ 1: the mean reward of each pulled arm, or one reward of each trial."""
        scores = scores_of(means, outputs)
        order = np.argsort(means, kind="stable")
        self._means, first = np.unique(means[order], return_index=True)
        self._scores = scores[order][first]
        middle = len(self._means) // 2
        rise = float(self._means[-1] - self._means[middle])
        slope = float(self._scores[-1] - self._scores[middle]) / rise if rise > 0 else 0.0
        # Δscore/Δreward over the better half of the arms; 0 if rewards differ by less than 10⁻³⁰⁸
        self.slope = slope if np.isfinite(slope) else 0.0

    def scores(self, rewards: Floats) -> Floats:
        """Return the score of each of `rewards` (n,): (n,)."""
        inside: Floats = np.interp(rewards, self._means, self._scores)
        largest = self._means[-1]
        with np.errstate(over="ignore"):  # the difference of two huge rewards
            beyond: Floats = np.minimum(np.maximum(rewards, largest) - largest, np.finfo(np.float64).max)
        return inside + self.slope * beyond

    def rewards(self, scores: Floats) -> Floats:
        """Return the reward (n,) of each of `scores` (n,), or the nearest one if there is none."""
        knots, first = np.unique(self._scores, return_index=True)
        inside: Floats = np.interp(scores, knots, self._means[first])
        if self.slope <= 0.0:
            return inside
        beyond: Floats = np.maximum(scores - knots[-1], 0.0)
        return inside + beyond / self.slope
