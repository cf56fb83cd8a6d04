"""A search space becomes candidates: the finite set of arms a bandit chooses from.

Each parameter has a position in the unit interval; a sampler draws positions, positions become values, values become
features. Features are what the kernel sees, so one lengthscale suits every parameter:

* `Range` is one feature in [0, 1], linear or logarithmic; an integer stands where its value lies on that scale;
* `Ordinal` is one feature, equally spaced in [0, 1];
* `Choice` is one-hot divided by √2, so that two different choices are at distance 1;
* `Constant`, and a choice of one, is no feature.

How many arms come out, `size` being what was asked for:

* a finite space of at most `size` arms is taken whole, whatever the sampler; so is every finite space without `size`;
* `sobol` and `random` draw `size` points; arms that come up twice (coarse integers) are kept once, so fewer may remain;
* `grid` takes choices and ordinals in full and splits every range into the largest equal number of levels whose
  product stays within `size` (an integer range has no more levels than values).
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from ConfigSpace.hyperparameters.hp_components import UnitScaler
from numpy.typing import NDArray
from scipy.stats import qmc

from objectives.objective import Candidates, ObjectiveError
from objectives.parameters import Choice, Constant, Ordinal, Parameter, Range, Scalar, Space

__all__ = ["Choice", "Constant", "Ordinal", "Parameter", "Range", "Sampler", "Scalar", "Space", "make_candidates"]

Sampler = Literal["sobol", "random", "grid"]

LARGEST_SET = 10_000_000  # candidates made without being asked for by number; beyond it a size must be given
LARGEST_WHOLE = 2**53  # integers beyond it have no exact float64 feature


def make_candidates(space: Space, size: int | None = None, sampler: Sampler = "sobol", seed: int = 0) -> Candidates:
    """Candidates of `space`: features (A, d) in the unit cube, one column a parameter in the space's order.

    `size` is the number asked for (see the module's text for how many come out), `seed` scrambles the Sobol sequence
    or drives the random draw. The same arguments give the same candidates.

    Raises ObjectiveError when nothing varies, a size is needed or too small, or the sampler is unknown.
    """
    _check(space, size, sampler)
    varying = {name: parameter for name, parameter in space.items() if _levels(parameter) != 1}
    levels = [_levels(parameter) for parameter in varying.values()]
    whole = math.prod(levels)
    if whole <= (LARGEST_SET if size is None else size):
        positions = _grid(varying, [int(count) for count in levels])
    elif size is None:
        raise ObjectiveError(f"candidates.size must be given: the space has {_count(whole)} arms; add e.g. size: 4096")
    elif sampler == "grid":
        positions = _grid(varying, _grid_levels(varying, size))
    else:
        positions = _sample(len(varying), size, sampler, seed)
    return _candidates(space, dict(zip(varying, positions.T, strict=True)))


def _check(space: Space, size: int | None, sampler: str) -> None:
    if all(_levels(parameter) == 1 for parameter in space.values()):
        raise ObjectiveError("space must hold a parameter that varies; add a range ({low: …, high: …}) or choices")
    if size is not None and size < 1:
        raise ObjectiveError(f"candidates.size must be >= 1, got {size}")
    if sampler not in ("sobol", "random", "grid"):
        raise ObjectiveError(f"candidates.sampler must be sobol, random or grid, got {sampler!r}")
    for name, parameter in space.items():
        if isinstance(parameter, Range) and parameter.integer and max(-parameter.low, parameter.high) > LARGEST_WHOLE:
            raise ObjectiveError(f"space.{name} must stay within ±2^53 for integers, got {parameter}")


def _count(levels: float) -> str:
    return "infinitely many" if math.isinf(levels) else f"{levels:.3g}"


def _levels(parameter: Parameter) -> float:
    """How many values a parameter can take; infinity for a real range."""
    match parameter:
        case Range():
            return int(parameter.high) - int(parameter.low) + 1 if parameter.integer else math.inf
        case Choice(choices=values) | Ordinal(ordered=values):
            return len(values)
        case Constant():
            return 1


def _sample(dimensions: int, size: int, sampler: Sampler, seed: int) -> NDArray[np.float64]:
    """Positions (size, dimensions) in [0, 1)."""
    if sampler == "random":
        return np.random.default_rng(seed).random((size, dimensions))
    # a Sobol sequence is balanced at powers of two only: draw the next one and keep the beginning, which is the
    # same sequence, instead of being warned about it
    sequence = qmc.Sobol(dimensions, scramble=True, seed=seed)
    points: NDArray[np.float64] = sequence.random_base2(max(size - 1, 0).bit_length())[:size]
    return points


def _grid_levels(varying: Space, size: int) -> list[int]:
    """Levels a parameter of the largest grid with at most `size` arms; raises when not even two a range fit."""

    def at(count: int) -> list[int]:
        return [int(min(_levels(p), count) if isinstance(p, Range) else _levels(p)) for p in varying.values()]

    if math.prod(at(2)) > size:
        raise ObjectiveError(
            f"candidates.size must be >= {math.prod(at(2))} for a grid of this space, got {size}; "
            "raise it or use sampler: sobol"
        )
    low, high = 2, size + 1  # at(low) fits; at(high) does not, because the whole space does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if math.prod(at(middle)) <= size else (low, middle)
    return at(low)


def _grid(varying: Space, levels: Sequence[int]) -> NDArray[np.float64]:
    """Positions (Π levels, len(varying)) of a full grid, the last parameter running fastest."""
    axes = [_axis(parameter, count) for parameter, count in zip(varying.values(), levels, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


def _axis(parameter: Parameter, count: int) -> NDArray[np.float64]:
    """Positions of `count` equally spaced levels, both ends included."""
    if not isinstance(parameter, Range):
        return (np.arange(count) + 0.5) / count
    if not parameter.integer:
        return np.linspace(0.0, 1.0, count)
    if count == _levels(parameter):
        values = np.arange(parameter.low, parameter.high + 1)
    else:
        values = np.rint(_scaler(parameter).to_value(np.linspace(0.0, 1.0, count)))
    axis: NDArray[np.float64] = _integer_scaler(parameter).to_vector(values)
    return axis


def _candidates(space: Space, positions: dict[str, NDArray[np.float64]]) -> Candidates:
    arms = len(next(iter(positions.values())))
    columns: dict[str, NDArray[Any]] = {}
    blocks: list[NDArray[np.float64]] = []
    for name, parameter in space.items():
        column, block = _column(parameter, positions.get(name, np.zeros(arms)))
        columns[name] = column
        blocks.append(block)
    features = np.hstack(blocks)
    kept = _first_occurrences(features)
    if len(kept) < arms:
        features, columns = features[kept], {name: column[kept] for name, column in columns.items()}
    return Candidates(features, columns)


def _column(parameter: Parameter, positions: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Values (A,) and features (A, 0 or more) of one parameter at `positions` (A,) in [0, 1]."""
    match parameter:
        case Range():
            values = _range_values(parameter, positions)
            return values, _scaler(parameter).to_vector(values)[:, None]
        case Choice(choices=levels):
            index = _level_index(positions, len(levels))
            one_hot = np.eye(len(levels)) / math.sqrt(2) if len(levels) > 1 else np.empty((1, 0))
            return _array(levels)[index], one_hot[index]
        case Ordinal(ordered=levels):
            index = _level_index(positions, len(levels))
            spaced = np.linspace(0.0, 1.0, len(levels))[:, None] if len(levels) > 1 else np.empty((1, 0))
            return _array(levels)[index], spaced[index]
        case Constant(constant=value):
            return np.repeat(_array([value]), len(positions)), np.empty((len(positions), 0))


def _level_index(positions: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    return np.minimum((positions * count).astype(np.intp), count - 1)


def _scaler(parameter: Range) -> UnitScaler[np.float64]:
    # the scaler itself and not a hyperparameter around it: those round their bounds to 13 decimals
    return UnitScaler(np.float64(parameter.low), np.float64(parameter.high), np.float64, log=parameter.log)


def _integer_scaler(parameter: Range) -> UnitScaler[np.float64]:
    """From positions to numbers to be rounded: every integer owns half a step to both sides, the ends too."""
    return _scaler(Range(parameter.low - 0.5, parameter.high + 0.5, log=parameter.log))


def _range_values(parameter: Range, positions: NDArray[np.float64]) -> NDArray[Any]:
    if parameter.integer:
        rounded: NDArray[np.float64] = np.rint(_integer_scaler(parameter).to_value(positions))
        return rounded.clip(parameter.low, parameter.high).astype(np.int64)
    values: NDArray[np.float64] = _scaler(parameter).to_value(positions)
    return values


def _array(levels: Sequence[Scalar]) -> NDArray[Any]:
    """Levels as an array that gives back the very same values: numpy would turn (True, 2) into integers."""
    if len({type(level) for level in levels}) == 1 and isinstance(levels[0], bool | float | str):
        return np.array(levels)
    array = np.empty(len(levels), dtype=object)
    array[:] = levels
    return array


def _first_occurrences(features: NDArray[np.float64]) -> NDArray[np.intp]:
    """Indices, ascending, of the rows that equal no earlier row."""
    first = np.zeros(1, dtype=np.intp)
    group = np.zeros(len(features), dtype=np.intp)
    for column in features.T:
        values, rank = np.unique(column, return_inverse=True)
        _, first, group = np.unique(group * len(values) + rank, return_index=True, return_inverse=True)
        if len(first) == len(features):  # all differ already: the usual case with a real range, after one column
            break
    return np.sort(first)
