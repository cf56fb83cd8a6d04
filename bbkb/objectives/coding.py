"""The values of a parameter as codes, codes as features, and the density of codes around a user's `prior` or the
first evaluation.

Every parameter has a *code*, one number per configuration. It is NaN if the parameter does not
exist in the configuration:

* a real `Range`: the position in [0, 1] on its linear or logarithmic scale, which is also its
  feature;
* any other kind: the index of the value among the parameter's values, from 0.

Features are the input of the kernel. They are in [0, 1], so that a single prior of lengthscales
suits every parameter:

* `Range` has one feature, the position on its scale, also for integers and steps;
* `Ordered` has one feature, equally spaced in [0, 1];
* `Choice` is one-hot encoded and divided by √2, so the distance between two choices is 1. With more
  than `MOST_ONE_HOT` values it has one feature, a number ≤ `LEVEL` that names the value, and the
  distance is the same: kernels only compare such features (`bbkb.orchestrator.bandit.arms`);
* `Constant`, and a choice with a single value, have no feature.

The features of a parameter that does not exist are half of their largest value: constant, and
equally far from opposite values. For a choice with one feature, this is one more value.

The density around the `prior` of a number or an ordered value is a Gaussian on the parameter's
scale; the `prior` of a choice has `RATIOS` times the probability of each other value. Parameters
are independent of each other, as in πBO (Hvarfner et al. 2022).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives.parameters import (
    Choice,
    Confidence,
    Constant,
    OneFeature,
    Ordered,
    Parameter,
    Range,
    Space,
    first_value,
    has_prior,
    index_of,
    values_of,
)

Codes = NDArray[np.float64]

_ONE_HOT = 1.0 / math.sqrt(2.0)
MOST_ONE_HOT = 100  # the largest number of values of a one-hot encoded choice
LEVEL = -(2.0**60)  # no other feature is as low; the bandit has the same constant
_NEXT_LEVEL = 2.0**20  # between the features of two values, which remain different in any unit
# the largest relative difference at which a number counts as equal to one of the parameter's values
_SAME = 1e-9


def count(parameter: Parameter) -> float:
    """Return the number of values of a parameter; infinity for a real range."""
    match parameter:
        case Range(stride=None):
            return math.inf
        case Range(stride=float() | int() as stride):
            return round((parameter.high - parameter.low) / stride) + 1
        case _:
            return len(parameter.levels)


def is_real(parameter: Parameter) -> bool:
    """Return whether a parameter is a range of real numbers."""
    return isinstance(parameter, Range) and parameter.stride is None


def width(parameter: Parameter) -> int:
    """Return the number of features of a parameter."""
    number = count(parameter)
    if number == 1:
        return 0
    return int(number) if isinstance(parameter, Choice) and number <= MOST_ONE_HOT else 1


def draw(parameter: Parameter, positions: Codes) -> Codes:
    """Return codes (A,) at `positions` (A,) in [0, 1]. Each value has an equal share of the
    positions, or a share proportional to its weight."""
    if isinstance(parameter, Range):
        return _range_codes(parameter, positions)
    number = len(parameter.levels)
    if isinstance(parameter, Choice) and parameter.weights is not None:
        ends = np.cumsum(parameter.weights) / math.fsum(parameter.weights)
        return np.minimum(np.searchsorted(ends, positions, side="right"), number - 1).astype(np.float64)
    return np.minimum(np.floor(positions * number), number - 1.0)


def spread_codes(parameter: Parameter, number: int) -> Codes:
    """Return at most `number` codes, spread evenly over the parameter's scale, with both ends."""
    if is_real(parameter):
        return np.linspace(0.0, 1.0, number)
    total = int(count(parameter))
    if total <= number:
        return np.arange(total, dtype=np.float64)
    if not isinstance(parameter, Range):
        return np.unique(np.rint(np.linspace(0.0, total - 1.0, number)))
    return np.unique(_range_codes(parameter, np.linspace(0.0, 1.0, number)))


def values(parameter: Parameter, codes: Codes) -> NDArray[np.generic]:
    """Return the values (A,) of `codes` (A,), with None for NaN."""
    exists = ~np.isnan(codes)
    if not exists.all():
        column = np.full(len(codes), None, dtype=object)
        column[exists] = values(parameter, codes[exists]).tolist()
        return column
    if not isinstance(parameter, Range):
        levels = parameter.levels
        is_plain = len(set(map(type, levels))) == 1 and isinstance(levels[0], bool | float | str)
        # an array of exactly these values: numpy would convert (True, 2) to integers
        return np.array(levels, dtype=None if is_plain else object)[codes.astype(np.intp)]
    if parameter.stride is None:
        numbers = _scaler(parameter).to_value(codes)
        # exactly the given bounds: the scaler's logarithms would turn 0.1 into 0.10000000000000002
        return np.select([codes <= 0.0, codes >= 1.0], [float(parameter.low), float(parameter.high)], numbers)
    if parameter.integer:
        return int(parameter.low) + codes.astype(np.int64) * int(parameter.stride)
    # with decimal arithmetic, so that 3 steps of 0.05 are 0.15 instead of 0.15000000000000002
    digits = max(_digits(parameter.low), _digits(parameter.stride))
    return np.round(parameter.low + codes * parameter.stride, digits)


