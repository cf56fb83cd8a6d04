"""A bounded cache of values that are expensive to compute. It changes the duration of a
computation, never its result."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

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
