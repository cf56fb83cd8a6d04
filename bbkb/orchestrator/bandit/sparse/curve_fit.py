"""The sparse posterior of the model over steps (`model.curve_kernel`), fitted to learning curves.

The values of one trial share the trial effect r_i, so their noise is correlated: R_i = cov(r_i) + v
I. With the block-diagonal matrix W of λ R_i⁻¹, λ = s_r + v, everything in `posterior` holds if Σ
n_p z zᵀ is replaced by Z W Zᵀ, and the sums of scores by W times the scores. A finished trial with
a single value at the last step counts as one pull. Atoms are pairs (trial, step), so the cost is
O(N m²) for N values and m atoms.

The final value of a trial follows from g and the trial effect. With the scores y_i of its values
and c = cov(r_i(1), r_i(T_i)),

    E[y_i(1)]   = μ(x, 1) + c R_i⁻¹ (y_i − μ(x, T_i))
    var[y_i(1)] = w G wᵀ + s_r − c R_i⁻¹ cᵀ + v,     w = (1, −c R_i⁻¹),
                  G the posterior covariance of g at 1 and T_i
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.curves import CurveValues, is_pair, trials_and_steps
from bbkb.orchestrator.bandit.model.curve_kernel import CurveKernel, own_covariance
from bbkb.orchestrator.bandit.model.outputs import Scale
from bbkb.orchestrator.bandit.results import TrialCurve
from bbkb.orchestrator.bandit.sparse.all_arms import Fit, Points
from bbkb.orchestrator.bandit.sparse.posterior import (
    SparseModel,
    SparsePosterior,
    defect_of,
    pivoted_cholesky,
    solve_lower,
    whitening,
)


@dataclass(frozen=True, eq=False)
class CurveEvidence:
    """The values to which a model over steps is fitted, and their scale."""

    values: CurveValues  # the values of all trials
    features: Floats  # (n, d), the features of each trial's candidate
    # the map from rewards to scores, computed from the latest value of each trial. With a scale for
    # each step, a mediocre trial that survived would look worse than a stopped one, because only
    # good trials reach late steps.
    scale: Scale

    @cached_property
    def scores(self) -> Floats:
        """The score of each value (N,)."""
        return self.scale.scores(self.values.rewards)

    @cached_property
    def points(self) -> Floats:
        """The features of each value (N, d + 1): the features of its candidate and the step."""
        return np.column_stack((self.features[self.values.owners], self.values.steps))

    def atoms(self, dictionary: Indices, model: SparseModel, last: float) -> Points:
        """Return the pairs and arms in `dictionary` (m,) with their features (m, d + 1). Arms get
        the step `last`. Pairs of trials whose values are not learned are omitted; if no atom is
        left, all values are atoms."""
        trials, _ = trials_and_steps(dictionary)
        is_known = np.isin(trials, self.values.trials) | ~is_pair(dictionary)
        dictionary = dictionary[is_known] if is_known.any() else self.values.numbers
        pairs = is_pair(dictionary)
        features = np.empty((len(dictionary), self.points.shape[1]))
        trials, steps = trials_and_steps(dictionary[pairs])
        at = np.searchsorted(self.values.trials[self.values.trials >= 0], trials)
        features[pairs] = np.column_stack((self.features[at], steps))
        arms = model.arms[dictionary[~pairs]]
        features[~pairs] = np.column_stack((arms, np.full(len(arms), last)))
        return Points(dictionary, features)


@dataclass(frozen=True, eq=False)
class _Group:
    """Trials with the same number of values."""

    trials: Indices  # (g,), the trials' positions
    values: Indices  # (g, k), the positions of the trials' values
    times: Floats  # (g, k), t of these values
    roots: Floats  # (g, k, k), C with CᵀC = R_i⁻¹


class TrialNoise:
    """The noise covariances R_i of all trials, in groups of trials with equally many values."""

    def __init__(self, kernel: CurveKernel, values: CurveValues) -> None:
        self._numbers = kernel.numbers
        self._times = kernel.times(values.steps)
        self._values = values

    @cached_property
    def groups(self) -> list[_Group]:
        """All trials."""
        return list(self.groups_of(np.arange(len(self._values.sizes))))

    def groups_of(self, trials: Indices) -> Iterator[_Group]:
        """Yield the groups of only the trials at these positions (k,)."""
        numbers = self._numbers
        values = self._values
        starts = np.cumsum(values.sizes) - values.sizes
        for size in np.unique(values.sizes[trials]).tolist():
            members = trials[values.sizes[trials] == size]
            positions = starts[members][:, None] + np.arange(size)
            times = self._times[positions]
            covariance = own_covariance(numbers, times[:, :, None], times[:, None, :])
            covariance += numbers.noise * np.eye(size)
            covariance /= values.weights[members][:, None, None]
            yield _Group(members, positions, times, np.linalg.inv(np.linalg.cholesky(covariance)))

    def whiten(self, matrix: Floats) -> Floats:
        """Multiply the rows of each trial in `matrix` (N, c) by √λ C_i: (N, c)."""
        whitened = np.empty_like(matrix)
        for group in self.groups:
            whitened[group.values] = group.roots @ matrix[group.values]
        whitened *= np.sqrt(self._numbers.end_noise)
        return whitened

    def weigh(self, matrix: Floats) -> Floats:
        """Multiply the rows of each trial in `matrix` M (N, c) by λ R_i⁻¹: W M (N, c)."""
        weighed = np.empty_like(matrix)
        for group in self.groups:
            weighed[group.values] = np.swapaxes(group.roots, 1, 2) @ (group.roots @ matrix[group.values])
        weighed *= self._numbers.end_noise
        return weighed


def curve_kernel(model: SparseModel) -> CurveKernel:
    """Return the model's kernel. Raises TypeError if it is not a kernel over steps."""
    if not isinstance(model.kernel, CurveKernel):
        raise TypeError("learning curves need a kernel over steps")
    return model.kernel


