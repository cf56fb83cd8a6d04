"""Sets of candidates of a search space: the whole space, a grid, or drawn configurations.

The number of arms depends on the requested `size`:

* a finite space with at most `size` arms is enumerated, for any sampler; without `size`, one with
  at most `LARGEST_WHOLE_SET` arms;
* `sobol` and `random` draw `size` allowed points (`points` if there is no size); duplicates (of
  coarse integers) are removed, so fewer may remain;
* `grid` uses all choices and ordered values, and splits every range into the largest equal number
  of levels for which the arms stay within `size` (a range has no more levels than values).

`grow` draws new candidates around the best ones. Half of the new configurations are Gaussian steps
from one of the best, a quarter are copies of one of the best with one parameter redrawn, and a
quarter are crosses of two of them. The standard deviation of a step is c · min(ℓ, 1) in units of
features, where ℓ is the parameter's lengthscale and c is log-uniform in [`SMALLEST_STEP`,
`LARGEST_STEP`]. Steps end at the bounds. A step changes all real parameters and all integers with
many values. It changes one or two of the other parameters (up to two if there are real ones or
integers with many values): an ordered one by at least one value, a choice to any other value.

Parameters that do not exist in the parent are drawn, because their conditions may hold in the
child. Forbidden configurations and existing candidates are dropped.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives import coding
from bbkb.objectives.coding import Codes
from bbkb.objectives.objective import Candidates, ObjectiveError
from bbkb.objectives.parameters import LARGEST_SIZE, Choice, Parameter, Range, Sampler, Space, has_prior
from bbkb.objectives.space import (
    LARGEST_WHOLE_SET,
    LEAST_DRAWS,
    Mask,
    SearchSpace,
    check_cells,
    draw_codes,
    enumerate_space,
    first_occurrences,
)

DEFAULT_SIZE = 4096
GROWING_SIZE = 1024  # the number of drawn points if more are appended later
DRAWN = 2**16  # drawn at a time, which needs little memory
FIRST_ARMS = 256  # in an enumerated space: the number of sampled arms at the front
_MOST_DRAWS = 64  # in multiples of `size`; hardly any configuration is then allowed


def make_candidates(
    space: Space | SearchSpace,
    size: int | None = None,
    sampler: Sampler = "sobol",
    seed: int = 0,
    first: Sequence[Mapping[str, object]] = (),
    points: int = DEFAULT_SIZE,
    at_center: bool = False,
) -> Candidates:
    """Return candidates of `space` with features (A, d) in the unit cube.

    Args:
        space: parameters by name, or a space with forbidden clauses.
        size: the requested number of arms; the module's docstring explains the actual number.
        sampler: the method of drawing arms.
        seed: scrambles the Sobol sequence or drives the random draw. The same arguments result in
            the same candidates.
        first: configurations that become the first arms, in this order.
        points: the number of sampled arms if no size is given and the space is not enumerated.
        at_center: whether the first sampled arm is the center (`SearchSpace.first_codes`), which it always is in a
            space with priors.

    Raises:
        ObjectiveError: if no parameter varies, the size is too small or too large, the sampler is
            unknown, no configuration is allowed, or one of `first` is not allowed.
    """
    full = space if isinstance(space, SearchSpace) else SearchSpace(space)
    if size is not None and not 1 <= size <= LARGEST_SIZE:
        limit = ">= 1" if size < 1 else f"<= {LARGEST_SIZE}"
        raise ObjectiveError(f"candidates.size must be {limit}, got {size}")
    if sampler not in ("sobol", "random", "grid"):
        raise ObjectiveError(f"candidates.sampler must be sobol, random or grid, got {sampler!r}")
    given = [full.code_of(configuration) for configuration in first]
    at_center |= has_prior(full.parameters)
    most = LARGEST_WHOLE_SET if size is None else size
    whole = enumerate_space(full, dict.fromkeys(full.parameters, math.inf), most)
    if whole is not None:  # all other configurations follow a few sampled ones
        front = _draw_existing(full, min(FIRST_ARMS, max(1, len(whole))), sampler, seed, at_center)
        sampled = np.concatenate((front, whole))
    elif sampler == "grid":
        sampled = _largest_grid(full, size or points)
    else:
        check_cells((size or points) * full.width)
        sampled = _draw_existing(full, size or points, sampler, seed, at_center)
    if not len(sampled):
        raise ObjectiveError(
            "forbid: its clauses leave hardly any configuration of the space, a search found none; narrow one of them"
        )
    codes = np.concatenate((*given, sampled)) if given else sampled
    unique = first_occurrences(codes)
    if len(unique) < len(codes):
        codes = codes[unique]
    check_cells(len(codes) * full.width)
    columns = full.columns_of(codes)
    is_sequence = whole is not None or sampler != "grid"
    del codes, sampled, whole  # they take as much memory as the candidates
    for row, index in enumerate(unique[unique < len(first)]):
        full.put(columns, row, first[index])
    return replace(full.candidates_of(columns), is_sequence=is_sequence)


def _draw_existing(space: SearchSpace, size: int, sampler: Sampler, seed: int, at_center: bool) -> Codes:
    """Return the first `size` allowed configurations (≤ size, P) of the sampler, or fewer if hardly
    any is allowed."""
    varying = [name for name, parameter in space.parameters.items() if coding.count(parameter) != 1]
    codes = np.empty((size, len(space.parameters)))
    filled = 0
    is_informed = has_prior(space.parameters)
    most = size
    while most < max(_MOST_DRAWS * size, LEAST_DRAWS):
        most *= 2
    for positions in _positions(len(varying) + is_informed, size, most, sampler, seed):
        position_of = dict(zip(varying, positions.T, strict=False))
        columns = draw_codes(space.parameters, position_of, len(positions))
        if is_informed:  # about half of the points are near the values that are expected to be good
            near = np.flatnonzero(positions[:, -1] < 0.5)
            for column, (name, parameter) in enumerate(space.parameters.items()):
                if name in position_of:
                    columns[near, column] = coding.draw_near_prior(parameter, position_of[name][near])
        valid = space.existing(columns)
        if at_center and not filled and len(space.first_codes):
            valid[0] = space.first_codes[0]
        valid = valid[space.is_allowed(valid)][: size - filled]
        codes[filled : filled + len(valid)] = valid
        filled += len(valid)
        if filled == size:
            break
    return codes[:filled]


def _positions(dimensions: int, size: int, most: int, sampler: Sampler, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield at most `most` positions (n, dimensions) in [0, 1), in parts; about `size` of them are
    needed."""
    # a Sobol sequence is balanced only at powers of two, and its first part must have such a length
    rows = min(DRAWN, 1 << max(size - 1, 0).bit_length())
    parts = (min(rows, most - low) for low in range(0, most, rows))
    if sampler == "random":
        rng = np.random.default_rng(seed)
        yield from (rng.random((part, dimensions)) for part in parts)
    else:
        from scipy.stats import qmc  # half a second, which a table and a grid do not need

        sequence = qmc.Sobol(dimensions, scramble=True, seed=seed)
        yield from (sequence.random(part) for part in parts)


