"""Read-only arrays, and equality of frozen values that hold arrays."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound=np.generic)

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]


# scores that differ by less than 4 units in the last place count as equal: sums of the same numbers in another order
# differ by that much, such as those of mirrored points of a grid
ROUNDING = 4.0 * float(np.finfo(np.float64).eps)


def first_largest(scores: Floats) -> int:
    """Return the lowest position of the largest of `scores` (n,), of which one may be −∞ but none
    NaN. Scores that differ by less than `ROUNDING` count as equal."""
    best = float(scores.max())
    if not np.isfinite(best):
        return int(scores.argmax())
    return int((scores >= best - ROUNDING * max(1.0, abs(best))).argmax())


def read_only(values: ArrayLike, dtype: type[D]) -> NDArray[D]:
    """Return `values` as an immutable C-contiguous array of `dtype`, copied if necessary."""
    if isinstance(values, np.ndarray) and values.dtype == dtype and values.flags.c_contiguous and _is_fixed(values):
        return values
    array: NDArray[D] = np.array(values, dtype=dtype, order="C")
    array.flags.writeable = False
    return array


def freeze(array: NDArray[D]) -> NDArray[D]:
    """Make `array` immutable and return it. The caller must not keep another reference."""
    array.flags.writeable = False
    return array


def _is_fixed(array: NDArray[D]) -> bool:
    """Return whether neither the array nor its base is writable."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    try:
        return owner is None or memoryview(owner).readonly
    except TypeError:  # not an array, so it has a buffer without flags
        return False


def same(first: "DataclassInstance", second: object) -> bool:
    """Return whether two dataclass instances have the same type and equal fields and arrays."""
    if type(first) is not type(second):
        return False
    pairs = ((getattr(first, f.name), getattr(second, f.name)) for f in fields(first) if f.compare)
    return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)
