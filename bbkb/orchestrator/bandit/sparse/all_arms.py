"""All arms, in consecutive blocks that may be in other processes.

The rest of the bandit code calls the methods of `Blocks`. They send queries, which are methods of
`Block` with their arguments, to the blocks that contain the arms, and join the results. The blocks
are in this process (`LocalBlocks`) or in others.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.sparse.blocks import Block, BoundLine, Fit, LocalCovariance, Pulled
from bbkb.orchestrator.bandit.sparse.columns import Points

T = TypeVar("T")
Query = Callable[[Block], T]


class Blocks(ABC):
    """All arms, in consecutive blocks. Indices of arms count over all blocks.

    Args:
        sizes: the number of arms in each block.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        # the first arm of each block, followed by the number of arms (k + 1,)
        self.starts: Indices = np.cumsum([0, *sizes])

    @abstractmethod
    def ask(self, queries: Sequence[tuple[int, Query[T]]]) -> list[T]:
        """Return the results of pairs (index of the block, query), in order. The blocks may work at
        the same time.

        A query must be a `functools.partial` of a method of `Block`, so that it can be sent to
        another process.
        """

    @property
    def number(self) -> int:
        """The number of blocks."""
        return len(self.starts) - 1

    @property
    def count(self) -> int:
        """A, the number of arms."""
        return int(self.starts[-1])

    def look_up(self, arms: Indices) -> Floats:
        """Return features (n, d) of `arms` (n,)."""
        return self._at(arms, Block.look_up)

    def kernel_rows(self, arms: Indices, columns: Points) -> Floats:
        """Return k(x, x_s) for x in `arms` (n,) and s in `columns` (m): (n, m)."""
        return self._at(arms, Block.kernel_rows, columns=columns)

    def kernel_entries(self, arms: Indices, columns: Points) -> Floats:
        """Like `kernel_rows`, for columns that only few arms need; does not cache them."""
        return self._at(arms, Block.kernel_entries, columns=columns)

    def moments(self, fit: Fit, arms: Indices, is_joint: bool = False) -> tuple[Floats, Floats, Floats]:
        """See `Block.moments` or `Block.joint_moments`. Results are in the order of `arms` (n,)."""
        method = Block.joint_moments if is_joint else Block.moments
        answers, order = self._answers(arms, method, fit=fit)
        if order is None:
            return answers[0]
        means, variances, rows = zip(*answers, strict=True)
        return np.concatenate(means)[order], np.concatenate(variances)[order], np.concatenate(rows)[order]

    def sweep(self, fit: Fit) -> tuple[Floats, Floats]:
        """Return μ̃ of every output (J, A) and σ̃² (A,) of every arm under `fit`."""
        means, variances = zip(*self._each(partial(Block.sweep, fit=fit)), strict=True)
        return np.hstack(means), np.concatenate(variances)

    def local_sums(self, fit: Fit, arms: Indices | None, pulled: Pulled, covariance: LocalCovariance) -> Floats:
        """See `Block.local_sums`: for `arms` (n,), or for every arm (A,) if None."""
        query = partial(Block.local_sums, fit=fit, pulled=pulled, covariance=covariance)
        if arms is None:
            return np.concatenate(self._each(partial(query, positions=None)))
        return self._at(arms, query)

    def tighten(self, fit: Fit, lines: tuple[BoundLine, ...], arms: Indices) -> Floats:
        """See `Block.tighten`, for `arms` (n,): (L, n)."""
        answers, order = self._answers(arms, Block.tighten, fit=fit, lines=lines)
        return answers[0] if order is None else np.hstack(answers)[:, order]

    @cached_property
    def prior(self) -> Floats:
        """k(x, x) of every arm (A,)."""
        return np.concatenate(self._each(Block.prior))

    @cached_property
    def largest_prior(self) -> float:
        """κ², the largest k(x, x)."""
        return max(self._each(Block.largest_prior))

    def within(self, arms: Indices) -> list[Indices]:
        """Return, for each block, the positions within the block of its members in `arms`."""
        return [arms[part] - self.starts[number] for number, part in enumerate(self._split(arms))]

    def _each(self, query: Query[T]) -> list[T]:
        """Return the results of all blocks for the same query."""
        return self.ask([(number, query) for number in range(self.number)])

    def _at(self, arms: Indices, method: Callable[..., Floats], **arguments: object) -> Floats:
        """Return the result (n, …) of a method of `Block` for `arms` (n,)."""
        answers, order = self._answers(arms, method, **arguments)
        return answers[0] if order is None else np.concatenate(answers)[order]

    def _answers(
        self, arms: Indices, method: Callable[..., T], **arguments: object
    ) -> tuple[list[T], Indices | None]:  # fmt: skip
        """Return the blocks' results for their arms, and the permutation that sorts the joined
        rows; None if they are sorted. `method` receives `positions` within a block."""
        if self.number == 1:
            return self.ask([(0, partial(method, positions=arms, **arguments))]), None
        parts = [part for part in enumerate(self._split(arms)) if len(part[1])]
        parts = parts or [(0, np.empty(0, np.intp))]
        queries = [
            (number, partial(method, positions=arms[part] - self.starts[number], **arguments))
            for number, part in parts
        ]  # fmt: skip
        order = np.argsort(np.concatenate([part for _, part in parts]), kind="stable")
        return self.ask(queries), order

    def _split(self, arms: Indices) -> list[Indices]:
        """Return, for each block, the positions in `arms` (n,) of those in the block."""
        block = np.searchsorted(self.starts, arms, side="right") - 1
        return [np.flatnonzero(block == number) for number in range(self.number)]


@runtime_checkable
class PlacedArms(Protocol):
    """Candidates in several arrays or processes. Immutable: `extend` returns a new object."""

    def __len__(self) -> int:
        """Return A, the number of arms."""

    def blocks(self, kernel: Kernel) -> Blocks:
        """Return the blocks of these arms."""

    def extend(self, features: Floats) -> "PlacedArms":
        """Return these arms followed by n new arms with `features` (n, d)."""


class LocalBlocks(Blocks):
    """Blocks in this process; usually a single one."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__([len(block.features) for block in blocks])
        self.blocks = tuple(blocks)

    def ask(self, queries: Sequence[tuple[int, Query[T]]]) -> list[T]:
        """See `Blocks`."""
        return [query(self.blocks[number]) for number, query in queries]

    def extend(self, features: Floats) -> "LocalBlocks":
        """Return these blocks and a new one with `features` (n, d).

        Preceding blocks of at most the same size are merged into the new one, so A arms that are
        appended in small groups are in at most log₂ A blocks.
        """
        earlier = list(self.blocks)
        while earlier and len(earlier[-1].features) <= len(features):
            features = np.concatenate((earlier.pop().features, features))
        return LocalBlocks([*earlier, Block(self.blocks[-1].kernel, features)])
