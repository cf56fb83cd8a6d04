"""The kernel and the noise, fitted to scores: the maximum a posteriori estimate of lengthscales and
noise variance.

With n_i pulls of the i-th of p distinct arms, t_i its score, K the stationary kernel with one
lengthscale per parameter and k(x, x) = 1, S = K + diag(v/n_i) and a constant mean m ~ N(0, 1), the
fit minimizes over θ = (log ℓ, log v)

    L(θ) = ½ (t − m1)ᵀ S⁻¹ (t − m1) + ½ log det S + ½ m² + Σ_j ½ (log ℓ_j − log ℓ₀)² + ½ ((log v −
    log v₀)/τ)²

with m = 1ᵀS⁻¹t/(1ᵀS⁻¹1 + 1), its minimizer, whose derivative therefore has no effect. Several
objectives and constraints share the kernel and the noise. The terms in t are summed over them, with
a separate mean for each. With a = S⁻¹(t − m1),

    ∂L/∂log ℓ_j = ½ Σ_{ab} (S⁻¹ − a aᵀ)_{ab} g(r_ab) D_j,ab/ℓ_j² + (log ℓ_j − log ℓ₀)

where D_j is the squared distance in the features of parameter j and g the kernel's slope, −2
dk/d(r²) (Rasmussen and Williams 2006, eq. 5.9). Lengthscales are in units of the parameters'
extents.

With several outputs, L often has several minima: an effect that is equal at both ends of a
parameter, where most results may be, looks like noise. The search for the minimum therefore starts
at the last fit and at the prior's medians. With a single parameter it also starts at short
lengthscales: a function with many local optima looks like noise on longer ones.

The kernel and noise of the model over steps, fitted to learning curves by maximum a posteriori
estimation.

With z the scores of all values of some trials and S = K_g + blockdiag(K_r) + v I (`curve_kernel`),
the fit minimizes over θ, the logarithms of all lengthscales and variances,

    L(θ) = ½ (z − m1)ᵀ S⁻¹ (z − m1) + ½ log det S + ½ m² + ½ Σ_j ((θ_j − θ₀_j)/τ_j)²

with m = 1ᵀS⁻¹z/(1ᵀS⁻¹1 + 1), its minimizer. With a = S⁻¹(z − m1), ∂L/∂θ = ½ Σ_{ab} (S⁻¹ − a
aᵀ)_{ab} ∂S_ab/∂θ plus the prior's term (Rasmussen and Williams 2006, eq. 5.9). A fit uses complete
trials with at most `MOST_VALUES` values in total, which limits its duration.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from bbkb.orchestrator.bandit.arms import Layout, as_one_hot
from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.curves import CurveValues
from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel, Matern32, Matern52
from bbkb.orchestrator.bandit.model.curve_kernel import CurveKernel, CurveNumbers, log_times
from bbkb.orchestrator.bandit.model.outputs import LEAST_VARIANCE, Outputs, scores_of

FIRST_FIT = 16  # the number of results at the first fit
EARLY_FIT = 8  # the same if arms do not repeat, for a short start
GROWTH = 1.3  # the ratio between the numbers of results at a fit and at the previous one
MOST_ARMS = 400  # the largest number of distinct arms in a fit, which limits its duration
STEPS = 25
LENGTHSCALES = (0.02, 30.0)
NOISES = (LEAST_VARIANCE, 1.0)
PRIOR_NOISE = 0.05  # median of v
PRIOR_NOISE_DEVIATION = 1.5  # standard deviation of the logarithm of v
SHORT = 0.2  # see `short_start`
SHORT_NOISE = 0.005
# L may rise by this number if a parameter's effect is omitted; see `_without_invisible_effects`
INVISIBLE = 1.0
NEAREST = 32  # the number of arms around the best one in a local fit
# see `keep_close_values`
CLOSE_LENGTHSCALE = 0.05
CLOSE_DISTANCE = 0.02
CLOSE_NOISE = 0.1
_JITTER = 1e-8  # for near-duplicates of a frequently pulled arm
# the number of digits of fitted numbers; further digits differ between machines
_DIGITS = 6


@dataclass(frozen=True)
class Fitted:
    """The fitted numbers of the calibrated model."""

    lengthscales: tuple[float, ...]  # one per parameter, in units of its features
    # v, the variance of a score; if learning curves are modeled, the variance of a final value
    # given its configuration's quality
    noise: float
    # the number of results in the fit; 0 before any fit, when the values are the prior's
    results: int
    # the numbers of the model over steps; None if learning curves are not modeled
    curve: CurveNumbers | None = None
    curve_trials: int = 0  # the number of trials in the last fit over steps; 0 before the first one

    def kernel(self, family: AnyKernel, layout: Layout) -> AnyKernel | CurveKernel:
        """Return the kernel of the given family with these lengthscales, one per feature, and
        variance 1. It includes steps if learning curves are modeled."""
        scales = np.asarray(self.lengthscales)[layout.parameters]
        base = type(family)(lengthscale=tuple(scales.tolist()))
        return base if self.curve is None else CurveKernel(base, self.curve, len(scales))


def prior(layout: Layout, noise: float | None) -> Fitted:
    """Return the prior's medians: lengthscales of ½√p in units of the parameters' extents, and the
    `noise` unless it is given."""
    typical = 0.5 * math.sqrt(layout.parameter_count)
    lengthscales = tuple(shorten(typical * extent) for extent in layout.extents.tolist())
    return Fitted(lengthscales, PRIOR_NOISE if noise is None else noise, 0)


def short_start(layout: Layout, noise: float | None) -> Fitted:
    """Return a start of the fit for a function with many local optima, which a fit that starts at the
    prior's medians may mistake for noise: a fifth of their lengthscales, and little noise."""
    start = prior(layout, SHORT_NOISE if noise is None else noise)
    return replace(start, lengthscales=tuple(shorten(SHORT * scale) for scale in start.lengthscales))


