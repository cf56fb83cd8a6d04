"""Bounds on the distance of a posterior from an earlier one: ρ for variances, d for means.

A sparse posterior is the Gaussian process of an operator M = λI + P Φᵀ diag(n) Φ P on the feature
space, with the projection P on the span of the dictionary. With θ its weights, σ̃²(x) = φ(x)ᵀ M⁻¹
φ(x) and μ̃(x) = φ(x)ᵀ θ. Let (M₀, θ₀) be an earlier posterior, the reference. For any two
posteriors and every x,

    σ̃²(x) ≤ ρ σ̃₀²(x)               if M₀ ⪯ ρ M                                        (1)
    |μ̃(x) − μ̃₀(x)| ≤ d σ̃₀(x)       with d² = (θ − θ₀)ᵀ M₀ (θ − θ₀)                   (2)

by the Cauchy-Schwarz inequality. Both numbers are computed from m × m matrices and hold with
certainty, for any pulls in between. (Theorem 1 of BBKB, σ²/3 ≤ σ̃² ≤ 3σ² with high probability,
gives a factor of 9 for ρ.)

With the symbols of `posterior` and H = diag(b)^{1/2} T, M⁻¹ = (I − Φ_𝒮ᵀ Hᵀ H Φ_𝒮)/λ and H K_𝒮 Hᵀ =
diag(b/(b + λ)). By two Schur complements, M₀ ⪯ ρ M, which is M⁻¹ ⪯ ρ M₀⁻¹, if and only if, with C =
T₀ k(𝒮₀, 𝒮) Tᵀ,

    ((ρ − 1)/ρ) I − H₀ K_𝒮₀ H₀ᵀ + X ((ρ − 1) I + H K_𝒮 Hᵀ)⁻¹ Xᵀ ⪰ 0                   (3)
    X = H₀ k(𝒮₀, 𝒮) Hᵀ = diag(b₀)^{1/2} C diag(b)^{1/2}                                (4)

This takes one matrix product and one Cholesky factorization for the single `RATIO` ρ that is tried:
further values saved less than 5 % of a search. If rounding leaves a negative eigenvalue −η
undetected, the bound on σ̃² is off by at most ρ²η/((ρ − 1)λ).

In orthonormal coordinates of a posterior's span, θ is a/(b + λ)^{1/2} with its loadings a, and M₀
is diag(b₀) + λI. So with θ' = (b₀ + λ)^{1/2} C a, which is θ in the reference's coordinates,

    d² = λ ‖θ − θ₀‖² + Σ b₀ (θ' − θ₀)²                                                (5)
"""

from dataclasses import dataclass

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.sparse.all_arms import Fit

RATIO = 2.0  # ρ
# the rounding error of a sum, relative to the sum of its terms' magnitudes
ROUNDING = 16 * float(np.finfo(np.float64).eps)
# the rounding error of an eigenvalue of the matrix (3), whose entries are at most 1
EIGENVALUE_ROUNDING = 1e-12
# the rounding error of X, which is a product like H K Hᵀ, relative to the measured error of H K Hᵀ
# (`Fit.defect`)
DEFECTS = 2.0


@dataclass(frozen=True)
class Rounding:
    """Bounds on the rounding errors of a posterior, from the magnitudes of the terms of y(x) = T
    k_𝒮(x).

    A near-singular K_𝒮 leads to a T with entries up to 1e7 that nearly cancel, so no fixed
    tolerance suits all posteriors.
    """

    variance: float  # the error of σ̃², relative to the prior variance
    means: tuple[float, ...]  # the error of μ̃ of each output, relative to √k(x, x)

    @staticmethod
    def of(fit: Fit, kernel: Kernel) -> "Rounding":
        """Return the bounds of `fit`."""
        # a bound on y(x) / √k(x, x)
        terms = np.abs(fit.transform) @ np.sqrt(kernel.diagonal(fit.basis.features))
        variance = ROUNDING * (2.0 * float(np.linalg.norm(np.sqrt(fit.spectrum) * terms)) + 1.0)
        return Rounding(variance, tuple(ROUNDING * float(np.abs(loadings) @ terms) for loadings in fit.loadings))

    def means_with(self, other: "Rounding") -> tuple[float, ...]:
        """Return each output's rounding error of the difference between the posteriors' μ̃."""
        return tuple(map(sum, zip(self.means, other.means, strict=True)))


