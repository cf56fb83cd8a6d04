"""Read-only arrays, a bounded cache of values that are expensive to compute, and the threads of BLAS.

A cache changes the duration of a computation, never its result.
"""

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

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


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The most recently used values, at most `capacity` of them, by key."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: dict[K, V] = {}  # the last one is the most recently used

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of `key`. If it is not in the cache, `make` computes it."""
        value = self._values.pop(key) if key in self._values else make()
        self.put(key, value)
        return value

    def take(self, key: K) -> V | None:
        """Remove and return the value of `key`; None if there is none."""
        return self._values.pop(key, None)

    def put(self, key: K, value: V) -> None:
        """Store `value`. The least recently used value is evicted if there are too many."""
        self._values.pop(key, None)
        self._values[key] = value
        if len(self._values) > self._capacity:
            del self._values[next(iter(self._values))]

    def mapped(self, change: Callable[[K, V], V]) -> "Recent[K, V]":
        """Return a cache of the same keys, with the values that `change` returns."""
        recent = Recent[K, V](self._capacity)
        recent._values = {key: change(key, value) for key, value in self._values.items()}
        return recent


_entrance = threading.RLock()


@contextmanager
def blas_threads(number: int) -> Iterator[None]:
    """Compute with this number of threads of NumPy's and SciPy's BLAS. More than one are slower for
    small matrices, and many times slower on a busy machine.

    Other threads of the program wait to enter, because the limit holds for the whole process and
    the thread that sets it must restore the earlier one.
    """
    with _entrance, _controller().limit(limits=number, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    vars(scipy.linalg)  # a controller knows the loaded libraries only
    return ThreadpoolController()
