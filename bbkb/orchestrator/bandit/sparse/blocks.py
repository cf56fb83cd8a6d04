"""Computations for all arms, in blocks. All data whose size grows with the number of arms A are in
this module.

A block holds the features of its arms. Every method is a function of these features and of its
arguments, which include the posterior. A block also caches its latest results (kernel columns,
moments and bounds of all its arms). The caches save time and change no result, so several states
can use a block alternately. An arm's values are the same, bit for bit, in any division of the arms
into blocks.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.recent import Recent
from bbkb.orchestrator.bandit.sparse.argmax_queue import TakenArms, largest, take
from bbkb.orchestrator.bandit.sparse.columns import KernelColumns, Points
from bbkb.orchestrator.bandit.sparse.scalarization import Scalarizing

# arms in one matrix product, so that the data for a typical dictionary fit into the cache
BLOCK = 2048
KEPT = 2  # the number of posteriors for which moments and bounds of all arms are cached
LocalCovariance = Literal["embedded", "paper"]


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted posterior, in the notation of `posterior`."""

    basis: Points  # the r atoms of the posterior
    transform: Floats  # T (r, r)
    spectrum: Floats  # b (r,)
    regularization: float  # λ
    # (J, r), the loadings of each output, for its scores minus m; the means that a block returns
    # also exclude m
    loadings: Floats
    offsets: Floats  # m (J,), the constant mean of each output
    # the estimated Frobenius norm of the rounding error of H K_𝒮 Hᵀ, which is exactly diag(b/(b +
    # λ))
    defect: float

    @property
    def offset(self) -> float:
        """The constant mean of the first output."""
        return float(self.offsets[0])

    @cached_property
    def roots(self) -> Floats:
        """H (r, r) such that σ̃²(x) = (k(x, x) − ‖H k_𝒮(x)‖²)/λ."""
        return np.sqrt(self.spectrum)[:, None] * self.transform

    @cached_property
    def weights(self) -> Floats:
        """a (J, r) with μ̃(x) = a k_𝒮(x) of each output."""
        # row by row, because the rounding of a joint product depends on the number of outputs
        return np.array([loadings @ self.transform for loadings in self.loadings])


@dataclass(frozen=True, eq=False)
class Pulled:
    """Distinct pulled arms."""

    points: Points  # the arms' indices and features
    counts: Indices  # (n,), the number of pulls of each arm
    rows: Floats  # (n, r), the arms' y under the current fit


@dataclass(frozen=True, eq=False)
class BoundLine:
    """Bounds μ̃₀ + `slope` · σ̃₀ + `constant` on all arms."""

    reference: Fit  # the posterior with the moments μ̃₀ and σ̃₀
    slope: float  # the factor on σ̃₀
    constant: float  # added to each bound
    output: int = 0  # the index of the output with the mean μ̃₀


@dataclass(frozen=True, eq=False)
class BoundRequest:
    """Bounds on a block's arms by one reference, −∞ for those at the positions `blocked`."""

    lines: tuple[BoundLine, ...]
    blocked: Indices

    @property
    def key(self) -> tuple[Fit, bytes]:
        """Equal for equal bounds on the same block, whichever arms are blocked."""
        numbers = [(line.slope, line.constant, line.output) for line in self.lines]
        return self.lines[0].reference, np.array(numbers).tobytes()

    def bounds(self, means: Floats, deviation: Floats) -> Floats:
        """Return the bounds of all lines (L, n) without blocking, given μ̃₀ (J, n) and σ̃₀ (n,)."""
        bounds = np.empty((len(self.lines), len(deviation)))
        for row, line in zip(bounds, self.lines, strict=True):
            np.multiply(deviation, line.slope, out=row)
            row += means[line.output]
            row += line.constant
        return bounds


