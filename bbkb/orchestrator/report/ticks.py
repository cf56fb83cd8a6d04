"""The ends and ticks of axes. Ticks are round numbers, given as position → label."""

import math
from collections.abc import Sequence

import numpy as np

_TICKS = 8
_LARGEST_POWER = 308.25  # the largest power of ten that a float can represent
# Limits of positions on an axis within which its ticks can be computed
_LARGEST = 1e300
_LEAST_RANGE = 1e-300


def clip(position: float) -> float:
    """Clip a position so that differences of positions cannot overflow."""
    return max(-_LARGEST, min(position, _LARGEST))


def widened(low: float, high: float) -> tuple[float, float]:
    """Return the ends of an axis, with a margin if they are equal."""
    if high - low >= _LEAST_RANGE:
        return low, high
    margin = max(0.5, 1e-3 * abs(low))  # added to a large value, 0.5 would be rounded away
    return low - margin, high + margin


def linear_ticks(low: float, high: float) -> dict[float, str]:
    """Return at most `_TICKS` ticks at multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / (_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    steps = (factor * power for factor in (1, 2, 5, 10))
    step = next(step for step in steps if step >= rough * (1 - 1e-9))
    multiples = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return {n * step: f"{n * step:.6g}" for n in multiples}


def log_ticks(low: float, high: float) -> dict[float, str]:
    """Return ticks at 1, 2 and 5 times powers of ten, or at powers of ten if these were too many.

    Over many decades, only every k-th power has a tick. Within less than an octave, ticks are
    evenly spaced. `low`, `high` and the positions of ticks are decimal logarithms.
    """
    every = math.ceil((high - low + 1) / _TICKS)
    for mantissas, step in (((1, 2, 5), 1), ((1,), every)):
        ticks = _ticks_at(mantissas, low, high, step)
        if 2 <= len(ticks) <= _TICKS:
            return ticks
    positions = np.linspace(low, high, _TICKS // 2 + 1).tolist()
    return {position: f"{10 ** min(position, _LARGEST_POWER):.3g}" for position in positions}


def _ticks_at(mantissas: Sequence[int], low: float, high: float, step: int) -> dict[float, str]:
    first = step * math.floor(low / step)
    powers = range(first, math.ceil(high) + 1, step)
    ticks = {
        power + math.log10(mantissa): f"{float(f'{mantissa}e{power}'):.5g}"
        for power in powers
        for mantissa in mantissas
    }
    return {at: text for at, text in ticks.items() if low - 1e-9 <= at <= high + 1e-9}