def fit_evidence(model: SparseModel, evidence: CurveEvidence, dictionary: Indices) -> SparsePosterior:
    """Return the posterior of `model`, with a `CurveKernel`, and the atoms `dictionary` (m,)."""
    kernel = curve_kernel(model)
    inducing = evidence.atoms(dictionary, model, kernel.numbers.last)
    gram = kernel.cross(inducing.features, inducing.features)
    kept, factor = pivoted_cholesky(gram)
    basis = Points(inducing.arms[kept], inducing.features[kept])
    noise = TrialNoise(kernel, evidence.values)
    rows = kernel.cross(evidence.points, basis.features)  # (N, r)
    whitened = noise.whiten(solve_lower(factor, rows.T).T)
    spectrum, transform = whitening(factor, whitened.T @ whitened, model.regularization)
    transform = np.ascontiguousarray(transform)
    weighed = noise.weigh(np.column_stack((evidence.scores, np.ones(len(rows)))))
    loadings = transform @ (rows.T @ weighed[:, 0])
    ones = transform @ (rows.T @ weighed[:, 1])
    explained = float(weighed[:, 0].sum()) - float(ones @ loadings)
    offset = explained / (float(weighed[:, 1].sum()) - float(ones @ ones) + model.regularization)
    fit = Fit(
        basis=basis,
        transform=transform,
        spectrum=spectrum,
        regularization=model.regularization,
        loadings=(loadings - offset * ones)[None],
        offsets=np.array([offset]),
        defect=defect_of(gram[np.ix_(kept, kept)], transform, spectrum, model.regularization),
    )
    return SparsePosterior(model, fit)


def pair_variances(posterior: SparsePosterior, evidence: CurveEvidence) -> Floats:
    """Return σ̃² of g at each value's pair (N,), on the 1/λ scale."""
    fit = posterior.fit
    kernel = posterior.model.kernel
    rows = kernel.cross(evidence.points, fit.basis.features) @ fit.roots.T
    explained = np.einsum("ij,ij->i", rows, rows)
    left = np.maximum(kernel.diagonal(evidence.points) - explained, 0.0)
    variances: Floats = left / posterior.model.regularization
    return variances


