"""The sparse posterior over all arms (that of BKB; DTC on the 1/λ scale), fitted from counts.

The paper's notation is z(x) = L⁻¹ k_𝒮(x) and V = Σ n_p z(x_p) z(x_p)ᵀ + λI (BBKB §3, eq. 2–3).
This module uses coordinates in which V is the identity. With Σ n_p z zᵀ = U diag(b) Uᵀ,

    y(x) = (diag(b) + λI)^{−1/2} Uᵀ z(x) = T k_𝒮(x)            `moments`
                                               T is `transform` (r, r), b is `spectrum` (r,)
    z(x)ᵀ V⁻¹ z(x') = y(x)ᵀ y(x')                              `embedded covariance`
    μ̃(x)           = y(x)ᵀ Σ_p s_p y(x_p)
    k̃(x, x')       = (k(x, x') − y(x)ᵀ diag(b) y(x')) / λ
    σ̃²(x)          = (k(x, x) − ‖diag(b)^{1/2} T k_𝒮(x)‖²) / λ

The last line is λσ̃² = k − k_𝒮ᵀ Q k_𝒮 with Q = K_𝒮⁻¹ − λ (L V Lᵀ)⁻¹, written as a square: one
matrix product over the arms gives means and variances, and rounding loses only half of the digits
that Q itself would lose. The expression contains k(x, x) − ‖z‖², so distant arms remain uncertain.

The s_p are sums of scores (`model.outputs`), which are the rewards themselves if `outputs` is raw.
If deviations of the rewards are known, n_p is the arm's weight (`SparseModel.weights`) instead of its number of pulls.
With a constant mean m ~ N(0, 1), all this holds for the scores minus m = 1ᵀK̂⁻¹t/(1ᵀK̂⁻¹1 + 1) over
the multiset of pulls, where K̂ is (zᵀz') + λI: 1ᵀK̂⁻¹t = (Σ s_p − (Σ n_p y_p)ᵀ(Σ s_p y_p))/λ.

The square root of K_𝒮 behind the Nyström embedding z(x) = L⁻¹ k_𝒮(x) (BKB, Calandriello et al.
2019, eq. 4).

Dictionaries contain near-duplicates, so K_𝒮 is usually singular at working precision. Pivoting
selects the atoms in the order of their residuals and stops when the residuals are only rounding
errors. The result is the embedding of a smaller dictionary that spans the same space, so all
statements proven for any dictionary apply to it.

The posterior mean agrees with that of the dense Gaussian process within these limits: the neglected
variance is at most m · eps · κ² (about 1e-13 with 600 atoms). If rewards differ between
near-duplicates, this variance matters relative to λ / n for n pulls. If the rewards are white
noise, the error of the mean is at most about 10 m · eps · κ² n / λ, relative to the rewards: 4e-7
at λ = 1e-6 with 600 atoms, each pulled once, and 3e-5 at 1e-8. A dense factorization of K + λI in
double precision was up to 20 times more accurate, but not more accurate for arms at a distance of
1e-7.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import scipy

from bbkb.orchestrator.bandit.arrays import Floats, Indices, freeze, read_only
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.model.model import Mean
from bbkb.orchestrator.bandit.model.outputs import Outputs, mean_rewards, score_pulls, score_variances, scores_of
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.all_arms import (
    BLOCK,
    AllArms,
    Fit,
    KernelColumns,
    LocalCovariance,
    Points,
    Pulled,
)
from bbkb.orchestrator.bandit.sparse.upper_bounds import Screen


def pivoted_cholesky(gram: Floats) -> tuple[Indices, Floats]:
    """Factor the positive semidefinite `gram` (m, m), using only linearly independent rows.

    Returns `kept` (r,), r ≤ m, the positions of the selected rows, and the lower triangular L (r,
    r) with L Lᵀ = gram[kept][:, kept]. Rows with a residual below m · eps · max(diagonal) are
    omitted. Only the lower triangle is read. Raises ValueError if `gram` is not finite.
    """
    if not np.isfinite(gram).all():
        raise ValueError("the dictionary's kernel matrix must be finite; look for very large features or variances")
    if len(gram) == 0:
        return np.empty(0, np.intp), np.empty((0, 0))
    tolerance = len(gram) * np.finfo(np.float64).eps * max(gram.diagonal().max(), 0.0)
    factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(gram, tol=tolerance, lower=1)
    return pivots[:rank].astype(np.intp) - 1, np.tril(factor[:rank, :rank])


def solve_lower(factor: Floats, right: Floats, trans: Literal["N", "T"] = "N") -> Floats:
    """Return L⁻¹ `right`, or L⁻ᵀ `right` with `trans` "T"; `right` itself if L is empty."""
    if not len(factor):
        return right
    solve = scipy.linalg.solve_triangular
    solved: Floats = solve(factor, right, lower=True, trans=trans, check_finite=False)
    return solved


PROBES = 8  # the number of random vectors that estimate a norm


@dataclass(frozen=True, eq=False)
class SparseModel:
    """The parts of a posterior besides the pulls: `kernel`, candidate `arms` (A, d), `regularization` λ,
    and the scores with their mean. The defaults are those of the papers: the rewards themselves, with mean 0."""

    kernel: Kernel
    arms: Floats
    regularization: float
    outputs: Outputs = Outputs.RAW
    mean: Mean = Mean.ZERO

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", read_only(self.arms, np.float64))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SparseModel):
            return NotImplemented
        is_same = (self.kernel, self.regularization) == (other.kernel, other.regularization)
        is_same = is_same and (self.outputs, self.mean) == (other.outputs, other.mean)
        return is_same and (self.arms is other.arms or np.array_equal(self.arms, other.arms))

    @cached_property
    def all_arms(self) -> AllArms:
        """Computations for all arms."""
        return AllArms(self.kernel, self.arms)

    @property
    def columns(self) -> KernelColumns:
        """Kernel columns over the arms, cached from one fit to the next."""
        return self.all_arms.columns

    @property
    def diagonal(self) -> Floats:
        """k(x, x) of every arm (A,)."""
        return self.all_arms.diagonal

    @cached_property
    def screen(self) -> Screen:
        """Bounds on all arms, derived from an earlier fit."""
        return Screen(self.kernel, self.all_arms.largest_prior)

    def extend(self, features: Floats) -> "SparseModel":
        """Return the model with n appended arms, `features` (n, d). Results computed for the
        present arms are kept.

        Raises ValueError if d differs from that of the present arms.
        """
        dimension = self.arms.shape[1]
        if features.shape[1] != dimension:
            raise ValueError(f"candidates must have {dimension} features each, got {features.shape[1]}")
        all_arms = self.all_arms.extend(features)
        grown = replace(self, arms=all_arms.features)
        object.__setattr__(grown, "all_arms", all_arms)
        object.__setattr__(grown, "screen", self.screen.extend(all_arms.largest_prior))
        return grown

    def with_regularization(self, regularization: float) -> "SparseModel":
        """Return the model with another λ, and the same kernel columns."""
        changed = replace(self, regularization=regularization)
        object.__setattr__(changed, "all_arms", self.all_arms)
        return changed

    def points(self, arms: Indices) -> Points:
        """Return `arms` (n,) with their features."""
        return Points(arms, self.arms[arms])

    def weights(self, pulls: Pulls) -> Floats | Indices:
        """Return the weight of every arm (A,): its number of pulls; if deviations are known, the number of pulls
        with noise λ that are worth as much."""
        variances = score_variances(pulls, self.outputs)
        if variances is None:
            return pulls.counts
        weights = np.zeros(len(pulls.counts))
        weights[pulls.arms] = self.regularization / variances
        return weights

    def parts(self) -> list[slice]:
        """Return the arms in consecutive slices whose size suits matrix products."""
        return [slice(low, min(low + BLOCK, len(self.arms))) for low in range(0, len(self.arms), BLOCK)]

    def fit(self, pulls: Pulls, dictionary: Indices) -> "SparsePosterior":
        """Return the posterior after `pulls` with inducing points `dictionary` (m,), if any."""
        inducing = self.points(dictionary)
        gram = self.columns.entries(dictionary, inducing)
        pivots, factor = pivoted_cholesky(gram)
        basis = Points(dictionary[pivots], inducing.features[pivots])
        kernel_pulled = self.columns.entries(pulls.arms, basis).T  # (r, p)
        embedded = solve_lower(factor, kernel_pulled)
        weights = self.weights(pulls)[pulls.arms]
        products = (embedded * weights) @ embedded.T
        spectrum, transform = whitening(factor, products, self.regularization)
        outputs = [
            self._loadings(transform, kernel_pulled, output, weights)
            if index == 0 or np.array_equal(output.counts, pulls.counts)
            else self._loadings_of_part((transform, spectrum, kernel_pulled), pulls, output)
            for index, output in enumerate(pulls.outputs)
        ]
        transform = np.ascontiguousarray(transform)
        fit = Fit(
            basis=basis,
            transform=transform,
            spectrum=spectrum,
            regularization=self.regularization,
            loadings=np.array([loadings for loadings, _ in outputs]),
            offsets=np.array([offset for _, offset in outputs]),
            defect=defect_of(gram[np.ix_(pivots, pivots)], transform, spectrum, self.regularization),
        )
        return SparsePosterior(self, fit)

    def _loadings_of_part(
        self, fitted: tuple[Floats, Floats, Floats], pulls: Pulls, output: Pulls
    ) -> tuple[Floats, float]:  # fmt: skip
        """Return `_loadings` of an output that some pulls lack: the posterior mean of its own pulls.

        With y the rows of these pulls and b, λ the spectrum and the noise, the loadings ℓ minimize
        Σ n (s − m − yᵀℓ)² + λ Σ ℓ²/(b + λ).

        Args:
            fitted: the transform, the spectrum, and the kernel of all pulls (r, p).
            pulls: all pulls.
            output: the pulls with this output.
        """
        transform, spectrum, kernel_pulled = fitted
        counts = output.counts[output.arms]
        sums = score_pulls(output, self.outputs).reward_sums[output.arms]
        rows = transform @ kernel_pulled[:, np.searchsorted(pulls.arms, output.arms)]
        precision = (rows * counts) @ rows.T
        precision[np.diag_indices_from(precision)] += self.regularization / (spectrum + self.regularization)
        weighed = rows @ np.column_stack((sums, counts))
        solved: Floats = np.asarray(np.linalg.solve(precision, weighed), np.float64)
        if self.mean is Mean.ZERO:
            return solved[:, 0], 0.0
        explained = float(sums.sum()) - float(weighed[:, 1] @ solved[:, 0])
        unexplained = output.total - float(weighed[:, 1] @ solved[:, 1])
        offset = explained / (unexplained + self.regularization)
        loadings: Floats = solved[:, 0] - offset * solved[:, 1]
        return loadings, offset

    def _loadings(
        self, transform: Floats, kernel_pulled: Floats, pulls: Pulls, weights: Floats | Indices
    ) -> tuple[Floats, float]:
        """Return Σ_p (s_p − n_p m) y_p (r,), and m. `weights` (p,) are the n_p."""
        if self.outputs is Outputs.RAW and pulls.noise is None:
            sums = pulls.reward_sums[pulls.arms]
        else:
            sums = scores_of(mean_rewards(pulls), self.outputs) * weights
        loadings = transform @ (kernel_pulled @ sums)
        if self.mean is Mean.ZERO:
            return loadings, 0.0
        ones = transform @ (kernel_pulled @ weights)
        explained = float(sums.sum()) - float(ones @ loadings)
        offset = explained / (float(weights.sum()) - float(ones @ ones) + self.regularization)
        return loadings - offset * ones, offset


def whitening(factor: Floats, products: Floats, regularization: float) -> tuple[Floats, Floats]:
    """Return b (r,) and T (r, r), given L and the `products` Σ n_p z zᵀ (r, r)."""
    spectrum, rotation = np.linalg.eigh(products)
    spectrum = np.maximum(spectrum, 0.0)
    return spectrum, solve_lower(factor, rotation / np.sqrt(spectrum + regularization), trans="T").T


def defect_of(gram: Floats, transform: Floats, spectrum: Floats, regularization: float) -> float:
    """Return an estimate of ‖H K_𝒮 Hᵀ − diag(b/(b + λ))‖_F, from products with random signs."""
    roots = np.sqrt(spectrum)[:, None]
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (len(spectrum), PROBES))
    product = roots * (transform @ (gram @ (transform.T @ (roots * signs))))
    off = product - (spectrum / (spectrum + regularization))[:, None] * signs
    return float(np.linalg.norm(off) / np.sqrt(PROBES))


@dataclass(frozen=True, eq=False)
class SparsePosterior:
    """The belief over all arms: the posterior `fit`, computed with `model`."""

    model: SparseModel
    fit: Fit

    @property
    def basis(self) -> Indices:
        """The atoms of the posterior (r,)."""
        return self.fit.basis.arms

    @property
    def mean(self) -> Floats:
        """μ̃ of every arm (A,), read-only."""
        mean: Floats = self.means[0]
        return mean

    @property
    def variance(self) -> Floats:
        """σ̃² of every arm (A,) on the 1/λ scale, ≥ 0, read-only."""
        return self._sweep[1]

    @property
    def means(self) -> Floats:
        """μ̃ of every output of every arm (J, A), starting with the first objective."""
        return self._sweep[0]

    @cached_property
    def _sweep(self) -> tuple[Floats, Floats]:
        means, variance = self.model.all_arms.sweep(self.fit)
        return freeze(means + self.fit.offsets[:, None]), freeze(variance)

    def moments(self, arms: Indices, is_joint: bool = False) -> tuple[Floats, Floats, Floats]:
        """Return μ̃ − m (n,), σ̃² (n,) and y (n, r) of `arms` (n,).

        The values of an arm do not depend on the other arms in the call, bit for bit. Strategies
        base their decisions on these values. With `is_joint`, they are computed by joint products in a
        fraction of the time, as `mean` and `variance` of all arms, and some last digits differ.
        """
        return self.model.all_arms.moments(self.fit, arms, is_joint)

    def effective_dimension(self, pulls: Pulls) -> float:
        """Return Σ n σ̃² over the `pulls` of the fit, which is d_eff within a factor of 3 where Theorem 1 holds.

        In the module's notation it is Σ b/(b + λ) + (Σ n k(x, x) − Σ b)/λ.
        """
        spectrum, regularization = self.fit.spectrum, self.fit.regularization
        return float((spectrum / (spectrum + regularization)).sum()) + self.left_out(pulls) / regularization

    def left_out(self, pulls: Pulls) -> float:
        """Return Tr(K − K̃) over the `pulls` of the fit, with K̃ = (zᵀz'): Σ n k(x, x) − Σ b, ≥ 0."""
        prior = float(self.model.weights(pulls)[pulls.arms] @ self.model.diagonal[pulls.arms])
        return max(0.0, prior - float(self.fit.spectrum.sum()))

    def covariances(self, rows: Floats, points: Points) -> tuple[Floats, Floats]:
        """Return k̃(x, x') and zᵀV⁻¹z' (n, n) of `points` (n), given their y as `rows` (n, r)."""
        explained = (rows * self.fit.spectrum) @ rows.T
        kernel = self.model.kernel.cross(points.features, points.features)
        return (kernel - explained) / self.fit.regularization, rows @ rows.T

    def local_sums(self, arms: Indices | None, pulled: Pulled, covariance: LocalCovariance) -> Floats:
        """Return Σ_s c(x, x_s)/σ̃²(x) over the pulls (Lemma 3) for x in `arms` (n,), or for every
        arm if None: (n,)."""
        return self.model.all_arms.local_sums(self.fit, arms, pulled, covariance)
