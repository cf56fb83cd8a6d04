"""What is done to every arm, block by block: everything whose size grows with the number of arms A is in here.

A block holds the features of its arms and whatever is kept for them: kernel columns, the moments of the reference
posterior, the bounds of the present batch. The rest of the bandit only sees numbers of arms and what it asks for, so
the blocks may be one array in this process or lie on many machines (`Blocks`): an arm's values are the same, bit for
bit, in any division.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.kernels import Kernel
from orchestrator.bandit.sparse.columns import KernelColumns, Points
from orchestrator.bandit.sparse.lazy import Rest

BLOCK = 2048  # arms a matrix product: a block of a usual dictionary stays in the cache
LocalCovariance = Literal["embedded", "paper"]


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted posterior; `basis`: the r atoms that carry it, the other symbols are those of `posterior`.

    `defect`: how far rounding has taken H K_𝒮 Hᵀ from diag(b/(b + λ)), which it is (Frobenius norm, estimated).
    """

    basis: Points
    transform: Floats
    spectrum: Floats
    loadings: Floats
    defect: float

    @cached_property
    def roots(self) -> Floats:
        """H (r, r) with σ̃²(x) = (k(x, x) − ‖H k_𝒮(x)‖²)/λ."""
        return np.sqrt(self.spectrum)[:, None] * self.transform

    @cached_property
    def weights(self) -> Floats:
        """a (r,) with μ̃(x) = k_𝒮(x)ᵀ a."""
        return self.loadings @ self.transform


@dataclass(frozen=True, eq=False)
class Pulled:
    """Distinct arms pulled, their `counts` (n,), and their y under the fit in use: `rows` (n, r)."""

    points: Points
    counts: Indices
    rows: Floats


class Block:
    """n arms with `features` (n, d). Positions are within the block. Moments are those of the fit in use."""

    def __init__(self, kernel: Kernel, features: Floats, regularization: float) -> None:
        self.features, self.regularization = features, regularization
        self.columns = KernelColumns(kernel, features)
        self.diagonal = kernel.diagonal(features)
        self._fit: Fit | None = None
        self._mean, self._deviation = np.zeros(0), np.zeros(0)  # of the reference
        self._rest = Rest(np.zeros(0))

    def look_up(self, positions: Indices) -> Floats:
        """Features (p, d) of the arms at `positions` (p,)."""
        return self.features[positions]

    def kernel_rows(self, positions: Indices, columns: Points) -> Floats:
        """k(x, x_s) for x at `positions` (p,) and s in `columns` (m): (p, m)."""
        return self.columns.rows(positions, columns)

    def use(self, fit: Fit) -> None:
        """Answer for `fit` from now on."""
        self._fit = fit

    @property
    def fit(self) -> Fit:
        """The fit in use. Raises ValueError without one."""
        if self._fit is None:
            raise ValueError("a block was asked for moments before it was given a fit")
        return self._fit

    def sweep(self) -> tuple[Floats, Floats]:
        """μ̃ and σ̃² of every arm, (n,) each, by joint matrix products."""
        mean, explained = np.empty(len(self.features)), np.empty(len(self.features))
        stacked = np.vstack((self.fit.roots, self.fit.weights)).T
        for low in range(0, len(mean), BLOCK):
            part = slice(low, low + BLOCK)
            product = self.columns.rows(part, self.fit.basis) @ stacked
            explained[part] = np.einsum("ij,ij->i", product[:, :-1], product[:, :-1])
            mean[part] = product[:, -1]
        # rounding can take a well-known arm below 0
        return mean, np.maximum(self.diagonal - explained, 0.0) / self.regularization

    def moments(self, positions: Indices) -> tuple[Floats, Floats, Floats]:
        """μ̃ (p,), σ̃² (p,) and y (p, r) of the arms at `positions` (p,), each the same in whatever company."""
        rows = self.columns.rows(positions, self.fit.basis)
        # stacked, so that each row is a matrix-vector product of its own: a joint one rounds by position
        whitened = np.matmul(self.fit.transform, rows[:, :, None])[:, :, 0]
        explained = np.vecdot(whitened * self.fit.spectrum, whitened)
        variance = np.maximum(self.diagonal[positions] - explained, 0.0) / self.regularization
        return np.vecdot(whitened, self.fit.loadings), variance, whitened

    def prior(self) -> Floats:
        """k(x, x) of every arm (n,)."""
        return self.diagonal

    def largest_prior(self) -> float:
        """The largest k(x, x)."""
        return float(self.diagonal.max())

    def refer(self) -> None:
        """Make the fit in use the reference."""
        self._mean, variance = self.sweep()
        self._deviation = np.sqrt(variance)

    def bound(self, slope: float, constant: float, blocked: Indices) -> float:
        """Begin a batch with the bounds μ̃₀ + slope · σ̃₀ + constant, −∞ for the `blocked`; the largest of them."""
        bounds = self._mean + slope * self._deviation
        bounds += constant
        bounds[blocked] = -np.inf
        self._rest = Rest(bounds)
        return self._rest.top

    def take(self, best: float, least: int) -> tuple[Indices, Floats, float]:
        """`Rest.take` of the batch's bounds."""
        return self._rest.take(best, least)

    def tighten(self, positions: Indices, slope: float, constant: float) -> Floats:
        """Bounds with the own means of the arms at `positions` (p,): μ̃ + slope · σ̃₀ + constant (p,)."""
        mean = self.columns.dot(positions, self.fit.basis, self.fit.weights)
        bounds: Floats = mean + slope * self._deviation[positions] + constant
        return bounds

    def covariances_with(self, point: Points, projected: Floats) -> Floats:
        """k̃(x, x') of every arm with one `point`, whose HᵀH k_𝒮(x') is `projected` (r,): (n,)."""
        covariances = np.empty(len(self.features))
        for low in range(0, len(covariances), BLOCK):
            part = slice(low, low + BLOCK)
            kernel = self.columns.rows(part, point)[:, 0]
            covariances[part] = kernel - self.columns.rows(part, self.fit.basis) @ projected
        return covariances / self.regularization

    def local_sums(self, positions: Indices | None, pulled: Pulled, covariance: LocalCovariance) -> Floats:
        """Σ_s c(x, x_s)/σ̃²(x) over the pulls (Lemma 3) for the arms at `positions` (p,), for all if None: (p,)."""
        every = np.arange(len(self.features)) if positions is None else positions
        sums = np.empty(len(every))
        for low in range(0, len(every), BLOCK):
            part = every[low : low + BLOCK]
            full, embedded, variance = self._covariances(part, pulled)
            squares = full**2 if covariance == "paper" else np.maximum(full**2, embedded**2)
            # an arm with variance 0 is known for certain: its covariances are 0 too
            total = squares @ pulled.counts
            sums[low : low + BLOCK] = np.divide(total, variance, out=np.zeros_like(total), where=variance > 0)
        return sums

    def _covariances(self, positions: Indices, pulled: Pulled) -> tuple[Floats, Floats, Floats]:
        """k̃(x, x_s) and zᵀV⁻¹z_s, (p, n) each, and σ̃² (p,)."""
        rows = self.columns.rows(positions, self.fit.basis)
        whitened = rows @ self.fit.transform.T
        explained = np.einsum("ij,ij->i", whitened * self.fit.spectrum, whitened)
        variance = np.maximum(self.diagonal[positions] - explained, 0.0) / self.regularization
        kernel = self.columns.rows(positions, pulled.points)
        full = (kernel - whitened @ (pulled.rows * self.fit.spectrum).T) / self.regularization
        return full, whitened @ pulled.rows.T, variance