@dataclass(frozen=True, eq=False)
class TrialPredictions:
    """The predicted final values of some trials, in scores."""

    trials: Indices  # (n,), the trials' indices, ascending
    arms: Indices  # (n,), the trials' candidates
    means: Floats  # (n,), the predicted scores
    deviations: Floats  # (n,), the standard deviations of the final values, including noise
    latest: Floats  # (n,), the trials' latest values
    noise: float  # v, the variance of a single value

    def merged(self, other: "TrialPredictions") -> "TrialPredictions":
        """Return these predictions and those for `other` trials."""
        order = np.argsort(np.concatenate((self.trials, other.trials)))
        names = ("trials", "arms", "means", "deviations", "latest")
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        columns = {name: np.concatenate(pair)[order] for name, pair in pairs.items()}
        return TrialPredictions(**columns, noise=self.noise)


def predict_unlearned(
    posterior: SparsePosterior, evidence: CurveEvidence, curves: Sequence[TrialCurve]
) -> TrialPredictions:  # fmt: skip
    """Return the predicted final values of trials whose `curves` are not learned: those of new
    trials of their candidates."""
    arms = np.array([curve.arm for curve in curves], np.intp)
    means, variances, _ = posterior.moments(arms)
    regularization = posterior.model.regularization
    return TrialPredictions(
        trials=np.array([curve.trial for curve in curves], np.intp),
        arms=arms,
        means=means + posterior.fit.offset,
        deviations=np.sqrt(regularization * (variances + 1.0)),
        latest=np.array([curve.rewards[-1] for curve in curves]),
        noise=curve_kernel(posterior.model).numbers.noise,
    )


def predict(posterior: SparsePosterior, evidence: CurveEvidence, trials: Indices) -> TrialPredictions:
    """Return the predicted final values of the trials at positions `trials` (n,), ascending."""
    kernel = curve_kernel(posterior.model)
    fit = posterior.fit
    values = evidence.values
    numbers = kernel.numbers
    means = np.empty(len(values.sizes))
    variances = np.empty(len(values.sizes))
    for group in TrialNoise(kernel, values).groups_of(trials):
        times = np.concatenate((group.times, np.ones((len(group.trials), 1))), axis=1)
        ends = evidence.features[group.trials]
        own = own_covariance(numbers, np.ones((1, 1, 1)), group.times[:, None, :])[:, 0]  # c (g, k)
        solved = np.matmul(group.roots, own[:, :, None])
        weights = np.matmul(np.swapaxes(group.roots, 1, 2), solved)[:, :, 0]  # c R⁻¹ (g, k)
        at_values = kernel.cross(evidence.points[group.values.ravel()], fit.basis.features) @ fit.transform.T
        at_values = at_values.reshape(*group.values.shape, -1)
        rows = np.concatenate((at_values, (kernel.cross(ends, fit.basis.features) @ fit.transform.T)[:, None]), axis=1)
        expected = rows @ fit.loadings[0] + fit.offset  # the mean of g at T_i and at 1: (g, k + 1)
        residuals = evidence.scores[group.values] - expected[:, :-1]
        means[group.trials] = expected[:, -1] + np.einsum("ij,ij->i", weights, residuals)
        signs = np.concatenate((-weights, np.ones((len(weights), 1))), axis=1)
        combined = np.einsum("ij,ijk->ik", signs, rows)
        prior = np.einsum("ij,ijk,ik->i", signs, kernel.within_trial(times[:, :, None], times[:, None, :]), signs)
        of_quality = np.maximum(prior - (combined * combined) @ fit.spectrum, 0.0)
        own_left = numbers.own - np.einsum("ij,ij->i", solved[:, :, 0], solved[:, :, 0])
        variances[group.trials] = of_quality + np.maximum(own_left, 0.0) + numbers.noise
    return TrialPredictions(
        trials=values.trials[trials],
        arms=values.arms[trials],
        means=means[trials],
        deviations=np.sqrt(variances[trials]),
        latest=values.rewards[values.last[trials]],
        noise=numbers.noise,
    )
