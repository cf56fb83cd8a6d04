"""All arms, in consecutive blocks that may be in other processes. Sends queries to the blocks and
joins their results.

The rest of the bandit code calls `AllArms`. `AllArms` passes a `Query`, which is a method of
`Block` with its arguments, to a `Blocks`. That object either holds the blocks in this process
(`LocalBlocks`) or sends the query to other processes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.kernels import Kernel
from orchestrator.bandit.sparse.argmax_queue import TakenArms
from orchestrator.bandit.sparse.blocks import (
    Block,
    BoundLine,
    BoundRequest,
    Fit,
    LocalCovariance,
    OutputsRequest,
    Pulled,
)
from orchestrator.bandit.sparse.columns import Points
from orchestrator.bandit.sparse.scalarization import Scalarizing

T = TypeVar("T")
Query = Callable[[Block], T]


class Blocks(Protocol):
    """All arms, in consecutive blocks."""

    @property
    def starts(self) -> Indices:
        """The first arm of each block, followed by the number of arms (k + 1,)."""

    def ask(self, queries: Sequence[tuple[int, Query[T]]]) -> list[T]:
        """Return the results of pairs (index of the block, query), in order. The blocks may work at
        the same time.

        A query must be a `functools.partial` of a method of `Block`, so that it can be sent to
        another process.
        """


@runtime_checkable
class PlacedArms(Protocol):
    """Candidates in several arrays or processes. Immutable: `extend` returns a new object."""

    def __len__(self) -> int:
        """Return A, the number of arms."""

    def blocks(self, kernel: Kernel, regularization: float) -> Blocks:
        """Return the blocks of these arms."""

    def extend(self, features: Floats) -> "PlacedArms":
        """Return these arms followed by n new arms with `features` (n, d)."""


class LocalBlocks:
    """Blocks in this process; usually a single one."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = tuple(blocks)
        self.starts: Indices = np.cumsum([0, *(len(block.features) for block in blocks)])

    def ask(self, queries: Sequence[tuple[int, Query[T]]]) -> list[T]:
        """See `Blocks`."""
        return [query(self.blocks[number]) for number, query in queries]

    def extend(self, features: Floats) -> "LocalBlocks":
        """Return these blocks and a new one with `features` (n, d).

        Preceding blocks of at most the same size are merged into the new one, so A arms that are
        appended in small groups are in at most log₂ A blocks.
        """
        last = self.blocks[-1]
        earlier = list(self.blocks)
        while earlier and len(earlier[-1].features) <= len(features):
            features = np.concatenate((earlier.pop().features, features))
        return LocalBlocks([*earlier, Block(last.kernel, features, last.regularization)])

    def with_regularization(self, regularization: float) -> "LocalBlocks":
        """Return these blocks with another λ. The cached kernel columns remain valid."""
        return LocalBlocks([block.with_regularization(regularization) for block in self.blocks])