def is_due(results: int, last: Fitted, first: int = FIRST_FIT) -> bool:
    """Return whether a fit is due: at `first` results, then after each growth by 30 %."""
    return results >= max(first, GROWTH * last.results)


def keep_close_values(fitted: Fitted, last: Fitted, layout: Layout) -> Fitted:
    """Return `fitted` with the lengthscales and the noise of `last` wherever they are close.

    A new kernel invalidates all results computed with the old one, and hundreds of results
    determine a lengthscale only to about 5 %. Lengthscales are kept if each is within 5 % or
    changes no distance between arms by more than 0.02, and the noise if it is within 10 %. `last`
    is always a fit that was adopted, so small changes do not accumulate.
    """
    if not last.results:
        return fitted
    new = np.asarray(fitted.lengthscales)
    old = np.asarray(last.lengthscales)
    is_close = (np.abs(np.log(new / old)) <= CLOSE_LENGTHSCALE) | (
        layout.extents * np.abs(1.0 / new - 1.0 / old) <= CLOSE_DISTANCE
    )
    is_quiet = abs(math.log(fitted.noise / last.noise)) <= CLOSE_NOISE
    lengthscales = last.lengthscales if is_close.all() else fitted.lengthscales
    return Fitted(lengthscales, last.noise if is_quiet else fitted.noise, fitted.results)


@dataclass(frozen=True, eq=False)
class Evidence:
    """The input of a fit."""

    features: Floats  # (p, d), the features of distinct arms
    scores: Floats  # (p,), the arms' mean scores; (J, p) with further objectives or constraints
    counts: Indices | Floats  # (p,), the number of pulls of each arm, or its weight if deviations are known
    results: int  # the number of all pulls


