"""The kernel and noise of the model over steps, fitted to learning curves by maximum a posteriori
estimation.

With z the scores of all values of some trials and S = K_g + blockdiag(K_r) + v I (`curve_kernel`),
the fit minimizes over θ, the logarithms of all lengthscales and variances,

    L(θ) = ½ (z − m1)ᵀ S⁻¹ (z − m1) + ½ log det S + ½ m² + ½ Σ_j ((θ_j − θ₀_j)/τ_j)²

with m = 1ᵀS⁻¹z/(1ᵀS⁻¹1 + 1), its minimizer. With a = S⁻¹(z − m1), ∂L/∂θ = ½ Σ_{ab} (S⁻¹ − a
aᵀ)_{ab} ∂S_ab/∂θ plus the prior's term (Rasmussen and Williams 2006, eq. 5.9). A fit uses complete
trials with at most `MOST_VALUES` values in total, which limits its duration.
"""

import math
from dataclasses import dataclass

import numpy as np

from bbkb.orchestrator.bandit.arms import Layout, as_one_hot
from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.curves import CurveValues
from bbkb.orchestrator.bandit.kernels import AnyKernel
from bbkb.orchestrator.bandit.model.curve_kernel import log_times
from bbkb.orchestrator.bandit.model.curve_numbers import CurveNumbers
from bbkb.orchestrator.bandit.model.fitting import (
    LENGTHSCALES,
    SHAPES,
    inverse_and_half_log_determinant,
    lengthscale_gradient,
    minimize,
    shorten,
    squared_distances,
)

FIRST_TRIALS = 8  # the number of trials with a value at the first fit
TRIALS_GROWTH = 1.25  # the ratio between the numbers of trials at a fit and at the previous one
MOST_VALUES = 320
STEPS = 30
# logarithms of s_g, s_h, s_m, s_r, v and the lengthscales of k_t and k_q: medians, standard
# deviations, bounds
MEDIANS = np.array([0.0, -1.0, -1.0, -2.0, -5.0, -0.5, -1.0])
DEVIATIONS = np.array([1.0, 1.0, 1.0, 1.0, 1.5, 1.0, 1.0])
LOWEST = np.log(np.array([1e-2, 1e-3, 1e-3, 1e-3, 1e-3, 0.05, 0.05]))
LARGEST = np.log(np.array([20.0, 10.0, 10.0, 4.0, 1.0, 10.0, 10.0]))
_JITTER = 1e-8


def prior_numbers(first: float, last: float) -> CurveNumbers:
    """Return the prior's medians for curves over the steps `first` to `last`."""
    return _numbers(MEDIANS, first, last)


def is_fit_due(trials: int, known: int) -> bool:
    """Return whether a fit is due with this number of trials, given the number `known` at the last
    fit: at 8 trials, then after each growth by a quarter."""
    return trials >= max(FIRST_TRIALS, math.ceil(TRIALS_GROWTH * known))


def chosen_trials(last_scores: Floats, sizes: Indices) -> Indices:
    """Return the ascending positions (k,) of the trials to fit: the best quarter by their latest
    scores (n,), and others spread evenly by rank, with at most `MOST_VALUES` values in total.
    `sizes` (n,): the number of values of each trial."""
    if sizes.sum() <= MOST_VALUES:
        return np.arange(len(sizes))
    descending = np.argsort(-last_scores, kind="stable")
    count = max(FIRST_TRIALS, int(MOST_VALUES / sizes.mean()))
    while True:
        best = count // 4
        others = np.linspace(best, len(sizes) - 1, count - best).astype(np.intp)
        chosen = np.unique(descending[np.concatenate((np.arange(best), others))])
        if sizes[chosen].sum() <= MOST_VALUES or count <= FIRST_TRIALS:
            return chosen
        count = max(FIRST_TRIALS, int(count * 0.9))


@dataclass(frozen=True, eq=False)
class CurveFitInput:
    """The input of a fit."""

    features: Floats  # (n, d), the features of the trials' candidates
    values: CurveValues  # the trials' values
    scores: Floats  # (N,), the score of each value
    layout: Layout  # the layout of the candidates
    family: AnyKernel  # the kernel whose lengthscales are fitted


