"""Computations for all arms. All data whose size grows with the number of arms A are in this module.

Every method is a function of the arms' features and of its arguments, which include the posterior. The
latest results (kernel columns, moments and bounds of all arms) are cached. The caches save time and change
no result, so several states can use an object alternately: an entry of a kernel depends only on its two
rows (`kernels`), and an arm's `moments` are the same, bit for bit, whatever other arms are in the call.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices, Recent, read_only
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.sparse.scalarization import Scalarizing

# arms in one matrix product, so that the data for a typical dictionary fit into the cache
BLOCK = 2048
KEPT = 2  # the number of posteriors for which moments and bounds of all arms are cached
LocalCovariance = Literal["embedded", "paper"]
MAX_BYTES = 256 * 2**20
WIDTH = 64  # the array of columns grows by this number, or by half if that is more
ENTRIES = 65_536  # the number of column entries to compute at a time
# the number of cached lookups, for the dictionary and the pulled arms, which a sweep requests
# alternately
RECENT = 2


@dataclass(frozen=True, eq=False)
class Points:
    """Some arms: their indices `arms` (m,) and their features `features` (m, d)."""

    arms: Indices
    features: Floats


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted posterior, in the notation of `posterior`."""

    basis: Points  # the r atoms of the posterior
    transform: Floats  # T (r, r)
    spectrum: Floats  # b (r,)
    regularization: float  # λ
    # (J, r), the loadings of each output, for its scores minus m; the means that `AllArms`
    # returns also exclude m
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