def encode(parameter: Parameter, column: NDArray[np.generic]) -> Codes:
    """Return the codes (A,) of values (A,) from `values`, bit for bit."""
    exists = np.ones(len(column), bool)
    if column.dtype == object and None not in parameter.levels:
        exists = np.array([value is not None for value in column])
    codes = np.full(len(column), np.nan)
    present = column if exists.all() else column[exists]
    if isinstance(parameter, Range):
        numbers = present.astype(np.float64)
        if parameter.stride is None:
            codes[exists] = _scaler(parameter).to_vector(numbers)
        else:
            codes[exists] = np.rint((numbers - parameter.low) / parameter.stride)
    else:
        levels = parameter.levels
        if len(present) == 1:  # without an index of many levels
            codes[exists] = float(levels.index(present.tolist()[0]))
        else:
            index = {level: float(number) for number, level in enumerate(levels)}
            codes[exists] = [index[value] for value in present.tolist()]
    return codes


def code_of(parameter: Parameter, value: object, is_bounded: bool = True) -> float:
    """Return the code of a user's value. Raises ValueError, with a predicate as its message, if the
    value is invalid. With `is_bounded` False, a number may be beyond the bounds of its range."""
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(parameter, Range):
        index = index_of(parameter, value)
        if index is None:
            allowed = values_of(parameter)
            listed = ", ".join([*(f"{each!r:.100}" for each in allowed[:8]), *["…"] * (len(allowed) > 8)])
            raise ValueError(f"must be one of {listed}, got {value!r:.100}")
        return float(index)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value < math.inf:
        raise ValueError(f"must be a number, got {value!r}")
    is_within = parameter.low <= value <= parameter.high
    if not is_within and (is_bounded or (parameter.log and value <= 0)):
        raise ValueError(f"must be from {parameter.low:g} to {parameter.high:g}, got {value!r}")
    if parameter.stride is None:
        return float(_scaler(parameter).to_vector(np.array([float(value)]))[0])
    steps = (value - parameter.low) / parameter.stride
    if abs(steps - round(steps)) > _SAME * max(1.0, abs(steps)):
        rule = "a whole number" if parameter.stride == 1 else f"{parameter.low:g} plus steps of {parameter.stride:g}"
        raise ValueError(f"must be {rule}, got {value!r}")
    return float(round(steps))


def features(parameter: Parameter, codes: Codes) -> NDArray[np.float64]:
    """Return features (A, `width`) of `codes` (A,)."""
    size = width(parameter)
    if size == 0:
        return np.empty((len(codes), 0))
    exists = ~np.isnan(codes)
    if isinstance(parameter, Choice) and size == 1:  # not one-hot
        levels = np.where(exists, codes, float(len(parameter.choices)))
        return (LEVEL - levels * _NEXT_LEVEL)[:, None]
    if isinstance(parameter, Choice):
        block = np.full((len(codes), size), 0.5 * _ONE_HOT)
        block[exists] = 0.0
        block[np.flatnonzero(exists), codes[exists].astype(np.intp)] = _ONE_HOT
        return block
    column = np.full(len(codes), 0.5)
    column[exists] = places(parameter, codes[exists])
    return column[:, None]


def places(parameter: OneFeature, codes: Codes) -> Codes:
    """Return the positions (A,) in [0, 1] of `codes` (A,) on the parameter's scale; no code may be
    NaN."""
    if is_real(parameter):
        return codes
    if isinstance(parameter, Range):
        return _scaler(parameter).to_vector(values(parameter, codes).astype(np.float64))
    return codes / max(1.0, count(parameter) - 1.0)


def first_code(parameter: Parameter) -> float:
    """Return the code of the first evaluation: of `default`, or else of `prior`, the center of the scale,
    or the most frequent choice, the first of equals."""
    value = first_value(parameter)
    if value is not None:
        return code_of(parameter, value)
    if isinstance(parameter, Choice):
        return float(np.argmax(parameter.weights or (1.0,)))
    return float(nearest(parameter, np.array([0.5]))[0])


def nearest(parameter: OneFeature, places: Codes) -> Codes:
    """Return codes (A,) of the values nearest to `places` (A,) in [0, 1] on the scale."""
    if not isinstance(parameter, Range):
        return np.rint(places * (count(parameter) - 1.0))
    if parameter.stride is None:
        return np.array(places, np.float64)
    numbers = _scaler(parameter).to_value(places)
    return np.clip(np.rint((numbers - parameter.low) / parameter.stride), 0.0, count(parameter) - 1.0)