def fit_curves(
    given: CurveFitInput, start: tuple[tuple[float, ...], CurveNumbers], span: tuple[float, float]
) -> tuple[tuple[float, ...], CurveNumbers]:
    """Fit the model over steps, and return the lengthscales of the parameters and the other
    numbers.

    Args:
        given: the trials.
        start: the initial lengthscales and numbers of the search.
        span: the steps at t = 0 and t = 1.
    """
    objective = CurveObjective(given, span)
    lengthscales, numbers = start
    begin = np.concatenate((np.log(np.asarray(lengthscales) / given.layout.extents), _logarithms(numbers)))
    solution, _ = minimize(objective.loss, begin, (objective.lower, objective.upper), STEPS)
    count = given.layout.parameter_count
    scales = np.exp(solution[:count]) * given.layout.extents
    return tuple(shorten(scale) for scale in scales.tolist()), _numbers(solution[count:], *span)


def _logarithms(numbers: CurveNumbers) -> Floats:
    """Return the logarithms of the numbers, in the order of `MEDIANS` and of the fields."""
    logarithms: Floats = np.log(np.array(list(numbers.recorded().values())[: len(MEDIANS)]))
    return logarithms


def _numbers(logarithms: Floats, first: float, last: float) -> CurveNumbers:
    """Return the numbers with these `logarithms`, in the order of `MEDIANS`."""
    return CurveNumbers(*[*map(shorten, np.exp(logarithms).tolist()), first, last])


class CurveObjective:
    """L(θ) and its gradient. θ: log ℓ (p,) in units of the parameters' extents, then the seven
    numbers of `MEDIANS`."""

    def __init__(self, given: CurveFitInput, span: tuple[float, float]) -> None:
        values = given.values
        layout = given.layout
        self._scores = given.scores
        features, self._parameters = as_one_hot(given.features, layout.parameters)
        self._features = (features / layout.extents[self._parameters])[values.owners]
        self._shape = SHAPES[type(given.family)]
        times = log_times(values.steps, *span)
        self._apart = (times[:, None] - times) ** 2  # (t − t')²
        self._is_same = (values.owners[:, None] == values.owners).astype(np.float64)
        shares = 1.0 / values.weights[values.owners]
        self._noise_shares = shares
        self._own_shares = shares[:, None] * self._is_same
        count = layout.parameter_count
        typical = math.log(0.5 * math.sqrt(count))
        self._medians = np.concatenate((np.full(count, typical), MEDIANS))
        self._deviations = np.concatenate((np.ones(count), DEVIATIONS))
        scales = np.log(np.array(LENGTHSCALES))
        self.lower = np.concatenate((np.full(count, scales[0]), LOWEST))
        self.upper = np.concatenate((np.full(count, scales[1]), LARGEST))

    def loss(self, theta: Floats) -> tuple[float, Floats]:
        """Return L and ∂L/∂θ."""
        count = len(theta) - len(MEDIANS)
        lasting, bending, shared, own, noise, step_scale, own_scale = np.exp(theta[count:]).tolist()
        scaled = self._features / np.exp(theta[:count])[self._parameters]
        correlations, slopes = self._shape(squared_distances(scaled))
        over_steps = np.exp(-0.5 / step_scale**2 * self._apart)
        own_steps = np.exp(-0.5 / own_scale**2 * self._apart) * self._own_shares
        bent = over_steps * correlations
        own_part = 0.5 * (self._own_shares + own_steps)
        matrix = lasting * correlations + bending * bent + shared * over_steps + own * own_part
        inverse, half_log_determinant = inverse_and_half_log_determinant(matrix, noise * self._noise_shares + _JITTER)
        ones = inverse.sum(axis=1)
        solved = inverse @ self._scores
        mean = float(solved.sum()) / (float(ones.sum()) + 1.0)
        weights = solved - mean * ones
        loss = 0.5 * float((self._scores - mean) @ weights) + half_log_determinant + 0.5 * mean * mean
        sensitivity = inverse
        sensitivity -= np.multiply.outer(weights, weights)

        steps = (theta - self._medians) / self._deviations
        gradient = steps / self._deviations
        loss += 0.5 * float(steps @ steps)
        by_lengthscale = sensitivity * slopes * (lasting + bending * over_steps)
        gradient[:count] += lengthscale_gradient(by_lengthscale, scaled, self._parameters)
        step_slopes = (bending * bent + shared * over_steps) * self._apart / step_scale**2
        own_slopes = 0.5 * own * own_steps * self._apart / own_scale**2
        gradient[count:] += 0.5 * np.array(
            [
                lasting * np.vdot(sensitivity, correlations),
                bending * np.vdot(sensitivity, bent),
                shared * np.vdot(sensitivity, over_steps),
                own * np.vdot(sensitivity, own_part),
                noise * float(sensitivity.diagonal() @ self._noise_shares),
                np.vdot(sensitivity, step_slopes),
                np.vdot(sensitivity, own_slopes),
            ]
        )
        return loss, gradient
