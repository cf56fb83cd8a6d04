"""Finds the candidates with the values of given configurations, in any notation of the values."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives.objective import Candidates


def find_arm(candidates: Candidates, configuration: Mapping[str, object]) -> int | None:
    """Return the first arm that has all values of `configuration`.

    Conditional parameters that it omits must not exist in the arm. Return None if no arm matches.
    """
    values = {**dict.fromkeys(candidates.conditional), **configuration}
    if not values.keys() <= candidates.columns.keys():
        return None
    arm = int(match_rows(candidates.columns, {name: array_of([value]) for name, value in values.items()})[0])
    return arm if arm >= 0 else None


def match_rows(arms: Mapping[str, NDArray[np.generic]], results: Mapping[str, NDArray[np.generic]]) -> NDArray[np.intp]:
    """Return, for each result, the first arm with equal values in all columns, or −1."""
    count = len(next(iter(arms.values())))
    group = np.zeros(count + len(next(iter(results.values()))), np.intp)
    for name, column in results.items():
        both = arms[name], column
        # rounded numbers if both are numeric, otherwise texts
        is_numeric = all(values.dtype.kind in "iuf" for values in both)
        comparable = [
            np.array([(_rounded if is_numeric else text_of)(value) for value in values.tolist()]) for values in both
        ]
        levels, rank = np.unique(np.concatenate(comparable), return_inverse=True)
        group = np.unique(group * len(levels) + rank, return_inverse=True)[1]
    distinct, first = np.unique(group[:count], return_index=True)
    at = np.minimum(np.searchsorted(distinct, group[count:]), len(distinct) - 1)
    return np.where(distinct[at] == group[count:], first[at], -1)


def _rounded(number: float) -> float:
    """Round to 12 decimal digits, as in printed numbers, so that rounding is idempotent."""
    return float(f"{number:.12g}") + 0.0


def text_of(value: Any) -> str:
    """Return the canonical text of a value (a Boolean, a number or a string)."""
    if isinstance(value, bool) or value in ("True", "False"):
        return str(value).lower()
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return f"{number:.12g}" if math.isfinite(number) else str(value)


def array_of(values: Sequence[object]) -> NDArray[np.generic]:
    """Return numbers as floats, and other values unchanged."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return np.array(values, np.float64)
    array = np.empty(len(values), object)
    for place, value in enumerate(values):  # one by one, because a value may be a list
        array[place] = value
    return array