class Block:
    """n arms, by position, with `features` (n, d) and a `kernel`."""

    def __init__(self, kernel: Kernel, features: Floats) -> None:
        self.kernel = kernel
        self.features = features
        self.columns = KernelColumns(kernel, features)
        self.diagonal = kernel.diagonal(features)
        self._moments: Recent[Fit, tuple[Floats, Floats]] = Recent(KEPT)
        self._bounds: Recent[tuple[Fit, bytes], Floats] = Recent(KEPT)

    def look_up(self, positions: Indices) -> Floats:
        """Return features (p, d) of the arms at `positions` (p,)."""
        return self.features[positions]

    def kernel_rows(self, positions: Indices, columns: Points) -> Floats:
        """Return k(x, x_s) for x at `positions` (p,) and s in `columns` (m): (p, m)."""
        return self.columns.rows(positions, columns)

    def kernel_entries(self, positions: Indices, columns: Points) -> Floats:
        """Return the same as `kernel_rows`, without caching the columns."""
        return self.columns.entries(positions, columns)

    def sweep(self, fit: Fit) -> tuple[Floats, Floats]:
        """Return μ̃ (J, n) of every output and σ̃² (n,) of every arm, by joint matrix products."""
        means = np.empty((len(fit.weights), len(self.features)))
        explained = np.empty(len(self.features))
        rank = len(fit.spectrum)
        stacked = np.vstack((fit.roots, fit.weights)).T
        for low in range(0, len(explained), BLOCK):
            part = slice(low, low + BLOCK)
            product = self.columns.rows(part, fit.basis) @ stacked
            explained[part] = np.einsum("ij,ij->i", product[:, :rank], product[:, :rank])
            means[:, part] = product[:, rank:].T
        # rounding can make the variance of a well-known arm negative
        return means, np.maximum(self.diagonal - explained, 0.0) / fit.regularization

    def moments(self, fit: Fit, positions: Indices) -> tuple[Floats, Floats, Floats]:
        """Return μ̃ (p,), σ̃² (p,) and y (p, r) under `fit` of the arms at `positions` (p,).

        The values of an arm do not depend on the other arms in the call, bit for bit.
        """
        rows = self.columns.rows(positions, fit.basis)
        # stacked, so that each row is a separate matrix-vector product; the rounding of a joint
        # product depends on a row's position
        whitened = np.matmul(fit.transform, rows[:, :, None])[:, :, 0]
        explained = np.vecdot(whitened * fit.spectrum, whitened)
        variance = np.maximum(self.diagonal[positions] - explained, 0.0) / fit.regularization
        return np.vecdot(whitened, fit.loadings[0]), variance, whitened

    def joint_moments(self, fit: Fit, positions: Indices) -> tuple[Floats, Floats, Floats]:
        """Return `moments`, computed by joint matrix products, whose last digits depend on the
        other arms in the call."""
        variance, whitened = self._joint_variance(fit, positions)
        return whitened @ fit.loadings[0], variance, whitened

    def _joint_variance(self, fit: Fit, positions: Indices) -> tuple[Floats, Floats]:
        """Return σ̃² (p,) and y (p, r), computed by joint matrix products."""
        whitened = self.columns.rows(positions, fit.basis) @ fit.transform.T
        explained = np.einsum("ij,ij->i", whitened * fit.spectrum, whitened)
        return np.maximum(self.diagonal[positions] - explained, 0.0) / fit.regularization, whitened

    def prior(self) -> Floats:
        """Return k(x, x) of every arm (n,)."""
        return self.diagonal

    def largest_prior(self) -> float:
        """Return the largest k(x, x)."""
        return float(self.diagonal.max())

    def top(self, request: BoundRequest) -> float:
        """Return the largest bound of the first line."""
        return float(self._scores(request).max(initial=-np.inf))

    def take(self, request: BoundRequest, below: float, best: float, least: int) -> TakenArms:
        """Return `argmax_queue.take` for the bounds of the first line that are below `below`."""
        return take(self._scores(request), below, best, least)

    def arms_reaching(
        self, request: BoundRequest, scalarizing: Scalarizing, best: float, most: int
    ) -> tuple[Indices, Floats]:
        """Return the positions (n,), ascending, and the bounds (n,) of the arms whose bound on the
        scalarized score is at least `best`. If `best` is −∞, return the `most` arms with the
        largest bounds."""
        bounds = self._scores(request, scalarizing)
        reaching = np.flatnonzero(bounds >= best) if best > -np.inf else np.sort(largest(bounds, most))
        return reaching, bounds[reaching]

    def _scores(self, request: BoundRequest, scalarizing: Scalarizing | None = None) -> Floats:
        """Return the bounds on the scalarized score (n,), or those of the first line if None."""

        def make() -> Floats:
            return request.bounds(*self._reference(request.lines[0].reference))

        bounds = self._bounds.get(request.key, make)
        scores = bounds[0].copy() if scalarizing is None else scalarizing.scores(bounds)
        scores[request.blocked] = -np.inf
        return scores

    def tighten(self, fit: Fit, lines: tuple[BoundLine, ...], positions: Indices) -> Floats:
        """Return the bounds (L, p) of `lines` for the arms at `positions` (p,), with the means of
        `fit` instead of the reference's."""
        rows = self.columns.rows(positions, fit.basis)
        means = fit.weights @ rows.T
        deviation = self._reference(lines[0].reference)[1][positions]
        slopes, constants = np.array([(line.slope, line.constant) for line in lines]).T
        bounds: Floats = means[[line.output for line in lines]] + slopes[:, None] * deviation + constants[:, None]
        return bounds

    def _reference(self, fit: Fit) -> tuple[Floats, Floats]:
        """Return μ̃ (J, n) of every output and σ̃ (n,) of every arm, from the cache if possible."""
        return self._moments.get(fit, lambda: self._refer(fit))

    def _refer(self, fit: Fit) -> tuple[Floats, Floats]:
        means, variance = self.sweep(fit)
        return means, np.sqrt(variance)

    def local_sums(self, fit: Fit, positions: Indices | None, pulled: Pulled, covariance: LocalCovariance) -> Floats:
        """Return Σ_s c(x, x_s)/σ̃²(x) over the pulls (Lemma 3) for the arms at `positions` (p,), or
        for all arms if None: (p,)."""
        every = np.arange(len(self.features)) if positions is None else positions
        sums = np.empty(len(every))
        for low in range(0, len(every), BLOCK):
            part = every[low : low + BLOCK]
            full, embedded, variance = self._covariances(fit, part, pulled)
            squares = full**2 if covariance == "paper" else np.maximum(full**2, embedded**2)
            # an arm with variance 0 is known exactly, so its covariances are also 0
            total = squares @ pulled.counts
            sums[low : low + BLOCK] = np.divide(total, variance, out=np.zeros_like(total), where=variance > 0)
        return sums

    def _covariances(self, fit: Fit, positions: Indices, pulled: Pulled) -> tuple[Floats, Floats, Floats]:
        """Return k̃(x, x_s) and zᵀV⁻¹z_s, (p, n) each, and σ̃² (p,)."""
        variance, whitened = self._joint_variance(fit, positions)
        kernel = self.columns.rows(positions, pulled.points)
        full = (kernel - whitened @ (pulled.rows * fit.spectrum).T) / fit.regularization
        return full, whitened @ pulled.rows.T, variance
