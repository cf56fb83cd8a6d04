"""A Gaussian process over (configuration, step), exact: the reference for what a sparse one should
reach.

With x the features, t = log s/log S in [0, 1] of step s, and i the trial,

    k((x, t, i), (x', t', i')) = s_g k_x(x, x') + s_h k_x(x, x') k_t(t, t') + s_m k_t(t, t')
                                 + [i = i'] s_r (1/2 + 1/2 k_q(t, t')) + noise,

k_x a Matérn-5/2 kernel with one lengthscale a parameter, k_t and k_q squared exponentials with
fitted lengthscales. s_g: what lasts; s_h: how a configuration's curve bends; s_m: the curve that
all trials share; s_r: what is a trial's own. All are fitted by maximum a posteriori with log-normal
priors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import minimize

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

STEPS = 25  # of L-BFGS
_ROOT5 = math.sqrt(5.0)
# log-normal priors of s_g, s_h, s_m, s_r, the lengthscales of k_t and k_q, and the noise: means and
# deviations
_MEANS = np.array([0.0, -1.0, -1.0, -2.0, -0.5, -1.0, -5.0])
_DEVIATIONS = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.5])
_TERMS = ("g", "h", "m", "r")
_JITTER = 1e-6


@dataclass(frozen=True, eq=False)
class Observations:
    """Values of trials at steps, in the order of the trials.

    `features` (N, d) of the trials, `trial` (n,) ascending, `time` (n,) in [0, 1], `score` (n,).
    """

    features: Floats
    trial: Indices
    time: Floats
    score: Floats


@dataclass(frozen=True, eq=False)
class Dense:
    """The fitted numbers: `log_scales` (p,) of the parameters; `log_other` (7,), in the order of
    the priors."""

    log_scales: Floats
    log_other: Floats
    parameter_of: Indices
    terms: str = "ghmr"  # those of the kernel that exist, a subset of g, h, m, r

    @classmethod
    def prior(cls, parameter_of: Indices, terms: str = "ghmr") -> "Dense":
        """The medians of the priors."""
        count = int(parameter_of.max()) + 1
        return cls(np.full(count, math.log(0.5 * math.sqrt(count))), _MEANS.copy(), parameter_of, terms)

    def scaled(self, features: Floats) -> Floats:
        """Features (n, d) in units of their lengthscales."""
        return features / np.exp(self.log_scales)[self.parameter_of]

    @property
    def shares(self) -> Floats:
        """s_g, s_h, s_m, s_r, 0 for a term that does not exist."""
        exists = np.array([term in self.terms for term in _TERMS], np.float64)
        return np.exp(self.log_other[:4]) * exists

    def fit(self, observed: Observations, steps: int = STEPS) -> "Dense":
        """The maximum a posteriori estimate, started here."""
        count = len(self.log_scales)
        loss = _Loss(observed, self.parameter_of, self.terms)
        start = np.concatenate((self.log_scales, self.log_other))
        bounds = [(math.log(0.02), math.log(30.0))] * count
        bounds += [
            (mean - 4 * deviation, mean + 4 * deviation) for mean, deviation in zip(_MEANS, _DEVIATIONS, strict=True)
        ]
        solution = minimize(loss.value, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps}).x
        return Dense(solution[:count], solution[count:], self.parameter_of, self.terms)


def _matern(points: Floats, others: Floats) -> tuple[Floats, Floats]:
    """k_x (n, m) and −2 dk/d(r²)."""
    squared = np.sum(points**2, axis=1)[:, None] + np.sum(others**2, axis=1) - 2.0 * (points @ others.T)
    r = _ROOT5 * np.sqrt(np.maximum(squared, 0.0))
    decay = np.exp(-r)
    slope = (5.0 / 3.0) * (1.0 + r) * decay
    return (1.0 + r) * decay + (r * r / 3.0) * decay, slope


def _gaussian(times: Floats, others: Floats, lengthscale: float) -> Floats:
    """The squared exponential (n, m) of times (n,) and (m,); few of them differ."""
    distinct, place = np.unique(times, return_inverse=True)
    columns, column = np.unique(others, return_inverse=True)
    gaps: Floats = (distinct[:, None] - columns) / lengthscale
    table: Floats = np.exp(-0.5 * gaps * gaps)[:, column]
    return table if len(distinct) == 1 else table[place]


class _Loss:
    """Minus the log posterior density and its gradient."""

    def __init__(self, observed: Observations, parameter_of: Indices, terms: str) -> None:
        self._seen, self._parameter_of = observed, parameter_of
        self._exists = np.array([term in terms for term in _TERMS], np.float64)
        self._first = np.flatnonzero(np.diff(observed.trial, prepend=-1))  # of each trial that was seen
        self._place = np.cumsum(np.diff(observed.trial, prepend=-1) != 0) - 1
        self._features = observed.features[observed.trial[self._first]]
        self._same = (observed.trial[:, None] == observed.trial).astype(np.float64)
        self._gaps = (observed.time[:, None] - observed.time) ** 2
        self._typical = math.log(0.5 * math.sqrt(int(parameter_of.max()) + 1))

    def value(self, theta: Floats) -> tuple[float, Floats]:
        observed, place = self._seen, self._place
        scales, other_numbers = theta[: len(theta) - 7], theta[len(theta) - 7 :]
        g, h, m, r = np.exp(other_numbers[:4]) * self._exists
        over_t, over_q, noise = (
            math.exp(-2 * other_numbers[4]),
            math.exp(-2 * other_numbers[5]),
            math.exp(other_numbers[6]),
        )
        scaled = self._features / np.exp(scales)[self._parameter_of]
        kx, slope = _matern(scaled, scaled)
        spread_x = kx[np.ix_(place, place)]
        kt, kq = np.exp(-0.5 * over_t * self._gaps), np.exp(-0.5 * over_q * self._gaps)
        in_x = g + h * kt
        matrix = spread_x * in_x + m * kt + (0.5 * r) * self._same * (1.0 + kq)
        matrix.flat[:: len(matrix) + 1] += noise + _JITTER
        factor, failed = lapack.dpotrf(matrix, lower=1, clean=1)
        steps_x, steps_o = scales - self._typical, (other_numbers - _MEANS) / _DEVIATIONS
        if failed:
            return 1e10, np.zeros(len(theta))
        half = float(np.log(factor.diagonal()).sum())
        lower, _ = lapack.dpotri(factor, lower=1)
        inverse = np.tril(lower) + np.tril(lower, -1).T
        weights = inverse @ observed.score
        loss = 0.5 * float(observed.score @ weights) + half
        loss += 0.5 * float(steps_x @ steps_x) + 0.5 * float(steps_o @ steps_o)
        w = 0.5 * (inverse - np.multiply.outer(weights, weights))
        by_trial = self._summed(w * in_x)
        gradient = np.empty(len(theta))
        gradient[: len(scales)] = self._scale_gradient(by_trial * slope, scaled) + steps_x
        wx, wt, ws = w * spread_x, w * kt, w * self._same
        by_t = (h * spread_x + m) * wt
        gradient[len(scales) :] = steps_o / _DEVIATIONS + np.array(
            [
                g * wx.sum(),
                h * float(np.vdot(wx, kt)),
                m * wt.sum(),
                0.5 * r * (ws.sum() + float(np.vdot(ws, kq))),
                over_t * float(np.vdot(by_t, self._gaps)),
                0.5 * r * over_q * float(np.vdot(ws * kq, self._gaps)),
                noise * float(w.trace()),
            ]
        )
        return loss, gradient

    def _summed(self, matrix: Floats) -> Floats:
        rows = np.add.reduceat(matrix, self._first, axis=0)
        return np.add.reduceat(rows, self._first, axis=1)

    def _scale_gradient(self, weights: Floats, scaled: Floats) -> Floats:
        """Σ_ab W_ab D_j,ab/ℓ_j²: 2 (Σ_a w_a x_a² − xᵀWx) with w the row sums of W."""
        columns = 2.0 * (weights.sum(axis=1) @ (scaled * scaled) - np.einsum("ij,ij->j", scaled, weights @ scaled))
        gradient = np.zeros(int(self._parameter_of.max()) + 1)
        np.add.at(gradient, self._parameter_of, columns)
        return gradient


class Posterior:
    """What the model believes after `seen`, with the final values of the trials `pending` taken as
    known."""

    def __init__(self, model: Dense, observed: Observations, pending: Sequence[int] = ()) -> None:
        self._model, self._features = model, observed.features
        self._set(observed, pending)

    def _set(self, observed: Observations, pending: Sequence[int]) -> None:
        model = self._model
        self._shares, self._noise = model.shares, math.exp(model.log_other[6])
        self._scale_t, self._scale_q = math.exp(model.log_other[4]), math.exp(model.log_other[5])
        self._scaled = model.scaled(observed.features)
        self._trial, self._time = observed.trial, observed.time
        self._factorise(self._covariance(self._scaled[observed.trial], observed.time, observed.trial))
        self._whitened = solve_triangular(self._factor, observed.score, lower=True)
        if len(pending):
            arms = np.asarray(pending, np.intp)
            mean, _ = self.of_trials(arms)
            self._trial = np.concatenate((observed.trial, arms))
            self._time = np.concatenate((observed.time, np.ones(len(arms))))
            self._factorise(self._covariance(self._scaled[self._trial], self._time, self._trial))
            score = np.concatenate((observed.score, mean))
            self._whitened = solve_triangular(self._factor, score, lower=True)

    def _factorise(self, matrix: Floats) -> None:
        matrix.flat[:: len(matrix) + 1] += self._noise + _JITTER
        self._factor, failed = lapack.dpotrf(matrix, lower=1, clean=1)
        if failed:
            raise ValueError("the kernel matrix must be positive definite")

    def _covariance(self, scaled: Floats, time: Floats, trial: Indices | None) -> Floats:
        """Between points and the observations (n, m); `trial` (n,): None for configurations without
        one."""
        g, h, m, r = self._shares
        distinct, place = np.unique(self._trial, return_inverse=True)
        kx = _matern(scaled, self._scaled[distinct])[0][:, place]
        kt = _gaussian(time, self._time, self._scale_t)
        covariance: Floats = kx * (g + h * kt) + m * kt
        if trial is not None:
            kq = _gaussian(time, self._time, self._scale_q)
            covariance += (trial[:, None] == self._trial) * ((0.5 * r) * (1.0 + kq))
        return covariance

    def of_features(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation (n,) at the last step of configurations without a trial."""
        scaled = self._model.scaled(features)
        return self._moments(self._covariance(scaled, np.ones(len(scaled)), None), float(self._shares.sum()))

    def of_trials(self, trials: Indices, time: float = 1.0) -> tuple[Floats, Floats]:
        """Mean and standard deviation (n,) of trials at `time`, the last step unless another is
        given."""
        return self._moments(
            self._covariance(self._scaled[trials], np.full(len(trials), time), trials), float(self._shares.sum())
        )

    def _moments(self, covariance: Floats, prior: float) -> tuple[Floats, Floats]:
        white = solve_triangular(self._factor, covariance.T, lower=True)
        mean = white.T @ self._whitened
        variance = prior - np.einsum("ij,ij->j", white, white)
        return mean, np.sqrt(np.maximum(variance, 1e-12))
