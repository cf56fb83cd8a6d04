"""Candidates in several processes: each shard is a Ray actor that holds blocks of arms and answers
queries about them. The strategy calls `Blocks` as usual; an arm's values are the same, bit for
bit, in any process. A batch needs about ten rounds of messages with at most p × m numbers (p pulled
arms, m arms in the dictionary), for any number of arms. A fitted posterior is put into the object
store once, and each shard fetches it once; a query refers to it by its object id.
"""

import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

import numpy as np
import ray
from numpy.typing import NDArray

from bbkb.orchestrator.bandit.blas import limit_threads
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.recent import Recent
from bbkb.orchestrator.bandit.sparse.all_arms import Blocks, Query
from bbkb.orchestrator.bandit.sparse.blocks import Block, Fit
from bbkb.orchestrator.errors import ActorLostError

KEPT = 8  # the number of posteriors, and of blocks, that a shard caches
T = TypeVar("T")
Fits = Mapping[str, "ray.ObjectRef[Fit]"]


class Shard:
    """The actor: parts of the candidates by name, and their blocks."""

    def __init__(self, threads: int | None) -> None:
        self._parts: dict[str, NDArray[np.float64]] = {}
        self._blocks: Recent[tuple[str, bytes], Block] = Recent(KEPT)
        self._fits: Recent[str, Fit] = Recent(KEPT)
        limit_threads(threads)  # for the lifetime of the process

    def add(self, part: str, features: NDArray[np.float64]) -> None:
        """Add these arms (n, d)."""
        self._parts[part] = features

    def ask(self, part: str, kernel: bytes, query: bytes, fits: Fits) -> object:
        """Return the result of the block of `part` with this pickled `kernel`."""
        return _Unpickler(query, self._fits, fits).load()(self._block(part, kernel))

    def _block(self, part: str, kernel: bytes) -> Block:
        def make() -> Block:
            return Block(pickle.loads(kernel), self._parts[part])

        return self._blocks.get((part, kernel), make)


Handle = Any  # Ray's handle of a `Shard`, which has no type


class _Pickler(pickle.Pickler):
    """Pickles a query. A posterior in it is replaced by its id in the object store."""

    def __init__(self, buffer: io.BytesIO, stored: "WeakKeyDictionary[Fit, ray.ObjectRef[Fit]]") -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._stored = stored
        self.fits: dict[str, ray.ObjectRef[Fit]] = {}

    def persistent_id(self, value: object) -> str | None:
        """See `pickle.Pickler.persistent_id`."""
        if not isinstance(value, Fit):
            return None
        if value not in self._stored:
            self._stored[value] = ray.put(value)
        reference = self._stored[value]
        self.fits[reference.hex()] = reference
        return reference.hex()


class _Unpickler(pickle.Unpickler):
    """Reads the output of `_Pickler`. A posterior is fetched only once."""

    def __init__(self, query: bytes, recent: Recent[str, Fit], fits: Fits) -> None:
        super().__init__(io.BytesIO(query))
        self._recent = recent
        self._fits = fits

    def persistent_load(self, name: str) -> Fit:
        """See `pickle.Unpickler.persistent_load`."""
        return self._recent.get(name, lambda: ray.get(self._fits[name]))


@dataclass(frozen=True, eq=False)
class Part:
    """`count` consecutive arms, held by `actor` under `name`."""

    actor: Handle
    name: str
    count: int


class ShardBlocks(Blocks):
    """Blocks on actors that work in parallel. `kernel` is pickled."""

    def __init__(self, parts: Sequence[Part], kernel: bytes) -> None:
        super().__init__([part.count for part in parts])
        self._parts = tuple(parts)
        self._kernel = kernel
        self._stored: WeakKeyDictionary[Fit, ray.ObjectRef[Fit]] = WeakKeyDictionary()

    def ask(self, queries: Sequence[tuple[int, Query[T]]]) -> list[T]:
        """See `Blocks`."""
        return _get([self._send(self._parts[number], query) for number, query in queries])

    def _send(self, part: Part, query: Query[T]) -> "ray.ObjectRef[T]":
        buffer = io.BytesIO()
        writer = _Pickler(buffer, self._stored)
        writer.dump(query)
        answer: ray.ObjectRef[T] = part.actor.ask.remote(part.name, self._kernel, buffer.getvalue(), writer.fits)
        return answer


class ShardedArms:
    """Candidates (A, d) in actors, which a strategy accepts instead of an array."""

    def __init__(self, actors: Sequence[Handle], parts: Sequence[Part]) -> None:
        self._actors, self._parts = tuple(actors), tuple(parts)

    @staticmethod
    def start(features: NDArray[np.float64], shards: int, threads: int | None = None) -> "ShardedArms":
        """Distribute `features` (A, d) over `shards` actors with `threads` BLAS threads each.

        There are at most as many shards as arms. Ray must be running.
        """
        starts = np.linspace(0, len(features), shards + 1).astype(np.intp)
        make = ray.remote(Shard).options(num_cpus=0, scheduling_strategy="SPREAD")
        actors = [make.remote(threads) for _ in range(shards)]
        limits = zip(actors, pairwise(starts.tolist()), strict=True)
        return ShardedArms(actors, [_place(actor, features[low:high]) for actor, (low, high) in limits])

    def __len__(self) -> int:
        return sum(part.count for part in self._parts)

    def blocks(self, kernel: Kernel) -> ShardBlocks:
        """Return the blocks of these arms."""
        return ShardBlocks(self._parts, pickle.dumps(kernel))

    def extend(self, features: NDArray[np.float64]) -> "ShardedArms":
        """Append arms with `features` (n, d) to the actor with the fewest arms."""
        sizes = {actor: sum(part.count for part in self._parts if part.actor == actor) for actor in self._actors}
        return ShardedArms(self._actors, (*self._parts, _place(min(sizes, key=lambda actor: sizes[actor]), features)))

    def close(self) -> None:
        """Stop the actors."""
        for actor in self._actors:
            ray.kill(actor)


def _place(actor: Handle, features: NDArray[np.float64]) -> Part:
    name = uuid4().hex
    actor.add.remote(name, features)
    return Part(actor, name, len(features))


def _get(answers: "list[ray.ObjectRef[T]]") -> list[T]:
    try:
        return list(ray.get(answers))
    except ray.exceptions.RayActorError as error:
        raise ActorLostError(
            f"a shard of the candidates died ({type(error).__name__}), perhaps because memory ran out. Every finished "
            f"result is in the log: `bbkb resume` continues"
        ) from error