class _Dispatcher:
    """Sends queries to the blocks that contain some arms, and joins the results."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks

    @property
    def number(self) -> int:
        """The number of blocks."""
        return len(self._blocks.starts) - 1

    def each(self, query: Query[T]) -> list[T]:
        """Return the results of all blocks for the same query."""
        return self._blocks.ask([(number, query) for number in range(self.number)])

    def at(self, arms: Indices, query: Callable[[Indices], Query[Floats]]) -> Floats:
        """Return the result (n, …) for `arms` (n,). `query` receives positions within a block."""
        answers, order = self.parts(arms, query)
        return answers[0] if order is None else np.concatenate(answers)[order]

    def parts(self, arms: Indices, query: Callable[[Indices], Query[T]]) -> tuple[list[T], Indices | None]:
        """Return the blocks' results for their arms, and the permutation that sorts the joined
        rows; None if they are sorted."""
        if self.number == 1:
            return self._blocks.ask([(0, query(arms))]), None
        parts = [part for part in enumerate(self._split(arms)) if len(part[1])] or [(0, np.empty(0, np.intp))]
        starts = self._blocks.starts
        answers = self._blocks.ask([(number, query(arms[part] - starts[number])) for number, part in parts])
        return answers, np.argsort(np.concatenate([part for _, part in parts]), kind="stable")

    def _split(self, arms: Indices) -> list[Indices]:
        """Return, for each block, the positions in `arms` (n,) of those in the block."""
        block = np.searchsorted(self._blocks.starts, arms, side="right") - 1
        return [np.flatnonzero(block == number) for number in range(self.number)]

    def within(self, arms: Indices) -> list[Indices]:
        """Return, for each block, the positions within the block of its members in `arms`."""
        return [arms[part] - self._blocks.starts[number] for number, part in enumerate(self._split(arms))]


class AllArms:
    """Queries the blocks and joins the results. Indices of arms count over all blocks."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self._dispatcher = _Dispatcher(blocks)

    @property
    def count(self) -> int:
        """A, the number of arms."""
        return int(self.blocks.starts[-1])

    @property
    def number(self) -> int:
        """The number of blocks."""
        return self._dispatcher.number

    def look_up(self, arms: Indices) -> Floats:
        """Return features (n, d) of `arms` (n,)."""
        return self._dispatcher.at(arms, lambda positions: partial(Block.look_up, positions=positions))

    def kernel_rows(self, arms: Indices, columns: Points) -> Floats:
        """Return k(x, x_s) for x in `arms` (n,) and s in `columns` (m): (n, m)."""
        return self._dispatcher.at(
            arms, lambda positions: partial(Block.kernel_rows, positions=positions, columns=columns)
        )

    def kernel_entries(self, arms: Indices, columns: Points) -> Floats:
        """Return the same as `kernel_rows` without caching the columns, for columns that only few
        arms need."""
        return self._dispatcher.at(
            arms, lambda positions: partial(Block.kernel_entries, positions=positions, columns=columns)
        )

    def moments(self, fit: Fit, arms: Indices, is_joint: bool = False) -> tuple[Floats, Floats, Floats]:
        """See `Block.moments` or `Block.joint_moments`. Results are in the order of `arms` (n,)."""
        method = Block.joint_moments if is_joint else Block.moments
        answers, order = self._dispatcher.parts(arms, lambda positions: partial(method, fit=fit, positions=positions))
        if order is None:
            return answers[0]
        means, variances, rows = zip(*answers, strict=True)
        return np.concatenate(means)[order], np.concatenate(variances)[order], np.concatenate(rows)[order]

    def sweep(self, fit: Fit) -> tuple[Floats, Floats, Floats]:
        """Return μ̃ and σ̃² of every arm under `fit`, (A,) each, and further outputs' μ̃ (K, A)."""
        means, variances, further = zip(*self._dispatcher.each(partial(Block.sweep, fit=fit)), strict=True)
        return np.concatenate(means), np.concatenate(variances), np.hstack(further)

    def local_sums(self, fit: Fit, arms: Indices | None, pulled: Pulled, covariance: LocalCovariance) -> Floats:
        """See `Block.local_sums`: for `arms` (n,), or for every arm (A,) if None."""

        def query(positions: Indices | None) -> Query[Floats]:
            return partial(Block.local_sums, fit=fit, positions=positions, pulled=pulled, covariance=covariance)

        return np.concatenate(self._dispatcher.each(query(None))) if arms is None else self._dispatcher.at(arms, query)

    @cached_property
    def prior(self) -> Floats:
        """k(x, x) of every arm (A,)."""
        return np.concatenate(self._dispatcher.each(Block.prior))

    @cached_property
    def largest_prior(self) -> float:
        """κ², the largest k(x, x)."""
        return max(self._dispatcher.each(Block.largest_prior))

    def requests(self, line: BoundLine, blocked: Indices) -> list[BoundRequest]:
        """Return requests for the bounds of `line` to the blocks, −∞ for `blocked` arms."""
        return [BoundRequest(line, part) for part in self._dispatcher.within(blocked)]

    def tops(self, requests: Sequence[BoundRequest]) -> list[float]:
        """Return the largest bound in each block."""
        return self.blocks.ask([(number, partial(Block.top, request=each)) for number, each in enumerate(requests)])

    def take(self, requests: Mapping[int, tuple[BoundRequest, float]], best: float, least: int) -> list[TakenArms]:
        """Return the results of `argmax_queue.take` for some blocks. `below` maps block indices to
        floats; only smaller bounds are taken. Positions are replaced by indices of arms."""
        queries = [
            (number, partial(Block.take, request=request, below=below, best=best, least=least))
            for number, (request, below) in requests.items()
        ]
        starts = self.blocks.starts
        answers = self.blocks.ask(queries)
        return [
            replace(taken, arms=taken.arms + starts[number]) for number, taken in zip(requests, answers, strict=True)
        ]

    def tighten(self, fit: Fit, line: BoundLine, arms: Indices) -> Floats:
        """See `Block.tighten`, for `arms` (n,)."""
        return self._dispatcher.at(
            arms, lambda positions: partial(Block.tighten, fit=fit, line=line, positions=positions)
        )

    def arms_reaching(
        self, lines: tuple[BoundLine, ...], blocked: Indices, scalarizing: Scalarizing, best: float, most: int
    ) -> tuple[Indices, Floats]:
        """See `Block.arms_reaching`. Returns the arms (n,), ascending, and their bounds (n,),
        without `blocked` arms."""
        queries = [
            (
                number,
                partial(
                    Block.arms_reaching,
                    request=OutputsRequest(lines, part),
                    scalarizing=scalarizing,
                    best=best,
                    most=most,
                ),
            )
            for number, part in enumerate(self._dispatcher.within(blocked))
        ]
        answers = zip(self.blocks.starts, self.blocks.ask(queries), strict=False)
        arms, bounds = zip(*((positions + start, bounds) for start, (positions, bounds) in answers), strict=True)
        return np.concatenate(arms), np.concatenate(bounds)

    def tighten_all(self, fit: Fit, lines: tuple[BoundLine, ...], arms: Indices) -> Floats:
        """See `Block.tighten_all`, for `arms` (n,): (J, n)."""
        answers, order = self._dispatcher.parts(
            arms, lambda positions: partial(Block.tighten_all, fit=fit, lines=lines, positions=positions)
        )
        return answers[0] if order is None else np.hstack(answers)[:, order]
