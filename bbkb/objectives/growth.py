"""Draws new candidates around the best ones, so that a pool of arms grows during a search.

Half of the new configurations are Gaussian steps from one of the best, a quarter are copies of one
of the best with one parameter redrawn, and a quarter are crosses of two of them. The standard
deviation of a step is c · min(ℓ, 1) in units of features, where ℓ is the parameter's lengthscale
and c is log-uniform in [`SMALLEST_STEP`, `LARGEST_STEP`]. Steps end at the bounds. A step changes
all real parameters and all integers with many values. It changes one or two of the other parameters
(up to two if there are real ones or integers with many values): an ordered one by at least one
value, a choice to any other value.

Parameters that do not exist in the parent are drawn, because their conditions may hold in the
child. Forbidden configurations and existing candidates are dropped.
"""

from collections.abc import Sequence

import numpy as np

from bbkb.objectives import coding
from bbkb.objectives.coding import Codes
from bbkb.objectives.constraints import Mask
from bbkb.objectives.objective import Candidates
from bbkb.objectives.parameters import Choice, Parameter, Range
from bbkb.objectives.space import SearchSpace, first_occurrences

SMALLEST_STEP = 0.01
LARGEST_STEP = 0.5
FINE = 32  # integers with at least this many values are changed like real numbers

_ROUNDS = 8  # the largest number of rounds in which forbidden configurations are redrawn


def grow(
    space: SearchSpace,
    candidates: Candidates,
    around: Sequence[int],
    lengthscales: Sequence[float],
    count: int,
    rng: np.random.Generator,
) -> Candidates | None:
    """Return at most `count` new arms of `space` around the best arms, `around`, at least one; None
    if every drawn configuration is forbidden or already a candidate.

    `lengthscales` (p,) has one for each parameter that has features, in units of its features.
    """
    columns = {name: column[list(around)] for name, column in candidates.columns.items()}
    children = _Children(space, space.encode(columns), _steps(space, lengthscales), rng).draw(count)
    children_of_space = space.candidates(children)
    fresh = first_occurrences(np.concatenate((candidates.features, children_of_space.features)))
    fresh = fresh[fresh >= len(candidates)] - len(candidates)
    if not len(fresh):
        return None
    return space.candidates_of({name: column[fresh] for name, column in children_of_space.columns.items()})


def join(space: SearchSpace, candidates: Candidates, appended: Candidates) -> Candidates:
    """Return `candidates` followed by the candidates of `appended`."""
    columns = {name: np.concatenate((candidates.columns[name], appended.columns[name])) for name in space.parameters}
    features = np.concatenate((candidates.features, appended.features))
    kinds = (candidates.parameter_of, candidates.repeats, candidates.conditional, candidates.is_sequence)
    priors = [part.log_prior for part in (candidates, appended) if part.log_prior is not None]
    return Candidates(features, columns, *kinds, log_prior=np.concatenate(priors) if priors else None)


def _steps(space: SearchSpace, lengthscales: Sequence[float]) -> Codes:
    """Return min(ℓ, 1) of every parameter (P,); 1 for parameters without features."""
    values = iter(lengthscales)
    return np.array(
        [min(next(values), 1.0) if coding.width(parameter) else 1.0 for parameter in space.parameters.values()]
    )


class _Children:
    """Draws configurations from `parents` (n, P), codes; `steps` (P,) scale Gaussian steps."""

    def __init__(self, space: SearchSpace, parents: Codes, steps: Codes, rng: np.random.Generator) -> None:
        self._space = space
        self._parents = parents
        self._steps = steps
        self._rng = rng
        self._kinds = list(space.parameters.values())
        self._varying = np.array([coding.count(kind) > 1 for kind in self._kinds])
        self._fine = np.array([isinstance(kind, Range) and coding.count(kind) >= FINE for kind in self._kinds])

    def draw(self, count: int) -> Codes:
        """Return allowed configurations (≤ count, P), some of them perhaps equal."""
        allowed = np.empty((0, len(self._kinds)))
        for _ in range(_ROUNDS):
            missing = count - len(allowed)
            stepped = -(-missing // 2)
            redrawn = missing // 4
            parts = (self._step(stepped), self._redraw(redrawn), self._cross(missing - stepped - redrawn))
            children = self._space.existing(np.concatenate(parts))
            allowed = np.concatenate((allowed, children[self._space.is_allowed(children)]))
            if len(allowed) >= count:
                break
        return allowed

    def _choose(self, count: int) -> tuple[Codes, Mask]:
        """Return parents (count, P) with drawn values for missing codes, and the mask of the codes
        that were not missing."""
        codes = self._parents[self._rng.integers(len(self._parents), size=count)]
        has: Mask = ~np.isnan(codes)
        return np.where(has, codes, self._fresh(count)), has

    def _fresh(self, count: int) -> Codes:
        """Return new codes (count, P) for all parameters."""
        positions = self._rng.random((count, len(self._kinds)))
        return np.stack([coding.draw(kind, positions[:, column]) for column, kind in enumerate(self._kinds)], axis=1)

    def _step(self, count: int) -> Codes:
        codes, has = self._choose(count)
        scale = np.exp(self._rng.uniform(np.log(SMALLEST_STEP), np.log(LARGEST_STEP), count))[:, None]
        steps = scale * self._steps * self._rng.standard_normal(codes.shape)
        is_moved = has & (self._fine | self._coarse(has))
        for column, kind in enumerate(self._kinds):
            rows = np.flatnonzero(is_moved[:, column])
            codes[rows, column] = self._move(kind, codes[rows, column], steps[rows, column], not self._fine[column])
        return codes

    def _coarse(self, has: Mask) -> Mask:
        """Draw which parameters with few values change (count, P): one or two per row, or none."""
        eligible = has & self._varying & ~self._fine
        number = self._rng.integers(0 if self._fine.any() else 1, 3, size=len(has))
        order = np.argsort(np.where(eligible, self._rng.random(has.shape), 2.0), axis=1)
        rank = np.argsort(order, axis=1)
        moved: Mask = eligible & (rank < number[:, None])
        return moved

    def _move(self, kind: Parameter, codes: Codes, steps: Codes, is_coarse: bool) -> Codes:
        """Return `codes` (n,) plus `steps` (n,), changed by at least one value if `is_coarse`."""
        if coding.is_real(kind):
            return np.clip(codes + steps, 0.0, 1.0)
        largest = coding.count(kind) - 1.0
        if isinstance(kind, Choice):
            return np.mod(codes + self._rng.integers(1, int(largest) + 1, len(codes)), largest + 1.0)
        places = np.clip(coding.places(kind, codes) + steps, 0.0, 1.0)
        moved = coding.nearest(kind, places)
        if is_coarse:
            ahead = np.where((steps >= 0) & (codes < largest) | (codes == 0), 1.0, -1.0)
            moved = np.where(moved == codes, codes + ahead, moved)
        return moved

    def _redraw(self, count: int) -> Codes:
        codes, has = self._choose(count)
        order = np.where(has & self._varying, self._rng.random(has.shape), -1.0)
        rows = np.arange(count)
        columns = order.argmax(axis=1)
        codes[rows, columns] = self._fresh(count)[rows, columns]
        return codes

    def _cross(self, count: int) -> Codes:
        (first, _) = self._choose(count)
        (second, _) = self._choose(count)
        return np.where(self._rng.random(first.shape) < 0.5, first, second)