@dataclass(frozen=True)
class PosteriorShift:
    """The distance of a posterior from the reference."""

    ratio: float  # ρ
    distances: tuple[float, ...]  # d of each output
    slack: float  # the rounding error of ρ σ̃₀², relative to the prior variance

    @staticmethod
    def none(fit: Fit) -> "PosteriorShift":
        """Return the shift between a reference and itself."""
        return PosteriorShift(1.0, (0.0,) * len(fit.loadings), 0.0)


@dataclass(frozen=True)
class Certificate:
    """Compares a reference with another posterior of the same model."""

    old: Fit  # the reference
    new: Fit  # the other posterior
    between: Floats  # C (r₀, r)

    @staticmethod
    def of(old: Fit, new: Fit, cross: Floats) -> "Certificate":
        """Return the certificate. `cross`: k(𝒮₀, 𝒮)."""
        return Certificate(old, new, old.transform @ cross @ new.transform.T)

    def holds(self) -> bool:
        """Return whether (3) proves `RATIO`."""
        b_0 = self.old.spectrum
        b = self.new.spectrum
        explained_0 = b_0 / (b_0 + self.old.regularization)  # H₀ K₀ H₀ᵀ
        explained = b / (b + self.old.regularization)  # H K Hᵀ
        X = np.sqrt(b_0)[:, None] * self.between * np.sqrt(b)  # (4)
        matrix = (X / (RATIO - 1.0 + explained)) @ X.T  # (3)
        matrix.flat[:: len(matrix) + 1] += (RATIO - 1.0) / RATIO - explained_0 + EIGENVALUE_ROUNDING
        try:
            np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            return False
        return True

    def shift(self, means: tuple[float, ...]) -> PosteriorShift:
        """Return the shift if `RATIO` is proven. `means` (J,): the rounding errors of the
        differences between the posteriors' μ̃."""
        slack = RATIO**2 / (RATIO - 1.0) * (2.0 * self._error / (RATIO - 1.0) + EIGENVALUE_ROUNDING)
        # ‖θ − θ₀‖² is the small difference of sums of magnitude (mean / ROUNDING)²
        cancelled = float(np.sqrt(self.old.regularization / ROUNDING))
        loadings = zip(self.old.loadings, self.new.loadings, means, strict=True)
        distances = tuple(self._distance(a_0, a) + cancelled * mean for a_0, a, mean in loadings)
        return PosteriorShift(RATIO, distances, slack)

    @property
    def _error(self) -> float:
        """Return a bound on the rounding error of X."""
        return DEFECTS * (self.old.defect + self.new.defect)

    def _distance(self, a_0: Floats, a: Floats) -> float:
        """Return d of an output, with loadings `a_0` (r₀,) in the reference and `a` (r,) now, and a
        bound on the contribution of C's rounding error."""
        b_0 = self.old.spectrum
        b = self.new.spectrum
        roots_0 = np.sqrt(b_0 + self.old.regularization)
        theta_0 = a_0 / roots_0
        theta = a / np.sqrt(b + self.old.regularization)
        theta_in_0 = roots_0 * (self.between @ a)  # θ'
        difference = theta_0 @ theta_0 + theta @ theta - 2.0 * theta_0 @ theta_in_0  # ‖θ − θ₀‖²
        squared = float(self.old.regularization * difference + b_0 @ (theta_in_0 - theta_0) ** 2)  # (5)
        least = np.finfo(np.float64).eps * b.max(initial=0.0) + np.finfo(np.float64).tiny
        error = self._error * float(np.linalg.norm(a / np.sqrt(np.maximum(b, least))))
        error = (error + ROUNDING * float(np.linalg.norm(theta_0))) * float(roots_0.max(initial=0.0))
        return float(np.sqrt(max(squared, 0.0))) + error