def chosen_for_fit(scores: Floats) -> Indices:
    """Return the ascending positions (m,) of at most `MOST_ARMS` of the arms with `scores` (p,): a
    quarter of them are the best arms, and the others are spread evenly by rank."""
    if len(scores) <= MOST_ARMS:
        return np.arange(len(scores))
    descending = np.argsort(-scores, kind="stable")
    best = MOST_ARMS // 4
    rest_evenly = np.linspace(best, len(scores) - 1, MOST_ARMS - best).astype(np.intp)
    return np.sort(descending[np.concatenate((np.arange(best), rest_evenly))])


Loss = Callable[[Floats], tuple[float, Floats]]  # numbers (n,) → the value and its gradient (n,)


def minimize(loss: Loss, start: Floats, bounds: tuple[Floats, Floats], steps: int) -> tuple[Floats, float]:
    """Return the numbers (n,) that L-BFGS-B finds from `start` (n,) in at most `steps` steps, and
    their value."""
    # imported here: it takes a fifth of a session's start, and the first fit happens during
    # evaluations
    from scipy import optimize

    pairs = list(zip(*bounds, strict=True))
    options = {"maxiter": steps}
    start = np.clip(start, *bounds)
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=pairs, options=options)
    return found.x, float(found.fun)


def fit(
    evidence: Evidence, layout: Layout, family: AnyKernel, starts: Sequence[Fitted], noise: float | None
) -> Fitted:  # fmt: skip
    """Return the best of the fits that start at each of `starts`.

    With several outputs and at least `FIRST_FIT` results, parameters whose effect is not visible get
    the longest lengthscale. `noise`: v if it is known, not fitted.
    """
    objective = _Objective(evidence, layout, family, noise)
    optima = []
    for start in starts:
        at = np.log(np.asarray(start.lengthscales) / layout.extents)
        if objective.fits_noise:
            at = np.append(at, math.log(start.noise))
        optima.append(minimize(objective.loss, at, (objective.lower, objective.upper), STEPS))
    # rounded, so that rounding errors do not choose between equal optima
    optimum, _ = min(optima, key=lambda optimum_and_loss: round(optimum_and_loss[1], 1))
    if len(np.atleast_2d(evidence.scores)) > 1 and evidence.results >= FIRST_FIT:
        optimum = _without_invisible_effects(objective, optimum)
    lengthscales = np.exp(optimum[: layout.parameter_count]) * layout.extents
    fitted = math.exp(float(optimum[-1])) if noise is None else noise
    return Fitted(tuple(shorten(scale) for scale in lengthscales.tolist()), shorten(fitted), evidence.results)


def _without_invisible_effects(objective: "_Objective", optimum: Floats) -> Floats:
    """Return `optimum` with the longest lengthscale for each parameter without which the scores are
    about as likely.

    Otherwise picks go to the ends of such parameters, since the uncertainty is slightly larger
    there. An effect that is equal at both ends then stays invisible.
    """
    theta = optimum
    misfit = objective.misfit(theta)
    for parameter in np.argsort(-theta[: objective.count], kind="stable"):
        tried = theta.copy()
        tried[parameter] = objective.upper[parameter]
        misfit_without = objective.misfit(tried)
        if misfit_without <= misfit + INVISIBLE:
            theta = tried
            misfit = misfit_without
    return theta


def local_noise(features: Floats, rewards: Floats, layout: Layout, family: AnyKernel) -> float:
    """Return the noise variance of a fit to only the `NEAREST` arms around the best one, relative
    to the scale of their scores.

    In a converged search, the distances between most arms are far below the shortest lengthscale,
    and a fit to all arms mistakes the differences between their scores for noise. On the scale of
    the nearest arms, a noise-free function is smooth again. `features` (p, d) and `rewards` (p,)
    are those of distinct arms, p ≥ 2.
    """
    compared, parameters = as_one_hot(features, layout.parameters)
    at = compared / layout.extents[parameters]
    squared = np.sum((at - at[np.argmax(rewards)]) ** 2, axis=1)
    near = np.argsort(squared, kind="stable")[:NEAREST]
    spans = np.zeros(layout.parameter_count)
    np.maximum.at(spans, parameters, np.ptp(compared[near], axis=0))
    local = replace(layout, extents=np.where(spans > 0, spans, layout.extents))
    scores = scores_of(rewards[near], Outputs.STANDARDIZE)
    evidence = Evidence(features[near], scores, np.ones(len(near), np.intp), len(near))
    return fit(evidence, local, family, [prior(local, None)], None).noise


