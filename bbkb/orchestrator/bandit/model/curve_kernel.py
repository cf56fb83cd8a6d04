"""The covariance of a training's values, over configurations x and logarithmic steps t in [0, 1].

A trial i of configuration x has this score at step t:

    y_i(t) = m + g(x, t) + r_i(t) + ε

    cov(g(x, t), g(x', t'))  = (s_g + s_h k_t(t, t')) k_x(x, x') + s_m k_t(t, t')     `CurveKernel`
    cov(r_i(t), r_i(t'))     = s_r (½ + ½ k_q(t, t')), independent between trials     `own_covariance`
    var ε                    = v

s_g: the variance of the part of a configuration's quality that is constant over steps. s_h: the
variance of the shape of its curve. s_m: the variance of the curve that all trials share. s_r: the
variance of the trial effect r_i (due to the seed, and to effects that the kernel cannot explain).
k_x is a stationary kernel of variance 1, k_t and k_q are squared exponentials. t = log(s / first) /
log(last / first).

A candidate without a step represents its value at the last step, t = 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.kernels import AnyKernel


@dataclass(frozen=True)
class CurveNumbers:
    """The fitted numbers of the model over steps, besides the lengthscales of the parameters."""

    # s_g, the variance of the part of a configuration's quality that does not change with the step
    lasting: float
    bending: float  # s_h, the variance of the part that changes with the step
    shared: float  # s_m, the variance of the curve that all trials share
    own: float  # s_r, the variance of the trial effect
    noise: float  # v, the variance of a single value
    step_lengthscale: float  # lengthscale of k_t, in units of t
    own_lengthscale: float  # lengthscale of k_q, in units of t
    first: float  # the step at t = 0
    last: float  # the step at t = 1

    @property
    def end_noise(self) -> float:
        """λ: the variance of a final value, given g."""
        return self.own + self.noise

    def recorded(self) -> dict[str, float]:
        """Return the numbers as plain values for JSON."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @staticmethod
    def from_record(record: Mapping[str, float]) -> "CurveNumbers":
        """Return the numbers that `recorded` wrote."""
        return CurveNumbers(**{one.name: float(record[one.name]) for one in fields(CurveNumbers)})


def log_times(steps: Floats, first: float, last: float) -> Floats:
    """Return t of `steps` (n,): 0 at `first`, 1 from `last` on."""
    times: Floats = np.minimum(np.log(steps / first) / math.log(last / first), 1.0)
    return times


def step_correlations(times: Floats, others: Floats, lengthscale: float) -> Floats:
    """Return exp(−½ ((t − t')/lengthscale)²) for `times` (…, n, 1) and `others` (…, 1, p)."""
    scaled = (times - others) / lengthscale
    correlations: Floats = np.exp(-0.5 * (scaled * scaled))
    return correlations


@dataclass(frozen=True)
class CurveKernel:
    """cov(g(x, t), g(x', t')), see the module.

    A row of d features is a candidate at the last step. With d + 1 features, the last one is the
    step.
    """

    base: AnyKernel  # k_x, a stationary kernel of variance 1
    numbers: CurveNumbers  # the fitted numbers
    dimension: int  # d, the number of features of a candidate

    @cached_property
    def at_end(self) -> float:
        """cov(g(x, 1), g(x, 1)), the prior variance of a candidate's quality."""
        return self.numbers.lasting + self.numbers.bending + self.numbers.shared

    def cross(self, X: Floats, Y: Floats) -> Floats:
        """Return the covariances of all rows of X (n, d or d + 1) and Y (p, d or d + 1): (n, p)."""
        correlations = self.base.cross(X[:, : self.dimension], Y[:, : self.dimension])
        numbers = self.numbers
        rows = self._times(X)
        columns = self._times(Y)
        steps = step_correlations(rows[:, None], columns, numbers.step_lengthscale)
        correlations *= numbers.lasting + numbers.bending * steps
        correlations += numbers.shared * steps
        return correlations

    def diagonal(self, X: Floats) -> Floats:
        """Return the variance of each row of X (n, d or d + 1): (n,)."""
        return np.full(len(X), self.at_end)

    def times(self, steps: Floats) -> Floats:
        """Return t of `steps` (n,), at most 1."""
        return log_times(steps, self.numbers.first, self.numbers.last)

    def within_trial(self, times: Floats, others: Floats) -> Floats:
        """Return cov(g) of one configuration, at `times` (…, n, 1) and `others` (…, 1, p)."""
        numbers = self.numbers
        steps = step_correlations(times, others, numbers.step_lengthscale)
        covariances: Floats = numbers.lasting + (numbers.bending + numbers.shared) * steps
        return covariances

    def _times(self, X: Floats) -> Floats:
        """Return t of each row (n,), or (1,) if all rows are at the last step."""
        return np.ones(1) if X.shape[1] == self.dimension else self.times(X[:, self.dimension])


def own_covariance(numbers: CurveNumbers, times: Floats, others: Floats) -> Floats:
    """Return cov(r_i(t), r_i(t')) for one trial, at `times` (…, n, 1) and `others` (…, 1, p)."""
    correlations = step_correlations(times, others, numbers.own_lengthscale)
    covariances: Floats = numbers.own * 0.5 * (1.0 + correlations)
    return covariances
