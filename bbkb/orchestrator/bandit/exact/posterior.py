"""The exact Gaussian process: `ExactPosterior`, updated for each pull at a cost of O(p² + pA) instead of
O(p³ + p²A); and `exact_posterior`, O(p³), which is that of GP-ThreDS and the test oracle of the sparse one.

p is the number of distinct pulled arms: n pulls of an arm are one row, with λ/n on the diagonal.
The first pull of an arm appends a row to the Cholesky factor. Another pull of the arm is a rank-one
downdate, which changes λ/n to λ/(n + 1).

With c = k(·, x) − k_p(·)ᵀ (K_p + λN⁻¹)⁻¹ k_p(x), which is λ times the posterior covariance with x,
a pull of x with reward y turns (BBKB eq. 1 and the Sherman-Morrison formula)

    μ  into  μ + c (y − μ(x)) / (c(x) + λ)
    σ² into  σ² − c² / (λ (c(x) + λ))
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy

from bbkb.orchestrator.bandit.arrays import Floats, Indices, read_only, same
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.model.model import Mean
from bbkb.orchestrator.bandit.model.outputs import score_pulls
from bbkb.orchestrator.bandit.pulls import Pulls, bounded
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel


def exact_posterior(kernel: Kernel, arms: Floats, pulls: Pulls, regularization: float) -> tuple[Floats, Floats]:
    """Return exact mean and variance (1/λ scale) of every arm (A,): BBKB eq. 1.

    n pulls of one arm are equivalent to one pull of their mean reward with λ/n, so the matrix has
    one row per pulled arm.
    """
    prior = kernel.diagonal(arms)
    if pulls.total == 0:
        return np.zeros(len(arms)), prior / regularization
    counts = pulls.counts[pulls.arms]
    points = arms[pulls.arms]
    factor = scipy.linalg.cho_factor(kernel.cross(points, points) + np.diag(regularization / counts), lower=True)
    cross = kernel.cross(points, arms)
    mean = cross.T @ scipy.linalg.cho_solve(factor, pulls.reward_sums[pulls.arms] / counts)
    explained = np.einsum("pa,pa->a", cross, scipy.linalg.cho_solve(factor, cross))
    return mean, np.maximum(prior - explained, 0.0) / regularization


@dataclass(frozen=True, eq=False)
class ExactPosterior:
    """Exact belief over all arms. All arrays are read-only."""

    model: SparseModel  # kernel, arms, λ and scores
    order: Indices  # (p,), the pulled arms, in the order of their first pulls
    counts: Indices  # (p,), the number of pulls of each arm
    factor: Floats  # (p, p), R upper triangular with Rᵀ R = K_p + λ diag(1/counts)
    mean: Floats  # (A,), the posterior mean
    variance: Floats  # (A,), the posterior variance on the 1/λ scale
    # Σ log(1 + σ²) over the pulls, each with its variance just before the pull: log det(I + K/λ)
    # over the multiset of pulls
    information_gain: float

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @staticmethod
    def prior(model: SparseModel) -> "ExactPosterior":
        """Return the belief before any pull."""
        nothing = read_only((), np.intp)
        variance = read_only(model.diagonal / model.regularization, np.float64)
        mean = read_only(np.zeros(len(variance)), np.float64)
        factor = read_only(np.empty((0, 0)), np.float64)
        return ExactPosterior(
            model, order=nothing, counts=nothing, factor=factor, mean=mean, variance=variance, information_gain=0.0
        )

    @staticmethod
    def of(model: SparseModel, pulls: Pulls, order: Indices, counts: Indices | None = None) -> "ExactPosterior":
        """Return the belief after `pulls` of the arms `order` (p,), all at once.

        `counts` (p,): the number of pulls to include for each arm; None for all.
        """
        lam = model.regularization
        counts = pulls.counts[order] if counts is None else counts
        points = model.arms[order]
        gram = model.kernel.cross(points, points)
        # λ/n must exceed rounding errors, or the factorization fails
        rounding = len(order) * np.finfo(np.float64).eps * float(np.trace(gram))
        factor = scipy.linalg.cholesky(gram + np.diag(np.maximum(lam / counts, rounding)))
        targets, offset = _targets(model, factor, pulls, order)
        loadings = scipy.linalg.solve_triangular(factor, targets, trans="T")
        mean = np.empty(len(model.arms))
        explained = np.empty(len(model.arms))
        for block in model.parts():
            solved = scipy.linalg.solve_triangular(factor, model.kernel.cross(points, model.arms[block]), trans="T")
            mean[block] = loadings @ solved
            explained[block] = np.einsum("pa,pa->a", solved, solved)
        variance = np.maximum(model.diagonal - explained, 0.0) / lam
        # log det(I + K/λ) over the multiset is log det(I + NK/λ) over the distinct arms
        gain = float(2.0 * np.log(factor.diagonal()).sum() + np.log(counts / lam).sum())
        return ExactPosterior(
            model,
            order=read_only(order, np.intp),
            counts=read_only(counts, np.intp),
            factor=read_only(factor, np.float64),
            mean=read_only(mean + offset, np.float64),
            variance=read_only(variance, np.float64),
            information_gain=gain,
        )

    def rescore(self, pulls: Pulls) -> "ExactPosterior":
        """Return the belief with the mean for the current scores of `pulls`, which are all pulls so
        far. Costs O(p² + pA)."""
        targets, offset = _targets(self.model, self.factor, pulls, self.order)
        weights = scipy.linalg.solve_triangular(
            self.factor, scipy.linalg.solve_triangular(self.factor, targets, trans="T")
        )
        mean = np.empty(len(self.mean))
        pulled = self.model.points(self.order)
        for part in self.model.parts():
            mean[part] = self.model.columns.rows(part, pulled) @ weights
        return replace(self, mean=read_only(mean + offset, np.float64))

    def pull(self, arm: int, reward: float) -> "ExactPosterior":
        """Return the belief after one more pull of `arm`."""
        lam = self.model.regularization
        row, covariance = self._covariance(arm)
        pivot = float(self.variance[arm]) * lam + lam
        with np.errstate(over="ignore"):
            gain = bounded((bounded(reward) - self.mean[arm]) / pivot)
            mean = bounded(self.mean + covariance * gain)
        # rounding can make the variance of a well-known arm negative
        variance = np.maximum(self.variance - covariance**2 / (lam * pivot), 0.0)
        if arm in self.order:
            order, counts, factor = self.order, self.counts.copy(), self.factor.copy()
            position = int(np.flatnonzero(order == arm)[0])
            pulled = int(counts[position])
            counts[position] += 1
            difference = np.zeros(len(order) - position)
            difference[0] = math.sqrt(lam / (pulled * (pulled + 1)))  # λ/n − λ/(n + 1) under the root
            # λ/n is a lower bound on a squared pivot, which rounding may violate
            downdate(factor[position:, position:], difference, lam / counts[position:])
        else:
            order, counts = np.append(self.order, arm), np.append(self.counts, 1)
            factor = np.zeros((len(order), len(order)))
            factor[:-1, :-1] = self.factor
            factor[:-1, -1] = row
            factor[-1, -1] = math.sqrt(pivot)
        return replace(
            self,
            order=read_only(order, np.intp),
            counts=read_only(counts, np.intp),
            factor=read_only(factor, np.float64),
            mean=read_only(mean, np.float64),
            variance=read_only(variance, np.float64),
            information_gain=self.information_gain + math.log(pivot / lam),
        )

    def pull_without_reward(self, arm: int) -> "ExactPosterior":
        """Return the belief after a pull of `arm` without a reward. The mean remains the same, bit
        for bit."""
        return self.pull(arm, float(self.mean[arm]))

    def _covariance(self, arm: int) -> tuple[Floats, Floats]:
        """Return R⁻ᵀ k_p(x) (p,), and c of every arm (A,)."""
        columns = self.model.columns
        column = columns.rows(slice(None), self.model.points(np.array([arm])))[:, 0].copy()
        if not len(self.order):  # the solver rejects an empty matrix
            return np.empty(0), column
        row = scipy.linalg.solve_triangular(self.factor, column[self.order], trans="T", check_finite=False)
        weights = scipy.linalg.solve_triangular(self.factor, row, check_finite=False)
        pulled = self.model.points(self.order)
        for part in self.model.parts():
            column[part] -= columns.rows(part, pulled) @ weights
        return row, column


def _targets(model: SparseModel, factor: Floats, pulls: Pulls, order: Indices) -> tuple[Floats, float]:
    """Return the mean scores of `order` (p,) minus m, and m = 1ᵀS⁻¹t/(1ᵀS⁻¹1 + 1), S = RᵀR."""
    scores: Floats = score_pulls(pulls, model.outputs).reward_sums[order] / pulls.counts[order]
    if model.mean is Mean.ZERO:
        return scores, 0.0
    solved = scipy.linalg.solve_triangular(factor, np.column_stack((scores, np.ones(len(order)))), trans="T")
    offset = float(solved[:, 1] @ solved[:, 0]) / (float(solved[:, 1] @ solved[:, 1]) + 1.0)
    return scores - offset, offset


def downdate(factor: Floats, vector: Floats, floors: Floats) -> None:
    """Turn R (p, p), in place, into the upper triangular factor of Rᵀ R − v vᵀ; O(p²).

    `vector` (p,) is overwritten. `floors` (p,): lower bounds > 0 on the squares of the new
    diagonal.
    """
    for k in range(len(vector)):
        old = factor[k, k]
        new = math.sqrt(max(old * old - vector[k] * vector[k], floors[k]))
        cosine = new / old
        sine = vector[k] / old
        factor[k, k] = new
        row = (factor[k, k + 1 :] - sine * vector[k + 1 :]) / cosine
        vector[k + 1 :] = cosine * vector[k + 1 :] - sine * row
        factor[k, k + 1 :] = row