def known_noise(variances: Floats) -> float:
    """Return the typical one of the known variances of scores (p,), in the range of fitted ones."""
    return shorten(float(np.clip(np.median(variances), *NOISES)))


def shorten(number: float) -> float:
    """Return `number` with six digits; further digits differ between machines."""
    return float(f"{number:.{_DIGITS}g}")


class _Objective:
    """L(θ) and its gradient. θ: log ℓ (p,) in extents, and log v unless `noise` is known."""

    def __init__(self, evidence: Evidence, layout: Layout, family: AnyKernel, noise: float | None) -> None:
        self._scores = np.atleast_2d(evidence.scores)
        self._noise = noise
        features, self._parameters = as_one_hot(evidence.features, layout.parameters)
        self._shares = 1.0 / evidence.counts
        self._features = features / layout.extents[self._parameters]
        self._shape = SHAPES[type(family)]
        self.count = layout.parameter_count
        self.typical = math.log(0.5 * math.sqrt(self.count))
        self.fits_noise = noise is None
        bounds = [LENGTHSCALES] * self.count + [NOISES] * self.fits_noise
        self.lower, self.upper = np.log(np.array(bounds)).T

    def loss(self, theta: Floats) -> tuple[float, Floats]:
        """Return L and ∂L/∂θ."""
        count = self.count
        noise = math.exp(theta[-1]) if self._noise is None else self._noise
        scaled = self._features / np.exp(theta[:count])[self._parameters]
        correlations, slopes = self._shape(squared_distances(scaled))
        inverse, half_log_determinant = inverse_and_half_log_determinant(correlations, noise * self._shares + _JITTER)
        ones = inverse.sum(axis=1)
        loss = 0.0
        sensitivity = float(len(self._scores)) * inverse
        for scores in self._scores:
            solved = inverse @ scores
            mean = float(solved.sum()) / (float(ones.sum()) + 1.0)
            weights = solved - mean * ones
            loss += 0.5 * float((scores - mean) @ weights) + half_log_determinant + 0.5 * mean * mean
            sensitivity -= np.multiply.outer(weights, weights)
        steps = theta[:count] - self.typical
        gradient = np.empty(len(theta))
        gradient[:count] = lengthscale_gradient(sensitivity * slopes, scaled, self._parameters) + steps
        loss += 0.5 * float(steps @ steps)
        if self._noise is None:
            step = (theta[-1] - math.log(PRIOR_NOISE)) / PRIOR_NOISE_DEVIATION
            gradient[-1] = 0.5 * noise * float(sensitivity.diagonal() @ self._shares) + step / PRIOR_NOISE_DEVIATION
            loss += 0.5 * step * step
        return loss, gradient

    def misfit(self, theta: Floats) -> float:
        """Return L without the prior of the lengthscales."""
        steps = theta[: self.count] - self.typical
        return self.loss(theta)[0] - 0.5 * float(steps @ steps)


def lengthscale_gradient(weights: Floats, scaled: Floats, parameters: Indices) -> Floats:
    """Return ½ Σ_ab W_ab D_j,ab/ℓ_j² (p,): Σ_ab W_ab (x_a − x_b)² = 2 (Σ_a w_a x_a² − xᵀWx) with w
    the row sums of W.

    `weights` (n, n) is W, `scaled` (n, d) are features in units of lengthscales, `parameters` (d,):
    see `Layout`.
    """
    columns = weights.sum(axis=1) @ (scaled * scaled) - np.einsum("ij,ij->j", scaled, weights @ scaled)
    gradient = np.zeros(int(parameters.max()) + 1)
    np.add.at(gradient, parameters, columns)
    return gradient


