"""Sets of candidates of a search space: the whole space, a grid, or drawn configurations.

The number of arms depends on the requested `size`:

* a finite space with at most `size` arms is enumerated, for any sampler; without `size`, one with
  at most `LARGEST_WHOLE_SET` arms;
* `sobol` and `random` draw `size` allowed points (`points` if there is no size); duplicates (of
  coarse integers) are removed, so fewer may remain;
* `grid` uses all choices and ordered values, and splits every range into the largest equal number
  of levels for which the arms stay within `size` (a range has no more levels than values).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives import coding, priors
from bbkb.objectives.coding import Codes
from bbkb.objectives.objective import Candidates, ObjectiveError
from bbkb.objectives.parameters import Range, Space, has_prior
from bbkb.objectives.space import (
    LARGEST_SIZE,
    LARGEST_WHOLE_SET,
    LEAST_DRAWS,
    SearchSpace,
    check_cells,
    draw_codes,
    enumerate_space,
    first_occurrences,
)

Sampler = Literal["sobol", "random", "grid"]

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

    Raises:
        ObjectiveError: if no parameter varies, the size is too small or too large, the sampler is
            unknown, no configuration is allowed, or one of `first` is not allowed.
    """
    full = space if isinstance(space, SearchSpace) else SearchSpace(space)
    _check_size(size, sampler)
    given = [full.code_of(configuration) for configuration in first]
    sampled, is_sequence = _sample(full, size, sampler, seed, points)
    codes = np.concatenate((*given, sampled)) if given else sampled
    unique = first_occurrences(codes)
    if len(unique) < len(codes):
        codes = codes[unique]
    check_cells(len(codes) * full.width)
    columns = full.columns_of(codes)
    del codes, sampled  # they take as much memory as the candidates
    for row, index in enumerate(unique[unique < len(first)]):
        full.put(columns, row, first[index])
    return replace(full.candidates_of(columns), is_sequence=is_sequence)


def _sample(space: SearchSpace, size: int | None, sampler: Sampler, seed: int, points: int) -> tuple[Codes, bool]:
    """Return sampled configurations (A, P), and whether they follow a sequence.

    In a small finite space, all other configurations follow a few sampled ones.
    """
    most = LARGEST_WHOLE_SET if size is None else size
    whole = enumerate_space(space, dict.fromkeys(space.parameters, math.inf), most)
    if whole is not None:
        front = _draw_existing(space, min(FIRST_ARMS, max(1, len(whole))), sampler, seed)
        sampled = np.concatenate((front, whole))
    elif sampler == "grid":
        sampled = _largest_grid(space, size or points)
    else:
        check_cells((size or points) * space.width)
        sampled = _draw_existing(space, size or points, sampler, seed)
    if not len(sampled):
        raise ObjectiveError(
            "forbid: its clauses leave hardly any configuration of the space, a search found none; narrow one of them"
        )
    return sampled, whole is not None or sampler != "grid"


def _check_size(size: int | None, sampler: str) -> None:
    if size is not None and not 1 <= size <= LARGEST_SIZE:
        limit = ">= 1" if size < 1 else f"<= {LARGEST_SIZE}"
        raise ObjectiveError(f"candidates.size must be {limit}, got {size}")
    if sampler not in ("sobol", "random", "grid"):
        raise ObjectiveError(f"candidates.sampler must be sobol, random or grid, got {sampler!r}")


def _draw_existing(space: SearchSpace, size: int, sampler: Sampler, seed: int) -> Codes:
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
        if is_informed:
            _draw_near_priors(space.parameters, columns, position_of, positions[:, -1])
            if not filled:
                expected = priors.expected_codes(space.parameters)
                columns[0, [list(space.parameters).index(name) for name in expected]] = list(expected.values())
        valid = space.existing(columns)
        valid = valid[space.is_allowed(valid)][: size - filled]
        codes[filled : filled + len(valid)] = valid
        filled += len(valid)
        if filled == size:
            break
    return codes[:filled]


def _draw_near_priors(
    parameters: Space, codes: Codes, positions: Mapping[str, NDArray[np.float64]], shares: NDArray[np.float64]
) -> None:
    """Draw about half of the points `codes` (size, P) near the values that are expected to be good:
    those whose position in `shares` (size,) is below ½."""
    near = np.flatnonzero(shares < 0.5)
    for column, (name, parameter) in enumerate(parameters.items()):
        if name in positions:
            codes[near, column] = priors.draw(parameter, positions[name][near])


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