def _largest_grid(space: SearchSpace, size: int) -> Codes:
    """Return the largest grid of at most `size` arms. Raises ObjectiveError if none fits."""

    def levels_of(levels: int) -> dict[str, float]:
        return {
            name: levels if isinstance(parameter, Range) else math.inf for name, parameter in space.parameters.items()
        }

    best = enumerate_space(space, levels_of(2), size)
    if best is None:
        least = enumerate_space(space, levels_of(2), LARGEST_WHOLE_SET)
        rule = "larger" if least is None else f">= {len(least)}"
        raise ObjectiveError(
            f"candidates.size must be {rule} for a grid of this space, got {size}; raise it or use sampler: sobol"
        )
    fitting = 2
    too_many = size + 1  # because the whole space does not fit
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        codes = enumerate_space(space, levels_of(middle), size)
        if codes is None:
            too_many = middle
        else:
            fitting = middle
            best = codes
    return best


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
    scales = iter(lengthscales)
    # min(ℓ, 1) of every parameter; 1 for parameters without features
    steps = [min(next(scales), 1.0) if coding.width(parameter) else 1.0 for parameter in space.parameters.values()]
    children = _Children(space, space.encode(columns), np.array(steps), rng).draw(count)
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
            crossed = missing - stepped - redrawn
            parts = [self._step(stepped), self._redraw(redrawn)]
            (first, _), (second, _) = self._choose(crossed), self._choose(crossed)
            parts.append(np.where(self._rng.random(first.shape) < 0.5, first, second))
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
        positions = self._rng.random((count, len(self._kinds)))
        return np.stack([coding.draw(kind, positions[:, column]) for column, kind in enumerate(self._kinds)], axis=1)

    def _step(self, count: int) -> Codes:
        codes, has = self._choose(count)
        scale = np.exp(self._rng.uniform(np.log(SMALLEST_STEP), np.log(LARGEST_STEP), count))[:, None]
        steps = scale * self._steps * self._rng.standard_normal(codes.shape)
        # of the parameters with few values, one or two in each row change, or none
        eligible = has & self._varying & ~self._fine
        number = self._rng.integers(0 if self._fine.any() else 1, 3, size=len(has))
        order = np.argsort(np.where(eligible, self._rng.random(has.shape), 2.0), axis=1)
        is_moved = has & self._fine | eligible & (np.argsort(order, axis=1) < number[:, None])
        for column, kind in enumerate(self._kinds):
            rows = np.flatnonzero(is_moved[:, column])
            codes[rows, column] = self._move(kind, codes[rows, column], steps[rows, column], not self._fine[column])
        return codes

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


def perturb(
    space: SearchSpace,
    candidates: Candidates,
    parents: Sequence[int],
    factors: Sequence[float],
    resample_probability: float,
    rng: np.random.Generator,
) -> Candidates:
    """Return one new arm for each of `parents`, arms that may be repeated; a copy of the parent if
    all attempts are forbidden.

    `factors` on numbers, one of which is drawn for each parameter. `resample_probability` is that
    of a new draw, for each parameter.
    """
    codes = space.encode({name: column[list(parents)] for name, column in candidates.columns.items()})
    kinds = list(space.parameters.values())
    for row in codes:
        for _ in range(_ROUNDS):
            values = [
                _moved(kind, code, float(rng.choice(factors)), rng.random() < resample_probability, rng.random())
                for kind, code in zip(kinds, row, strict=True)
            ]
            child = space.existing(np.array([values]))
            if space.is_allowed(child)[0]:
                row[:] = child[0]
                break
    return space.candidates(codes)


def _moved(kind: Parameter, code: float, factor: float, is_redrawn: bool, position: float) -> float:
    if is_redrawn or np.isnan(code):
        return float(coding.draw(kind, np.array([position]))[0])
    if isinstance(kind, Choice):
        return code
    moved = code
    sign = 1.0
    if isinstance(kind, Range):
        value = float(coding.values(kind, np.array([code]))[0])
        target = np.clip(value * factor, kind.low, kind.high)
        moved = float(coding.encode(kind, np.array([target]))[0])
        sign = np.sign(value) or 1.0
    if coding.is_real(kind):
        return float(np.clip(moved, 0.0, 1.0))
    if moved == code:
        moved += sign if factor > 1.0 else -sign
    return float(np.clip(moved, 0.0, coding.count(kind) - 1.0))
