"""Upper bounds on every arm, derived from an earlier posterior, so that most arms need no new
moments after a refit.

Let μ̃₀ and σ̃₀ be the moments of an earlier posterior, the reference, computed for all arms. With ρ
and d of `certificate`,

    μ̃(x) + width · σ̃(x) ≤ μ̃(x) + width √ρ σ̃₀(x) ≤ μ̃₀(x) + (d + width √ρ) σ̃₀(x).
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.curves import is_pair
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.sparse.all_arms import Blocks
from bbkb.orchestrator.bandit.sparse.blocks import Block, BoundLine, BoundRequest, Fit
from bbkb.orchestrator.bandit.sparse.certificate import Certificate, PosteriorShift, Rounding
from bbkb.orchestrator.bandit.sparse.scalarization import Bound, Scalarizing

# the cost of tightening the bound of an arm and computing its moments, in units of one arm in a
# sweep over all arms
COST = 1.5


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

    def __init__(self, kernel: Kernel, largest_prior: float) -> None:
        self._kernel = kernel
        self._prior = largest_prior  # κ²
        self._reference: Reference | None = None
        # the cost of computations for single arms since the reference, in units of one arm of a
        # sweep
        self._spent = 0.0

    def extend(self, largest_prior: float) -> "Screen":
        """Return a screen with the same reference, for more arms, whose κ² is `largest_prior`."""
        screen = copy(self)
        screen._prior = largest_prior
        return screen

    def upper(self, all_arms: Blocks, fit: Fit, bounds: Sequence[Bound], blocked: Indices) -> "UpperBounds":
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
        lines = [self._lines(reference, present, shift, output, width) for output, width in bounds]
        return UpperBounds(self, all_arms, fit, lines, blocked)

    def spend(self, arms: int) -> None:
        """Add computations for this number of single arms."""
        self._spent += COST * arms

    def _certify(self, all_arms: Blocks, reference: Reference, present: Reference) -> PosteriorShift | None:
        """Return the shift of `present`; None if it is too far from the reference."""
        old = reference.fit
        new = present.fit
        if is_pair(old.basis.arms).any() or is_pair(new.basis.arms).any():
            cross = self._kernel.cross(old.basis.features, new.basis.features)
        else:  # from cached columns
            cross = all_arms.kernel_rows(old.basis.arms, new.basis)
        certificate = Certificate.of(old, new, cross)
        return certificate.shift(reference.rounding.means_with(present.rounding)) if certificate.holds() else None

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
        constant = mean + deviations / float(np.sqrt(reference.fit.regularization))
        constant *= float(np.sqrt(self._prior))
        line = BoundLine(reference.fit, width * rho**0.5, constant, output)
        return line, replace(line, slope=line.slope + d)


class UpperBounds:
    """Upper bounds on all arms that were not evaluated: the `argmax_queue.RemainingArms` of all
    blocks, computed in a few passes.

    `lines`: the two bounds of `Screen` for each output. `take` returns bounds on the first output
    with the reference's means, `tighten` bounds with the fit's means.
    """

    def __init__(
        self,
        screen: Screen,
        all_arms: Blocks,
        fit: Fit,
        lines: Sequence[tuple[BoundLine, BoundLine]],
        blocked: Indices,
    ) -> None:
        self._screen = screen
        self._all_arms = all_arms
        self._fit = fit
        self._own_lines, self._lines = (tuple(some) for some in zip(*lines, strict=True))
        self._requests = self._requests_without(blocked)
        tops = [partial(Block.top, request=each) for each in self._requests]
        self._tops = all_arms.ask(list(enumerate(tops)))
        self._below = [np.inf] * len(self._tops)  # per block: bounds from this value on were taken

    @property
    def top(self) -> float:
        """The largest bound."""
        return max(self._tops)

    def take(self, best: float, least: int) -> tuple[Indices, Floats]:
        """See `argmax_queue.RemainingArms.take`; applied to each block."""
        query = partial(Block.take, best=best, least=-(-least // self._all_arms.number))
        numbers = [number for number, top in enumerate(self._tops) if top >= best and top > -np.inf]
        answers = self._all_arms.ask(
            [(at, partial(query, request=self._requests[at], below=self._below[at])) for at in numbers]
        )
        for number, taken in zip(numbers, answers, strict=True):
            self._tops[number] = taken.top
            self._below[number] = taken.threshold
        return self._joined(numbers, [(taken.arms, taken.bounds) for taken in answers])

    def tighten(self, arms: Indices) -> Floats:
        """Return bounds (L, n) on each output of `arms` (n,) with the fit's means, from one product
        with the arms' kernel rows."""
        self._screen.spend(len(arms))
        return self._all_arms.tighten(self._fit, self._own_lines, arms)

    def arms_reaching(
        self, blocked: Indices, scalarizing: Scalarizing, best: float, most: int
    ) -> tuple[Indices, Floats]:
        """Return the arms (n,) that are not `blocked`, ascending, whose bounds (n,) on the
        scalarized score are at least `best`.

        If `best` is −∞, return the `most` arms with the largest bounds of each block.
        """
        query = partial(Block.arms_reaching, scalarizing=scalarizing, best=best, most=most)
        queries = [partial(query, request=each) for each in self._requests_without(blocked)]
        answers = self._all_arms.ask(list(enumerate(queries)))
        return self._joined(range(len(answers)), answers)

    def _requests_without(self, blocked: Indices) -> list[BoundRequest]:
        """Return a request to each block, with the bound −∞ for `blocked` arms."""
        return [BoundRequest(self._lines, part) for part in self._all_arms.within(blocked)]

    def _joined(
        self, numbers: Sequence[int], answers: Sequence[tuple[Indices, Floats]]
    ) -> tuple[Indices, Floats]:  # fmt: skip
        """Return the arms (n,) and bounds (n,) of some blocks' answers, which have positions."""
        starts = self._all_arms.starts[list(numbers)]
        arms = [positions + start for start, (positions, _) in zip(starts, answers, strict=True)]
        return np.concatenate(arms), np.concatenate([bounds for _, bounds in answers])
