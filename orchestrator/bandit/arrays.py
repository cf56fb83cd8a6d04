"""Read-only arrays, and equality of frozen values that hold arrays."""

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


def read_only(values: Any, dtype: type) -> NDArray[Any]:
    """`values` as a read-only C-contiguous array of `dtype`; a copy, unless it is one already."""
    is_array = isinstance(values, np.ndarray) and values.dtype == dtype and values.flags.c_contiguous
    if is_array and not values.flags.writeable:
        return values  # type: ignore[no-any-return]  # narrowed by is_array
    array: NDArray[Any] = np.array(values, dtype=dtype, order="C")
    array.flags.writeable = False
    return array


def same(one: Any, other: Any) -> bool:
    """Whether two dataclass instances have the same type and equal fields; arrays are compared element by element."""
    if type(one) is not type(other):
        return False
    pairs = ((getattr(one, f.name), getattr(other, f.name)) for f in fields(one) if f.compare)
    return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)
