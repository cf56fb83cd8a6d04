"""Upper bounds on every arm from an earlier posterior: after a refit most arms need no new moments.

A sparse posterior is the Gaussian process of an operator M = λI + P Φᵀ diag(n) Φ P on the feature
space, P being the projection on the dictionary's span: with θ its weights, σ̃²(x) = φ(x)ᵀ M⁻¹ φ(x)
and μ̃(x) = φ(x)ᵀ θ. Let (M₀, θ₀) be an earlier posterior, the reference, whose moments were
computed for all arms. For any two posteriors and every x

    σ̃²(x) ≤ ρ σ̃₀²(x)               if M₀ ⪯ ρ M
    |μ̃(x) − μ̃₀(x)| ≤ d σ̃₀(x)       with d² = (θ − θ₀)ᵀ M₀ (θ − θ₀), by the Cauchy-Schwarz inequality

and so u(x) ≤ μ̃₀(x) + (d + width √ρ) σ̃₀(x). Both numbers come from m × m matrices and hold with
certainty, for any pulls in between. (Theorem 1 of BBKB, σ²/3 ≤ σ̃² ≤ 3σ² with high probability,
gives a factor of 9 for ρ.)

With H = diag(b)^{1/2} T of `posterior`, M⁻¹ = (I − Φ_𝒮ᵀ Hᵀ H Φ_𝒮)/λ and H K_𝒮 Hᵀ = diag(b/(b + λ)).
By two Schur complements M₀ ⪯ ρ M, which is M⁻¹ ⪯ ρ M₀⁻¹, if and only if

    ((ρ − 1)/ρ) I − H₀ K_𝒮₀ H₀ᵀ + X ((ρ − 1) I + H K_𝒮 Hᵀ)⁻¹ Xᵀ ⪰ 0,       X = H₀ k(𝒮₀, 𝒮) Hᵀ,

one matrix product and one Cholesky factorisation a value of ρ. Where rounding leaves a negative
eigenvalue −η undetected, the bound on σ̃² is off by at most ρ²η/((ρ − 1)λ).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.curves import is_pair
from orchestrator.bandit.kernels import Kernel
from orchestrator.bandit.sparse.all_arms import AllArms
from orchestrator.bandit.sparse.blocks import BoundLine, Fit
from orchestrator.bandit.sparse.columns import Points
from orchestrator.bandit.sparse.scalarisation import Bound, Scalarising

LADDER = (1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 4.0, 6.0, 9.0)  # values of ρ that are tried
# Allowances for rounding: of a sum against that of its magnitudes (`Rounding`); of an eigenvalue of
# the matrix above, whose entries are at most 1; and of X, a product like H K Hᵀ, against the errors
# seen in that (`Fit.defect`).
ROUNDING, EIGENVALUE_ROUNDING, DEFECTS = 16 * float(np.finfo(np.float64).eps), 1e-12, 2.0
# Approximate costs of a tightened bound and of a computed arm, in units of one arm in a sweep over
# all arms.
TIGHTEN_COST, LOOK_COST = 0.4, 2.0


class Rounding:
    """Bounds on the rounding errors of a posterior, from the magnitudes of the terms of y(x) = T
    k_𝒮(x).

    A near-singular K_𝒮 gives a T with entries up to 1e7 that nearly cancel, so no fixed allowance
    is right for all. Relative: `variance` of σ̃² to the prior's, `mean` of μ̃ to √k(x, x);
    `further` (K,) of further outputs' μ̃.
    """

    def __init__(self, fit: Fit, kernel: Kernel) -> None:
        terms = np.abs(fit.transform) @ np.sqrt(kernel.diagonal(fit.basis.features))  # of y(x) / √k(x, x), at most
        self.variance = ROUNDING * (2.0 * float(np.linalg.norm(np.sqrt(fit.spectrum) * terms)) + 1.0)
        self.mean = ROUNDING * float(np.abs(fit.loadings) @ terms)
        self.further = tuple(ROUNDING * float(np.abs(loadings) @ terms) for loadings in fit.further_loadings)


@dataclass(frozen=True)
class PosteriorShift:
    """The difference of a posterior from the reference: `ratio` ρ and `distance` d. `slack`: the
    rounding error of ρ σ̃₀², relative to the prior. `further` (K,): d of further outputs.
    """

    ratio: float
    distance: float
    slack: float
    further: tuple[float, ...]


class Screen:
    """The reference of one model: the last posterior that was computed for all arms. A new sweep
    over all arms is made when the work on single arms has cost as much as one, so all the work is
    at most about twice that of the best choice of sweeps in hindsight. This cache changes no pick:
    bounds remain valid, and existing `UpperBounds` keep their reference.
    """

    def __init__(self, kernel: Kernel, regularization: float, largest_prior: float) -> None:
        self._kernel, self._regularization = kernel, regularization
        self._prior = largest_prior  # κ²
        self._reference: tuple[Fit, Rounding] | None = None
        self._spent = 0.0
        self._rung = 0

    def extend(self, largest_prior: float) -> "Screen":
        """Return a screen with the same reference, for these arms and more of them;
        `largest_prior`: κ² of all."""
        screen = Screen(self._kernel, self._regularization, largest_prior)
        screen._reference, screen._spent, screen._rung = self._reference, self._spent, self._rung
        return screen

    def upper(self, all_arms: AllArms, fit: Fit, bounds: Sequence[Bound], blocked: Indices) -> "UpperBounds":
        """Return upper bounds on μ̃ + width · σ̃ of `fit` for each of `bounds`; −∞ for the arms
        `blocked`."""
        rounding = Rounding(fit, self._kernel)
        drift = self._nearby(all_arms, fit, rounding)
        old, reference = self._reference or (fit, rounding)
        # √(ρσ̃₀² + s) ≤ √ρ σ̃₀ + √s, so all that rounding may do is one number for all arms
        variances = drift.ratio * reference.variance + rounding.variance + drift.slack

        distances = (drift.distance, *drift.further)
        means = (rounding.mean + reference.mean, *map(sum, zip(rounding.further, reference.further, strict=True)))

        def lines(output: int, width: float) -> tuple[BoundLine, BoundLine]:
            """Return bounds on one output: to be used with the fit's own means, and with those of
            its reference."""
            distance = distances[output]
            deviations = width * variances**0.5 + distance * (reference.variance + drift.slack) ** 0.5
            constant = means[output] + deviations / float(np.sqrt(self._regularization))
            constant *= float(np.sqrt(self._prior))
            own = BoundLine(old, width * drift.ratio**0.5, constant, output)
            return own, replace(own, slope=own.slope + distance)

        return UpperBounds(self, all_arms, fit, [lines(*one) for one in bounds], blocked)

    def spend(self, arms: int, cost: float) -> None:
        """Add to the work on single arms."""
        self._spent += cost * arms

    def _nearby(self, all_arms: AllArms, fit: Fit, rounding: Rounding) -> PosteriorShift:
        """Return the drift since the reference; `fit` becomes the reference when the old one is too
        far or has cost too much."""
        if self._reference is not None and self._spent < all_arms.count:
            old, before = self._reference
            cross = self._between(all_arms, old.basis, fit.basis)
            means = (before.mean + rounding.mean, *map(sum, zip(before.further, rounding.further, strict=True)))
            drift = self._drift(old, fit, cross, means)
            if drift is not None:
                return drift
        self._reference, self._spent, self._rung = (fit, rounding), 0.0, 0
        return PosteriorShift(1.0, 0.0, 0.0, (0.0,) * len(fit.further_loadings))

    def _between(self, all_arms: AllArms, old: Points, new: Points) -> Floats:
        """Return k(𝒮₀, 𝒮): from kept columns where the atoms are arms."""
        if is_pair(old.arms).any() or is_pair(new.arms).any():
            return self._kernel.cross(old.features, new.features)
        return all_arms.kernel_rows(old.arms, new)

    def _drift(self, old: Fit, new: Fit, cross: Floats, means: Sequence[float]) -> PosteriorShift | None:
        """Return how far `new` is from `old`; None when it is too far. `cross`: k(𝒮₀, 𝒮); `means`
        (J,): rounding of both means of each output."""
        product = old.transform @ cross @ new.transform.T
        rho = self._ratio(old, new, product)
        if rho is None:
            return None
        doubt = DEFECTS * (old.defect + new.defect)  # what rounding may do to X
        slack = rho**2 / (rho - 1.0) * (2.0 * doubt / (rho - 1.0) + EIGENVALUE_ROUNDING)
        # ‖θ − θ₀‖² is what is left of sums of magnitude (`mean` / ROUNDING)² that nearly cancel
        lost = float(np.sqrt(self._regularization / ROUNDING))
        pairs = [(old.loadings, new.loadings), *zip(old.further_loadings, new.further_loadings, strict=True)]
        distances = [
            self._distance((old, was), (new, now), product, doubt) + lost * mean
            for (was, now), mean in zip(pairs, means, strict=True)
        ]
        return PosteriorShift(rho, distances[0], slack, tuple(distances[1:]))

    def _ratio(self, old: Fit, new: Fit, product: Floats) -> float | None:
        """Return the first ρ of the ladder that is certified, beginning one rung below the last one
        that was."""
        explained = new.spectrum / (new.spectrum + self._regularization)  # H K Hᵀ
        diagonal = old.spectrum / (old.spectrum + self._regularization)  # H₀ K₀ H₀ᵀ
        cross = np.sqrt(old.spectrum)[:, None] * product * np.sqrt(new.spectrum)  # X
        for rung in range(max(self._rung - 1, 0), len(LADDER)):
            rho = LADDER[rung]
            matrix = (cross / (rho - 1.0 + explained)) @ cross.T
            matrix.flat[:: len(matrix) + 1] += (rho - 1.0) / rho - diagonal + EIGENVALUE_ROUNDING
            if _is_positive_definite(matrix):
                self._rung = rung
                return rho
        return None

    def _distance(
        self, before_refit: tuple[Fit, Floats], after_refit: tuple[Fit, Floats], product: Floats, doubt: float
    ) -> float:
        """Return d in orthonormal coordinates of the two spans, in which θ is loadings / (b +
        λ)^{1/2}; `doubt`: of X.

        A fit is given with the loadings (r,) of one output.
        """
        (old, old_loadings), (new, new_loadings) = before_refit, after_refit
        roots = np.sqrt(old.spectrum + self._regularization)
        before, now = old_loadings / roots, new_loadings / np.sqrt(new.spectrum + self._regularization)
        seen = roots * (product @ new_loadings)  # θ in the old coordinates
        norm = before @ before + now @ now - 2.0 * before @ seen  # ‖θ − θ₀‖²
        squared = float(self._regularization * norm + old.spectrum @ (seen - before) ** 2)
        floor = np.finfo(np.float64).eps * new.spectrum.max(initial=0.0) + np.finfo(np.float64).tiny
        error = doubt * float(np.linalg.norm(new_loadings / np.sqrt(np.maximum(new.spectrum, floor))))
        error = (error + ROUNDING * float(np.linalg.norm(before))) * float(roots.max(initial=0.0))
        return float(np.sqrt(max(squared, 0.0))) + error


class UpperBounds:
    """Upper bounds on all arms that were not looked at: `lazy.RemainingArms` of all blocks, at a
    few passes over them.

    `lines`: bounds to be used with the means of `fit`, and the same with those of its reference.
    `take` gives bounds of the first kind.
    """

    def __init__(
        self,
        screen: Screen,
        all_arms: AllArms,
        fit: Fit,
        lines: Sequence[tuple[BoundLine, BoundLine]],
        blocked: Indices,
    ) -> None:
        self._screen, self._all_arms, self._fit = screen, all_arms, fit
        self._own, self._lines = (tuple(some) for some in zip(*lines, strict=True))
        self._requests = all_arms.requests(self._lines[0], blocked)
        self._tops = all_arms.tops(self._requests)
        self._below = [np.inf] * len(self._tops)  # bounds from there on are taken

    @property
    def top(self) -> float:
        """The largest bound."""
        return max(self._tops)

    def take(self, best: float, least: int) -> tuple[Indices, Floats, float]:
        """See `lazy.RemainingArms.take`: of each block."""
        share = -(-least // self._all_arms.number)
        numbers = [number for number, top in enumerate(self._tops) if top >= best and top > -np.inf]
        wanted = {number: (self._requests[number], self._below[number]) for number in numbers}
        answers = self._all_arms.take(wanted, best, share)
        for number, taken in zip(numbers, answers, strict=True):
            self._tops[number], self._below[number] = taken.top, taken.threshold
        arms, bounds = [taken.arms for taken in answers], [taken.bounds for taken in answers]
        return np.concatenate(arms), np.concatenate(bounds), self.top

    def tighten(self, arms: Indices) -> Floats:
        """Return bounds for `arms` (n,) with their own means, one product with the dictionary's
        kernel rows each: (n,)."""
        self._screen.spend(len(arms), TIGHTEN_COST)
        return self._all_arms.tighten(self._fit, self._own[0], arms)

    def arms_reaching(
        self, blocked: Indices, scalarising: Scalarising, best: float, most: int
    ) -> tuple[Indices, Floats]:
        """Return arms (n,) but `blocked`, ascending, whose bounds (n,) on the scalarised score
        reach `best`.

        If that is −∞: of each block the `most` arms of largest bounds.
        """
        return self._all_arms.arms_reaching(self._lines, blocked, scalarising, best, most)

    def tighten_all(self, arms: Indices) -> Floats:
        """As `tighten`, for all lines: (L, n)."""
        self._screen.spend(len(arms), TIGHTEN_COST)
        return self._all_arms.tighten_all(self._fit, self._own, arms)

    def looked_at(self, arms: int) -> None:
        """Add the cost of this number of arms whose moments were computed one by one."""
        self._screen.spend(arms, LOOK_COST)


def _is_positive_definite(matrix: Floats) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True
