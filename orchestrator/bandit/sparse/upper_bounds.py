"""Upper bounds on every arm, derived from an earlier posterior, so that most arms need no new
moments after a refit.

Let μ̃₀ and σ̃₀ be the moments of an earlier posterior, the reference, computed for all arms. With ρ
and d of `certificate`,

    μ̃(x) + width · σ̃(x) ≤ μ̃(x) + width √ρ σ̃₀(x) ≤ μ̃₀(x) + (d + width √ρ) σ̃₀(x).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.curves import is_pair
from orchestrator.bandit.kernels import Kernel
from orchestrator.bandit.sparse.all_arms import AllArms
from orchestrator.bandit.sparse.blocks import BoundLine, Fit
from orchestrator.bandit.sparse.certificate import LADDER, Certificate, PosteriorShift, Rounding
from orchestrator.bandit.sparse.scalarization import Bound, Scalarizing

# approximate costs, in units of one arm in a sweep over all arms
TIGHTEN_COST = 0.4  # the cost of tightening a bound
LOOK_COST = 2.0  # the cost of computing the moments of one arm


@dataclass(frozen=True)
class Reference:
    """A posterior whose moments were computed for all arms."""

    fit: Fit  # the posterior
    rounding: Rounding  # bounds on its rounding errors


class Screen:
    """The reference of one model: the last posterior that was computed for all arms. A new sweep
    over all arms is made when the computations for single arms have cost as much as a sweep. The
    total cost is therefore at most about twice that of the best sweeps in hindsight. This cache
    changes no pick: bounds remain valid, and existing `UpperBounds` keep their reference.
    """

    def __init__(self, kernel: Kernel, regularization: float, largest_prior: float) -> None:
        self._kernel = kernel
        self._regularization = regularization
        self._prior = largest_prior  # κ²
        self._reference: Reference | None = None
        # the cost of computations for single arms since the reference, in units of one arm of a
        # sweep
        self._spent = 0.0
        self._rung = 0  # the index of the last ρ in `LADDER`

    def extend(self, largest_prior: float) -> "Screen":
        """Return a screen with the same reference and more arms. `largest_prior`: κ² of all
        arms."""
        screen = Screen(self._kernel, self._regularization, largest_prior)
        screen._reference = self._reference
        screen._spent = self._spent
        screen._rung = self._rung
        return screen

    def upper(self, all_arms: AllArms, fit: Fit, bounds: Sequence[Bound], blocked: Indices) -> "UpperBounds":
        """Return upper bounds on μ̃ + width · σ̃ of `fit` for each of `bounds`, −∞ for `blocked`
        arms. `fit` becomes the reference if the old one is too different or has cost too much."""
        present = Reference(fit, Rounding.of(fit, self._kernel))
        reference = self._reference
        shift = None
        if reference is not None and self._spent < all_arms.count:
            shift = self._certify(all_arms, reference, present)
        if reference is None or shift is None:
            reference = present
            shift = PosteriorShift.none(fit)
            self._reference = reference
            self._spent = 0.0
            self._rung = 0
        lines = [self._lines(reference, present, shift, output, width) for output, width in bounds]
        return UpperBounds(self, all_arms, fit, lines, blocked)

    def spend(self, arms: int, cost: float) -> None:
        """Add to the cost of computations for single arms."""
        self._spent += cost * arms

    def _certify(self, all_arms: AllArms, reference: Reference, present: Reference) -> PosteriorShift | None:
        """Return the shift of `present`; None if it is too far from the reference. The search for ρ
        begins just below the last rung."""
        old = reference.fit
        new = present.fit
        certificate = Certificate.of(old, new, self._cross(all_arms, old, new), self._regularization)
        rung = certificate.rung(max(self._rung - 1, 0))
        if rung is None:
            return None
        self._rung = rung
        return certificate.shift(LADDER[rung], reference.rounding.means_with(present.rounding))

    def _cross(self, all_arms: AllArms, old: Fit, new: Fit) -> Floats:
        """Return k(𝒮₀, 𝒮), from cached columns if the atoms are arms."""
        if is_pair(old.basis.arms).any() or is_pair(new.basis.arms).any():
            return self._kernel.cross(old.basis.features, new.basis.features)
        return all_arms.kernel_rows(old.basis.arms, new.basis)

    def _lines(
        self, reference: Reference, present: Reference, shift: PosteriorShift, output: int, width: float
    ) -> tuple[BoundLine, BoundLine]:
        """Return two bounds on one output, with the means of the fit and of the reference."""
        rho = shift.ratio
        d = shift.distances[output]
        # √(ρσ̃₀² + s) ≤ √ρ σ̃₀ + √s, so a single number for all arms bounds the effect of rounding
        variance = rho * reference.rounding.variance + present.rounding.variance + shift.slack
        deviations = width * variance**0.5 + d * (reference.rounding.variance + shift.slack) ** 0.5
        mean = present.rounding.means_with(reference.rounding)[output]
        constant = mean + deviations / float(np.sqrt(self._regularization))
        constant *= float(np.sqrt(self._prior))
        line = BoundLine(reference.fit, width * rho**0.5, constant, output)
        return line, replace(line, slope=line.slope + d)


class UpperBounds:
    """Upper bounds on all arms that were not evaluated: the `argmax_queue.RemainingArms` of all
    blocks, computed in a few passes.

    `lines`: the two bounds of `Screen` for each output. `take` returns bounds with the reference's
    means, `tighten` with the fit's means.
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
        self._requests = all_arms.requests(self._lines[0], blocked)
        self._tops = all_arms.tops(self._requests)
        self._below = [np.inf] * len(self._tops)  # per block: bounds from this value on were taken

    @property
    def top(self) -> float:
        """The largest bound."""
        return max(self._tops)

    def take(self, best: float, least: int) -> tuple[Indices, Floats, float]:
        """See `argmax_queue.RemainingArms.take`; applied to each block."""
        share = -(-least // self._all_arms.number)
        numbers = [number for number, top in enumerate(self._tops) if top >= best and top > -np.inf]
        requests = {number: (self._requests[number], self._below[number]) for number in numbers}
        answers = self._all_arms.take(requests, best, share)
        for number, taken in zip(numbers, answers, strict=True):
            self._tops[number] = taken.top
            self._below[number] = taken.threshold
        arms = [taken.arms for taken in answers]
        bounds = [taken.bounds for taken in answers]
        return np.concatenate(arms), np.concatenate(bounds), self.top

    def tighten(self, arms: Indices) -> Floats:
        """Return bounds (n,) for `arms` (n,) with the fit's means, each from one product with the
        arm's kernel row."""
        self._screen.spend(len(arms), TIGHTEN_COST)
        return self._all_arms.tighten(self._fit, self._own_lines[0], arms)

    def arms_reaching(
        self, blocked: Indices, scalarizing: Scalarizing, best: float, most: int
    ) -> tuple[Indices, Floats]:
        """Return the arms (n,) that are not `blocked`, ascending, whose bounds (n,) on the
        scalarized score are at least `best`.

        If `best` is −∞, return the `most` arms with the largest bounds of each block.
        """
        return self._all_arms.arms_reaching(self._lines, blocked, scalarizing, best, most)

    def tighten_all(self, arms: Indices) -> Floats:
        """Like `tighten`, for all lines: (L, n)."""
        self._screen.spend(len(arms), TIGHTEN_COST)
        return self._all_arms.tighten_all(self._fit, self._own_lines, arms)

    def count_looks(self, arms: int) -> None:
        """Add the cost of computing the moments of this number of single arms."""
        self._screen.spend(arms, LOOK_COST)
