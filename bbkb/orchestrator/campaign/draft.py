"""Sections of the campaign's state: mutable in the draft of one event, frozen after it.

`transitions.apply` copies each section that an event changes, changes the copy, and freezes it. So
one event costs what it changes, and every earlier state remains as it was. Mappings in sections are
never changed in place: a changed copy replaces them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform, overload

T = TypeVar("T")
K = TypeVar("K")
S = TypeVar("S", bound="Section")

_KEPT = 64  # items before a queue's first one; fewer are not worth a copy


class Section:
    """The base class of sections, which are decorated with `section`."""

    parts: ClassVar[tuple[str, ...]] = ()  # the fields that are sections themselves
    frozen_as: ClassVar[type[Any] | None] = None  # the class of a frozen section; None if it is frozen
    drafted_as: ClassVar[type[Any]]

    def draft(self) -> Self:
        """Return a copy that may be changed until it is frozen."""
        copy = object.__new__(self.drafted_as)
        fields = copy.__dict__
        fields.update(self.__dict__)
        for name in self.parts:
            fields[name] = fields[name].draft()
        return copy  # type: ignore[no-any-return]

    def freeze(self) -> None:
        """Refuse further changes."""
        if self.frozen_as is not None:
            for name in self.parts:
                self.__dict__[name].freeze()
            object.__setattr__(self, "__class__", self.frozen_as)


@dataclass_transform()  # to mypy not frozen, since it does not know which values are drafts
def section(cls: type[S]) -> type[S]:
    """Make `cls` a frozen dataclass, with a subclass that is not frozen for its drafts."""
    frozen = dataclass(frozen=True)(cls)
    mutable = {"__setattr__": object.__setattr__, "frozen_as": frozen}
    frozen.drafted_as = type(f"{cls.__name__}Draft", (frozen,), mutable)
    return frozen


class Queue(Sequence[T]):
    """An immutable sequence to which a longer one is added in the time of its new items.

    The items are in one list, which all queues derived from it share: a queue is a section of that
    list, after some items of its own. Only the newest queue may extend the list in place; any other
    copies its section first, and so does a queue whose section is the smaller part of the list.
    Such a copy has fewer items than were removed from the front since the previous copy.
    """

    __slots__ = ("_front", "_items", "_start", "_stop")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._front: tuple[T, ...] = ()
        self._items: list[T] = list(items)
        self._start, self._stop = 0, len(self._items)

    @classmethod
    def of(cls, items: Sequence[T]) -> "Queue[T]":
        """Return `items` as a queue; a state that was read from a snapshot has lists."""
        return items if isinstance(items, Queue) else Queue(items)

    def _section(self, front: tuple[T, ...], items: list[T], start: int, stop: int) -> "Queue[T]":
        queue = Queue.__new__(Queue)
        queue._front, queue._items, queue._start, queue._stop = front, items, start, stop
        return queue

    def with_last(self, items: Iterable[T]) -> "Queue[T]":
        """Return the queue with these items after the last one."""
        is_newest = self._stop == len(self._items)
        is_mostly_removed = self._start > max(_KEPT, self._stop - self._start)
        if is_newest and not is_mostly_removed:
            shared, start = self._items, self._start
        else:
            shared, start = self._items[self._start : self._stop], 0
        shared.extend(items)
        return self._section(self._front, shared, start, len(shared))

    def with_first(self, items: Iterable[T]) -> "Queue[T]":
        """Return the queue with these items before the first one."""
        return self._section((*items, *self._front), self._items, self._start, self._stop)

    def without_first(self, count: int) -> "Queue[T]":
        """Return the queue without the first `count` items."""
        beyond = max(0, count - len(self._front))
        return self._section(self._front[count:], self._items, min(self._start + beyond, self._stop), self._stop)

    def __len__(self) -> int:
        return len(self._front) + self._stop - self._start

    def __iter__(self) -> Iterator[T]:
        if self._start < _KEPT:
            return chain(self._front, islice(self._items, self._start, self._stop))
        # `islice` would walk to the start
        return chain(self._front, map(self._items.__getitem__, range(self._start, self._stop)))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(islice(self, *index.indices(len(self))))
        front = len(self._front)
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"index {index} of a queue of {len(self)}")
        return self._front[at] if at < front else self._items[self._start + at - front]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __reduce__(self) -> tuple[object, ...]:
        return Queue, (tuple(self),)  # items before the first are not copied

    def __repr__(self) -> str:
        return f"Queue({list(self)!r})"


def without(mapping: Mapping[K, T], keys: Iterable[K]) -> Mapping[K, T]:
    """Return a copy of `mapping` without `keys`, or `mapping` itself if it contains none of them."""
    dropped = [key for key in keys if key in mapping]
    if not dropped:
        return mapping
    changed = dict(mapping)
    for key in dropped:
        del changed[key]
    return changed