class AllArms:
    """The A arms, with `features` (A, d), and a `kernel`."""

    def __init__(self, kernel: Kernel, features: Floats, columns: "KernelColumns | None" = None) -> None:
        self.kernel = kernel
        self.features = features
        self.columns = columns or KernelColumns(kernel, features)
        self.diagonal = read_only(kernel.diagonal(features), np.float64)  # k(x, x) of every arm (A,)
        self._moments: Recent[Fit, tuple[Floats, Floats]] = Recent(KEPT)
        self._bounds: Recent[tuple[Fit, bytes], Floats] = Recent(KEPT)

    def extend(self, features: Floats) -> "AllArms":
        """Return these arms followed by n new ones, `features` (n, d). What was computed for these is kept."""
        count = len(self.features)

        def join(fit: Fit, moments: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
            new = grown.sweep(fit, count)
            return np.hstack((moments[0], new[0])), np.concatenate((moments[1], np.sqrt(new[1])))

        grown = AllArms(self.kernel, np.concatenate((self.features, features)), self.columns.extend(features))
        grown._moments = self._moments.mapped(join)
        return grown

    def __len__(self) -> int:
        return len(self.features)

    @cached_property
    def largest_prior(self) -> float:
        """κ², the largest k(x, x)."""
        return float(self.diagonal.max())

    def sweep(self, fit: Fit, first: int = 0) -> tuple[Floats, Floats]:
        """Return μ̃ (J, n) of every output and σ̃² (n,) of the n arms from `first` on, by joint matrix products."""
        means = np.empty((len(fit.weights), len(self)))
        explained = np.empty(len(self))
        rank = len(fit.spectrum)
        stacked = np.vstack((fit.roots, fit.weights)).T
        for low in range(first, len(self), BLOCK):
            part = slice(low, low + BLOCK)
            product = self.columns.rows(part, fit.basis) @ stacked
            explained[part] = np.einsum("ij,ij->i", product[:, :rank], product[:, :rank])
            means[:, part] = product[:, rank:].T
        # rounding can make the variance of a well-known arm negative
        variance = np.maximum(self.diagonal[first:] - explained[first:], 0.0) / fit.regularization
        return means[:, first:], variance

    def moments(self, fit: Fit, arms: Indices, is_joint: bool = False) -> tuple[Floats, Floats, Floats]:
        """Return μ̃ (n,), σ̃² (n,) and y (n, r) under `fit` of `arms` (n,).

        The values of an arm do not depend on the other arms in the call, bit for bit; with `is_joint`, they are
        computed by joint matrix products, and their last digits do.
        """
        rows = self.columns.rows(arms, fit.basis)
        mean: Floats
        if is_joint:
            whitened = rows @ fit.transform.T
            mean = whitened @ fit.loadings[0]
            explained = np.einsum("ij,ij->i", whitened * fit.spectrum, whitened)
        else:
            # stacked, so that each row is a separate matrix-vector product; the rounding of a joint
            # product depends on a row's position
            whitened = np.matmul(fit.transform, rows[:, :, None])[:, :, 0]
            mean = np.vecdot(whitened, fit.loadings[0])
            explained = np.vecdot(whitened * fit.spectrum, whitened)
        return mean, np.maximum(self.diagonal[arms] - explained, 0.0) / fit.regularization, whitened

    def bounds_on(
        self, lines: tuple[BoundLine, ...], blocked: Indices, scalarizing: Scalarizing | None = None
    ) -> Floats:
        """Return the bounds (A,) by `lines`, all of one reference, on the scalarized score, or those of the
        first line if None; −∞ for `blocked` arms."""
        reference = lines[0].reference

        def make() -> Floats:
            means, deviation = self._reference(reference)
            bounds = np.empty((len(lines), len(self)))
            for row, line in zip(bounds, lines, strict=True):
                np.multiply(deviation, line.slope, out=row)
                row += means[line.output]
                row += line.constant
            return bounds

        numbers = np.array([(line.slope, line.constant, line.output) for line in lines])
        bounds = self._bounds.get((reference, numbers.tobytes()), make)  # equal, whichever arms are blocked
        scores = bounds[0].copy() if scalarizing is None else scalarizing.scores(bounds)
        scores[blocked] = -np.inf
        return scores

    def tighten(self, fit: Fit, lines: tuple[BoundLine, ...], arms: Indices) -> Floats:
        """Return the bounds (L, n) of `lines` for `arms` (n,), with the means of
        `fit` instead of the reference's."""
        rows = self.columns.rows(arms, fit.basis)
        means = fit.weights @ rows.T
        deviation = self._reference(lines[0].reference)[1][arms]
        slopes, constants = np.array([(line.slope, line.constant) for line in lines]).T
        bounds: Floats = means[[line.output for line in lines]] + slopes[:, None] * deviation + constants[:, None]
        return bounds

    def _reference(self, fit: Fit) -> tuple[Floats, Floats]:
        """Return μ̃ (J, n) of every output and σ̃ (n,) of every arm, from the cache if possible."""
        return self._moments.get(fit, lambda: self._refer(fit))

    def _refer(self, fit: Fit) -> tuple[Floats, Floats]:
        means, variance = self.sweep(fit)
        return means, np.sqrt(variance)

    def local_sums(self, fit: Fit, arms: Indices | None, pulled: Pulled, covariance: LocalCovariance) -> Floats:
        """Return Σ_s c(x, x_s)/σ̃²(x) over the pulls (Lemma 3) for `arms` (n,), or
        for all arms if None: (n,)."""
        every = np.arange(len(self)) if arms is None else arms
        sums = np.empty(len(every))
        for low in range(0, len(every), BLOCK):
            part = every[low : low + BLOCK]
            _, variance, whitened = self.moments(fit, part, is_joint=True)
            kernel = self.columns.rows(part, pulled.points)
            full = (kernel - whitened @ (pulled.rows * fit.spectrum).T) / fit.regularization  # k̃(x, x_s)
            embedded = whitened @ pulled.rows.T  # zᵀV⁻¹z_s
            squares = full**2 if covariance == "paper" else np.maximum(full**2, embedded**2)
            # an arm with variance 0 is known exactly, so its covariances are also 0
            total = squares @ pulled.counts
            sums[low : low + BLOCK] = np.divide(total, variance, out=np.zeros_like(total), where=variance > 0)
        return sums


class KernelColumns:
    """Kernel columns k(·, x_s) over `features` (A, d), cached between refits; old ones are evicted beyond `max_bytes`.

    A dictionary changes little from one refit to the next, so nearly all of its columns were already
    computed. The entries of an arm are contiguous, because a batch reads those of few arms.
    """

    def __init__(self, kernel: Kernel, features: Floats, max_bytes: int = MAX_BYTES) -> None:
        self._kernel = kernel
        # feature by feature, which is the order in which a column is computed
        self._features = np.asfortranarray(features)
        self._max_bytes = max_bytes
        self.capacity = max_bytes // (8 * len(features))  # the largest number of cached columns
        self._columns = np.empty((len(features), 0))
        self._points: dict[int, Floats] = {}  # the index of a column → x_s
        # arm → the index of its column; the last one is the most recently used
        self._slots: dict[int, int] = {}
        # the lookups of the last `RECENT` points, with the indices of their columns
        self._recent: list[tuple[Points, Indices]] = []

    def extend(self, features: Floats) -> "KernelColumns":
        """Return the columns over these arms and n new ones, `features` (n, d), with the cached entries."""
        longer = KernelColumns(self._kernel, np.concatenate((self._features, features)), self._max_bytes)
        if self._columns.shape[1] <= longer.capacity:
            longer._columns = np.concatenate((self._columns, np.empty((len(features), self._columns.shape[1]))))
            for size in {len(point) for point in self._points.values()}:  # d, or d + 1 of a value at a step
                slots = [slot for slot, point in self._points.items() if len(point) == size]
                points = np.array([self._points[slot] for slot in slots])
                longer._columns[len(self._features) :, slots] = self._kernel.cross(features, points)
            longer._points = self._points.copy()
            longer._slots = self._slots.copy()
            longer._recent = self._recent
        return longer

    def rows(self, positions: slice | Indices, columns: Points) -> Floats:
        """Return k(x, x_s) for the rows at `positions` (n,) and s in `columns` (m): (n, m),
        contiguous."""
        # caching complete columns for all of them would evict the others
        if len(columns.arms) > self.capacity:
            return self._kernel.cross(self._features[positions], columns.features)
        slots = self._slots_of(columns)
        return self._columns[positions].take(slots, axis=1)

    def entries(self, positions: Indices, columns: Points) -> Floats:
        """Like `rows`, but new columns are computed only for these rows and not cached."""
        is_kept = np.array([arm in self._slots for arm in columns.arms.tolist()], bool)
        if is_kept.all():
            return self.rows(positions, columns)
        entries = np.empty((len(positions), len(is_kept)))
        entries[:, ~is_kept] = self._kernel.cross(self._features[positions], columns.features[~is_kept])
        if is_kept.any():
            entries[:, is_kept] = self.rows(positions, Points(columns.arms[is_kept], columns.features[is_kept]))
        return entries

    def _slots_of(self, columns: Points) -> Indices:
        """Return the indices (m,) of the columns, after computing those that are not cached."""
        for points, slots in self._recent:
            if points is columns:
                return slots
        numbers = columns.arms.tolist()
        for arm in numbers:
            if arm in self._slots:
                self._slots[arm] = self._slots.pop(arm)
        added: dict[int, int] = {}  # the columns to compute: index in `columns` → slot
        for number, arm in enumerate(numbers):
            if arm in self._slots:
                continue
            slot = len(self._slots)
            if slot >= self.capacity:
                self._recent = []  # the cached indices may no longer be valid
                slot = self._slots.pop(next(iter(self._slots)))
            self._slots[arm] = added[number] = slot
        if added:
            self._fill(columns.features[list(added)], np.array(list(added.values())))
        slots = np.array([self._slots[arm] for arm in numbers], np.intp)
        self._recent = [*self._recent[1 - RECENT :], (columns, slots)]
        return slots

    def _fill(self, points: Floats, slots: Indices) -> None:
        """Compute the columns of `points` (k, d), and put them into `slots` (k,)."""
        missing = int(slots.max()) + 1 - self._columns.shape[1]
        if missing > 0:
            width = min(self.capacity, self._columns.shape[1] + max(missing, WIDTH, self._columns.shape[1] // 2))
            grown = np.empty((len(self._features), width))
            grown[:, : self._columns.shape[1]] = self._columns
            self._columns = grown
        self._points.update(zip(slots.tolist(), points, strict=True))
        size = max(1, ENTRIES // len(points))
        for low in range(0, len(self._features), size):
            part = slice(low, low + size)
            self._columns[part, slots] = self._kernel.cross(self._features[part], points)