def _range_codes(parameter: Range, positions: Codes) -> Codes:
    if parameter.stride is None:
        return np.array(positions, np.float64)
    # each value, including the first and the last, gets half a step on both sides; on a log scale,
    # at most half of the distance to 0
    half = parameter.stride / 2.0
    low = parameter.low - (min(half, parameter.low / 2.0) if parameter.log else half)
    scaler = _Scale(low, parameter.high + half, parameter.log)
    steps = np.rint((scaler.to_value(positions) - parameter.low) / parameter.stride)
    return np.clip(steps, 0.0, count(parameter) - 1.0)


@dataclass(frozen=True, slots=True)
class _Scale:
    """A linear or logarithmic scale of positions in [0, 1].

    It computes as ConfigSpace's `UnitScaler` does, whose module imports `scipy.stats`.
    """

    low: float
    high: float
    is_log: bool

    def to_value(self, positions: Codes) -> Codes:
        low, high = self._ends()
        scaled = positions * (high - low) + low
        return np.clip(np.exp(scaled) if self.is_log else scaled, self.low, self.high)

    def to_vector(self, values: Codes) -> Codes:
        low, high = self._ends()
        return ((np.log(values) if self.is_log else values) - low) / (high - low)

    def _ends(self) -> tuple[float, float]:
        return (float(np.log(self.low)), float(np.log(self.high))) if self.is_log else (self.low, self.high)


def _scaler(parameter: Range) -> _Scale:
    return _Scale(float(parameter.low), float(parameter.high), parameter.log)


def _digits(number: float) -> int:
    """Return the number of decimals in the shortest representation of `number`."""
    exponent = Decimal(repr(float(number))).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


# standard deviations, as shares of the scale's length
DEVIATIONS: Mapping[Confidence, float] = {"low": 0.5, "medium": 0.25, "high": 0.125}
RATIOS: Mapping[Confidence, float] = {"low": 2.0, "medium": 4.0, "high": 8.0}


def draw_near_prior(parameter: Parameter, positions: Codes) -> Codes:
    """Return codes (A,) at `positions` (A,) in [0, 1] of the distribution around the prior, or
    those of `draw` if there is no prior."""
    if isinstance(parameter, Constant) or parameter.prior is None or parameter.confidence is None:
        return draw(parameter, positions)
    code = code_of(parameter, parameter.prior)
    if isinstance(parameter, Choice):
        weights = np.array(parameter.weights or (1.0,) * len(parameter.choices))
        weights[int(code)] *= RATIOS[parameter.confidence]
        ends = np.cumsum(weights) / weights.sum()
        return np.minimum(np.searchsorted(ends, positions, side="right"), len(weights) - 1).astype(np.float64)
    from scipy.special import ndtr, ndtri  # imported here, because few searches have priors

    center = places(parameter, np.array([code]))[0]
    deviation = DEVIATIONS[parameter.confidence]
    low = ndtr(-center / deviation)
    high = ndtr((1.0 - center) / deviation)
    positions = center + deviation * ndtri(low + (high - low) * positions)
    return nearest(parameter, np.clip(positions, 0.0, 1.0))


def log_density(space: Space, codes: Codes) -> NDArray[np.float64] | None:
    """Return the logarithm (A,) of the density at configurations `codes` (A, P), relative to its
    largest value (at most 0); None for a space without priors. A parameter that does not exist
    contributes its mean."""
    if not has_prior(space):
        return None
    total = np.zeros(len(codes))
    for parameter, column in zip(space.values(), codes.T, strict=True):
        if isinstance(parameter, Constant) or parameter.prior is None:
            continue
        code = code_of(parameter, parameter.prior)
        exists = ~np.isnan(column)
        confidence = parameter.confidence or "medium"
        if isinstance(parameter, Choice):
            ratio = RATIOS[confidence]
            further = len(parameter.choices) - 1.0
            less = -math.log(ratio)
            density = np.full(len(column), less * further / (further + ratio))
            density[exists] = np.where(column[exists] == code, 0.0, less)
        else:
            density = np.full(len(column), -0.5)
            steps = places(parameter, column[exists]) - places(parameter, np.array([code]))
            density[exists] = -0.5 * (steps / DEVIATIONS[confidence]) ** 2
        total += density
    return total


CENTRAL = 3.0  # the standard deviation in a space with one number


def central_log_density(space: Space, codes: Codes) -> NDArray[np.float64] | None:
    """Return the logarithm (A,) of the density around the first evaluation at configurations `codes` (A, P),
    relative to its largest value: of the p numbers and ordered parameters, with the standard deviation
    `CENTRAL`/√p as a share of their scales. A parameter that does not exist counts as if it were at its average
    distance from the center. None if p = 0."""
    squared = np.zeros(len(codes))
    number = 0
    for parameter, column in zip(space.values(), codes.T, strict=True):
        if isinstance(parameter, Range | Ordered) and count(parameter) > 1:
            exists = ~np.isnan(column)
            steps = np.full(len(column), 12.0**-0.5)
            steps[exists] = places(parameter, column[exists]) - places(parameter, np.array([first_code(parameter)]))
            squared += steps * steps
            number += 1
    return -0.5 * number / CENTRAL**2 * squared if number else None
