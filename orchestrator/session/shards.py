"""Candidates over many processes: each shard is a Ray actor that holds one block of arms and answers for it.

The strategy does not know: it asks `AllArms`, and an arm's values are the same, bit for bit, wherever its block lies.
A batch costs some ten rounds of messages, of p × m numbers at the most (p arms pulled, m in the dictionary), whatever
the number of arms.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from orchestrator.bandit.kernels import Kernel
from orchestrator.bandit.sparse.blocks import Block, Fit
from orchestrator.bandit.sparse.state import checked_arms
from orchestrator.errors import ActorLostError


class Shard:
    """The actor: one block of arms, and the methods of `Block`."""

    def __init__(self, features: NDArray[np.float64], threads: int | None) -> None:
        self._features = features
        self._block: Block | None = None
        threadpool_limits(threads, user_api="blas")  # for as long as the process lives

    def open(self, kernel: Kernel, regularization: float) -> None:
        """Make the block. Before that there are features only."""
        self._block = Block(kernel, self._features, regularization)

    def use(self, fit: Fit) -> None:
        """See `Block.use`."""
        self._opened().use(fit)

    def ask(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """The block's answer."""
        return getattr(self._opened(), method)(*arguments)

    def _opened(self) -> Block:
        if self._block is None:
            raise ValueError("a shard was asked before its block was opened")
        return self._block


class ShardBlocks:
    """`Blocks` on actors: all shards work at the same time."""

    def __init__(self, actors: Sequence[Any], starts: NDArray[np.intp]) -> None:
        self._actors, self.starts = tuple(actors), starts

    def call(self, calls: Sequence[tuple[int, str, tuple[Any, ...]]]) -> list[Any]:
        """See `Blocks`."""
        shared = {}  # the same argument for several shards goes to the object store once
        for _, method, arguments in calls:
            if method == "use" and id(arguments[0]) not in shared:
                shared[id(arguments[0])] = ray.put(arguments[0])
        answers = [
            self._actors[number].use.remote(shared[id(arguments[0])])
            if method == "use"
            else self._actors[number].ask.remote(method, arguments)
            for number, method, arguments in calls
        ]
        return _get(answers)


class ShardedArms:
    """Candidates (A, d) that lie with `shards` actors; stands for the array where a strategy takes one."""

    def __init__(self, actors: Sequence[Any], starts: NDArray[np.intp]) -> None:
        self._actors, self._starts = tuple(actors), starts

    @staticmethod
    def start(features: NDArray[np.float64], shards: int, threads: int | None = None) -> "ShardedArms":
        """Spread `features` (A, d) over `shards` actors with so many BLAS `threads` each. Ray must be running.

        Raises ValueError when there are not that many arms, or when a feature is not finite.
        """
        if not 1 <= shards <= len(features):
            rule = f"between 1 and the number of arms, {len(features)}"
            raise ValueError(f"computing.shards must be {rule}, got {shards}")
        checked_arms(features)
        starts = np.linspace(0, len(features), shards + 1).astype(np.intp)
        actor: Any = ray.remote(Shard).options(num_cpus=0, scheduling_strategy="SPREAD")
        parts = [features[low:high] for low, high in pairwise(starts)]
        return ShardedArms([actor.remote(part, threads) for part in parts], starts)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def blocks(self, kernel: Kernel, regularization: float) -> ShardBlocks:
        """The blocks that answer for them."""
        _get([actor.open.remote(kernel, regularization) for actor in self._actors])
        return ShardBlocks(self._actors, self._starts)

    def close(self) -> None:
        """End the actors."""
        for actor in self._actors:
            ray.kill(actor)


def _get(answers: list[Any]) -> list[Any]:
    try:
        return list(ray.get(answers))
    except ray.exceptions.RayActorError as error:
        raise ActorLostError(
            f"a shard of the candidates died ({type(error).__name__}), out of memory perhaps. Every finished result is "
            f"in the log: `bbkb resume` goes on"
        ) from error