def squared_distances(points: Floats) -> Floats:
    """Return squared distances (n, n) of `points` (n, d), 0 on the diagonal."""
    squares = np.einsum("ij,ij->i", points, points)
    distances: Floats = squares[:, None] + squares - 2.0 * (points @ points.T)
    np.maximum(distances, 0.0, out=distances)
    distances.flat[:: len(distances) + 1] = 0.0
    return distances


def inverse_and_half_log_determinant(matrix: Floats, diagonal: Floats) -> tuple[Floats, float]:
    """Return (M + diag(d))⁻¹ and half the logarithm of its determinant; `matrix` is overwritten."""
    matrix.flat[:: len(matrix) + 1] += diagonal
    factor, failed = scipy.linalg.lapack.dpotrf(matrix, lower=1, clean=1)
    if failed:
        raise ValueError("the kernel matrix of a fit must be positive definite; look for very large features")
    half_log_determinant = float(np.log(factor.diagonal()).sum())
    lower, _ = scipy.linalg.lapack.dpotri(factor, lower=1)
    inverse = np.tril(lower)
    inverse += np.tril(lower, -1).T
    return inverse, half_log_determinant


def _rbf(squared: Floats) -> tuple[Floats, Floats]:
    correlations = np.exp(-0.5 * squared)
    return correlations.copy(), correlations


def _matern32(squared: Floats) -> tuple[Floats, Floats]:
    r = np.sqrt(3.0 * squared)
    decay = np.exp(-r)
    return (1.0 + r) * decay, 3.0 * decay


def _matern52(squared: Floats) -> tuple[Floats, Floats]:
    r = np.sqrt(5.0 * squared)
    decay = np.exp(-r)
    linear = (1.0 + r) * decay
    return linear + (r * r / 3.0) * decay, (5.0 / 3.0) * linear


# k and −2 dk/d(r²) as functions of r²
SHAPES: dict[type[AnyKernel], Callable[[Floats], tuple[Floats, Floats]]] = {
    RBF: _rbf,
    Matern32: _matern32,
    Matern52: _matern52,
}


FIRST_TRIALS = 8  # the number of trials with a value at the first fit
TRIALS_GROWTH = 1.25  # the ratio between the numbers of trials at a fit and at the previous one
MOST_VALUES = 320
CURVE_STEPS = 30
# logarithms of s_g, s_h, s_m, s_r, v and the lengthscales of k_t and k_q: medians, standard
# deviations, bounds
MEDIANS = np.array([0.0, -1.0, -1.0, -2.0, -5.0, -0.5, -1.0])
DEVIATIONS = np.array([1.0, 1.0, 1.0, 1.0, 1.5, 1.0, 1.0])
LOWEST = np.log(np.array([1e-2, 1e-3, 1e-3, 1e-3, 1e-3, 0.05, 0.05]))
LARGEST = np.log(np.array([20.0, 10.0, 10.0, 4.0, 1.0, 10.0, 10.0]))
_CURVE_JITTER = 1e-8


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
    fitted = list(numbers.recorded().values())[: len(MEDIANS)]  # in the order of `MEDIANS`
    begin = np.log(np.concatenate((np.asarray(lengthscales) / given.layout.extents, fitted)))
    solution, _ = minimize(objective.loss, begin, (objective.lower, objective.upper), CURVE_STEPS)
    count = given.layout.parameter_count
    scales = np.exp(solution[:count]) * given.layout.extents
    return tuple(shorten(scale) for scale in scales.tolist()), _numbers(solution[count:], *span)


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
        inverse, half_log_determinant = inverse_and_half_log_determinant(
            matrix, noise * self._noise_shares + _CURVE_JITTER
        )
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
