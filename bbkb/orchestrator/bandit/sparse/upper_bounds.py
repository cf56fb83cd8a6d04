"""Upper bounds on every arm, derived from an earlier posterior, so that most arms need no new
moments after a refit.

Let μ̃₀ and σ̃₀ be the moments of an earlier posterior, the reference, computed for all arms. With ρ
and d below,

    μ̃(x) + width · σ̃(x) ≤ μ̃(x) + width √ρ σ̃₀(x) ≤ μ̃₀(x) + (d + width √ρ) σ̃₀(x).

Bounds on the distance of a posterior from an earlier one: ρ for variances, d for means.

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

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.curves import is_pair
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.sparse.all_arms import AllArms, BoundLine, Fit
from bbkb.orchestrator.bandit.sparse.argmax_queue import RemainingInArray, largest
from bbkb.orchestrator.bandit.sparse.scalarization import Bound, Scalarizing

RATIO = 2.0  # ρ
# the rounding error of a sum, relative to the sum of its terms' magnitudes
ROUNDING = 16 * float(np.finfo(np.float64).eps)
# the rounding error of an eigenvalue of the matrix (3), whose entries are at most 1
EIGENVALUE_ROUNDING = 1e-12
# the rounding error of X, which is a product like H K Hᵀ, relative to the measured error of H K Hᵀ
# (`Fit.defect`)
DEFECTS = 2.0


@dataclass(frozen=True)
class Rounded:
    """A posterior, with bounds on its rounding errors, from the magnitudes of the terms of y(x) = T
    k_𝒮(x).

    A near-singular K_𝒮 leads to a T with entries up to 1e7 that nearly cancel, so no fixed
    tolerance suits all posteriors.
    """

    fit: Fit
    variance: float  # the error of σ̃², relative to the prior variance
    means: tuple[float, ...]  # the error of μ̃ of each output, relative to √k(x, x)

    @staticmethod
    def of(fit: Fit, kernel: Kernel) -> "Rounded":
        """Return the bounds of `fit`."""
        # a bound on y(x) / √k(x, x)
        terms = np.abs(fit.transform) @ np.sqrt(kernel.diagonal(fit.basis.features))
        variance = ROUNDING * (2.0 * float(np.linalg.norm(np.sqrt(fit.spectrum) * terms)) + 1.0)
        return Rounded(fit, variance, tuple(ROUNDING * float(np.abs(loadings) @ terms) for loadings in fit.loadings))


@dataclass(frozen=True)
class PosteriorShift:
    """The distance of a posterior from the reference."""

    ratio: float  # ρ
    distances: tuple[float, ...]  # d of each output
    slack: float  # the rounding error of ρ σ̃₀², relative to the prior variance


def certify(reference: Rounded, present: Rounded, cross: Floats) -> PosteriorShift | None:
    """Return the shift of `present` from `reference`, a posterior of the same model, if (3) proves
    `RATIO`; otherwise None. `cross`: k(𝒮₀, 𝒮)."""
    old = reference.fit
    new = present.fit
    lam = old.regularization
    b_0 = old.spectrum
    b = new.spectrum
    between = old.transform @ cross @ new.transform.T  # C (r₀, r)
    X = np.sqrt(b_0)[:, None] * between * np.sqrt(b)  # (4)
    explained_0 = b_0 / (b_0 + lam)  # H₀ K₀ H₀ᵀ
    explained = b / (b + lam)  # H K Hᵀ
    matrix = (X / (RATIO - 1.0 + explained)) @ X.T  # (3)
    matrix.flat[:: len(matrix) + 1] += (RATIO - 1.0) / RATIO - explained_0 + EIGENVALUE_ROUNDING
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return None
    error = DEFECTS * (old.defect + new.defect)  # a bound on the rounding error of X
    # ‖θ − θ₀‖² is the small difference of sums of magnitude (mean / ROUNDING)²
    cancelled = float(np.sqrt(lam / ROUNDING))
    roots_0 = np.sqrt(b_0 + lam)
    least = np.finfo(np.float64).eps * b.max(initial=0.0) + np.finfo(np.float64).tiny
    distances = []
    for a_0, a, rounding_0, rounding in zip(old.loadings, new.loadings, reference.means, present.means, strict=True):
        theta_0 = a_0 / roots_0
        theta = a / np.sqrt(b + lam)
        theta_in_0 = roots_0 * (between @ a)  # θ'
        difference = theta_0 @ theta_0 + theta @ theta - 2.0 * theta_0 @ theta_in_0  # ‖θ − θ₀‖²
        squared = float(lam * difference + b_0 @ (theta_in_0 - theta_0) ** 2)  # (5)
        of_between = error * float(np.linalg.norm(a / np.sqrt(np.maximum(b, least))))  # the effect of C's error
        of_between = (of_between + ROUNDING * float(np.linalg.norm(theta_0))) * float(roots_0.max(initial=0.0))
        distances.append(float(np.sqrt(max(squared, 0.0))) + of_between + cancelled * (rounding_0 + rounding))
    slack = RATIO**2 / (RATIO - 1.0) * (2.0 * error / (RATIO - 1.0) + EIGENVALUE_ROUNDING)
    return PosteriorShift(RATIO, tuple(distances), slack)


# the cost of tightening the bound of an arm and computing its moments, in units of one arm in a
# sweep over all arms
COST = 1.5


class Screen:
    """The reference of one model: the last posterior that was computed for all arms. A new sweep
    over all arms is made when the computations for single arms have cost as much as a sweep. The
    total cost is therefore at most about twice that of the best sweeps in hindsight. This cache
    changes no pick: bounds remain valid, and existing `UpperBounds` keep their reference.
    """

    def __init__(self, kernel: Kernel, largest_prior: float) -> None:
        self._kernel = kernel
        self._prior = largest_prior  # κ²
        self._reference: Rounded | None = None
        # the cost of computations for single arms since the reference, in units of one arm of a
        # sweep
        self._spent = 0.0

    def extend(self, largest_prior: float) -> "Screen":
        """Return a screen with the same reference, for more arms, whose κ² is `largest_prior`."""
        screen = copy(self)
        screen._prior = largest_prior
        return screen

    def upper(self, all_arms: AllArms, fit: Fit, bounds: Sequence[Bound], blocked: Indices) -> "UpperBounds":
        """Return upper bounds on μ̃ + width · σ̃ of `fit` for each of `bounds`, −∞ for `blocked`
        arms. `fit` becomes the reference if the old one is too different or has cost too much."""
        present = Rounded.of(fit, self._kernel)
        reference = self._reference
        shift = None
        if reference is not None and self._spent < len(all_arms):
            old = reference.fit.basis
            if is_pair(old.arms).any() or is_pair(fit.basis.arms).any():
                cross = self._kernel.cross(old.features, fit.basis.features)
            else:  # from cached columns
                cross = all_arms.columns.rows(old.arms, fit.basis)
            shift = certify(reference, present, cross)
        if reference is None or shift is None:
            self._reference = reference = present
            self._spent = 0.0
            shift = PosteriorShift(1.0, (0.0,) * len(fit.loadings), 0.0)
        lines = [self._lines(reference, present, shift, output, width) for output, width in bounds]
        return UpperBounds(self, all_arms, fit, lines, blocked)

    def spend(self, arms: int) -> None:
        """Add computations for this number of single arms."""
        self._spent += COST * arms

    def _lines(
        self, reference: Rounded, present: Rounded, shift: PosteriorShift, output: int, width: float
    ) -> tuple[BoundLine, BoundLine]:
        """Return two bounds on one output, with the means of the fit and of the reference."""
        rho = shift.ratio
        d = shift.distances[output]
        # √(ρσ̃₀² + s) ≤ √ρ σ̃₀ + √s, so a single number for all arms bounds the effect of rounding
        variance = rho * reference.variance + present.variance + shift.slack
        deviations = width * variance**0.5 + d * (reference.variance + shift.slack) ** 0.5
        mean = present.means[output] + reference.means[output]
        constant = mean + deviations / float(np.sqrt(reference.fit.regularization))
        constant *= float(np.sqrt(self._prior))
        line = BoundLine(reference.fit, width * rho**0.5, constant, output)
        return line, replace(line, slope=line.slope + d)


class UpperBounds:
    """Upper bounds on all arms that were not evaluated, computed in a few passes.

    `lines`: the two bounds of `Screen` for each output. `remaining` has bounds on the first output
    with the reference's means, `tighten` returns bounds with the fit's means.
    """

    def __init__(
        self,
        screen: Screen,
        all_arms: AllArms,
        fit: Fit,
        lines: Sequence[tuple[BoundLine, BoundLine]],
        blocked: Indices,
    ) -> None:
        self._screen = screen
        self._all_arms = all_arms
        self._fit = fit
        self._own_lines, self._lines = (tuple(some) for some in zip(*lines, strict=True))
        self.remaining = RemainingInArray(all_arms.bounds_on(self._lines, blocked))

    def tighten(self, arms: Indices) -> Floats:
        """Return bounds (L, n) on each output of `arms` (n,) with the fit's means, from one product
        with the arms' kernel rows."""
        self._screen.spend(len(arms))
        return self._all_arms.tighten(self._fit, self._own_lines, arms)

    def arms_reaching(
        self, blocked: Indices, scalarizing: Scalarizing, best: float, most: int
    ) -> tuple[Indices, Floats]:
        """Return the arms (n,) that are not `blocked`, ascending, whose bounds (n,) on the
        scalarized score are at least `best`. If `best` is −∞, return the `most` arms with the largest bounds."""
        bounds = self._all_arms.bounds_on(self._lines, blocked, scalarizing)
        reaching = np.flatnonzero(bounds >= best) if best > -np.inf else np.sort(largest(bounds, most))
        return reaching, bounds[reaching]