class Blocks(Protocol):
    """All arms, in consecutive blocks."""

    @property
    def starts(self) -> Indices:
        """First arm of each block, and the number of arms (k + 1,)."""

    def call(self, calls: Sequence[tuple[int, str, tuple[Any, ...]]]) -> list[Any]:
        """Answers to (number of the block, method of `Block`, arguments), in order; blocks may work at once."""


class LocalBlocks:
    """Blocks in this process: one, as a rule."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = tuple(blocks)
        self.starts: Indices = np.cumsum([0, *(len(block.features) for block in blocks)])

    def call(self, calls: Sequence[tuple[int, str, tuple[Any, ...]]]) -> list[Any]:
        """See `Blocks`."""
        return [getattr(self._blocks[number], method)(*arguments) for number, method, arguments in calls]


class AllArms:
    """Asks the blocks, and puts the answers together."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self._fit: Fit | None = None

    def use(self, fit: Fit) -> "AllArms":
        """These arms, answering for `fit` from now on."""
        if self._fit is not fit:
            self.each("use", fit)
            self._fit = fit
        return self

    @property
    def count(self) -> int:
        """A."""
        return int(self.blocks.starts[-1])

    @property
    def number(self) -> int:
        """How many blocks there are."""
        return len(self.blocks.starts) - 1

    def each(self, method: str, *arguments: Any) -> list[Any]:
        """The answers of all blocks to the same question."""
        return self.blocks.call([(number, method, arguments) for number in range(self.number)])

    def at(self, method: str, arms: Indices, *arguments: Any) -> Any:
        """The answer for `arms` (n,), in their order: an array (n, …) or a tuple of such."""
        if self.number == 1:
            return self.blocks.call([(0, method, (arms, *arguments))])[0]
        parts = [part for part in enumerate(self.split(arms)) if len(part[1])] or [(0, arms)]
        starts = self.blocks.starts
        calls = [(number, method, (arms[part] - starts[number], *arguments)) for number, part in parts]
        answers = self.blocks.call(calls)
        order = np.argsort(np.concatenate([part for _, part in parts]), kind="stable")
        if isinstance(answers[0], tuple):
            return tuple(np.concatenate(arrays)[order] for arrays in zip(*answers, strict=True))
        return np.concatenate(answers)[order]

    def split(self, arms: Indices) -> list[Indices]:
        """For each block the positions in `arms` (n,) of those that are in it."""
        block = np.searchsorted(self.blocks.starts, arms, side="right") - 1
        return [np.flatnonzero(block == number) for number in range(self.number)]

    def within(self, arms: Indices) -> list[Indices]:
        """For each block the positions within it of those of `arms` that it holds."""
        return [arms[part] - self.blocks.starts[number] for number, part in enumerate(self.split(arms))]
