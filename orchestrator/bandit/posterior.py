"""The sparse posterior over all arms (BKB's; DTC on the 1/λ scale), fitted from counts.

In the paper's symbols, with z(x) = L⁻¹ k_𝒮(x) and V = Σ n_p z(x_p) z(x_p)ᵀ + λI (BBKB §3, eq. 2–3). Here everything is
written in coordinates in which V is the identity: with Σ n_p z z ᵀ = U diag(b) Uᵀ,

    y(x) = (diag(b) + λI)^{−1/2} Uᵀ z(x) = T k_𝒮(x)            `whiten`, T is `transform` (r, r), b is `spectrum` (r,)

    z(x)ᵀ V⁻¹ z(x') = y(x)ᵀ y(x')                              `embedded covariance`
    μ̃(x)           = y(x)ᵀ Σ_p s_p y(x_p)
    k̃(x, x')       = (k(x, x') − y(x)ᵀ diag(b) y(x')) / λ
    σ̃²(x)          = (k(x, x) − ‖diag(b)^{1/2} T k_𝒮(x)‖²) / λ

The last line is λσ̃² = k − k_𝒮ᵀ Q k_𝒮 with Q = K_𝒮⁻¹ − λ (L V Lᵀ)⁻¹ written as a square: one matrix product over the
arms gives means and variances, and rounding costs half the digits that Q itself would. The term k(x, x) − ‖z‖² is in
it, so far arms stay uncertain.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from orchestrator.bandit.arrays import Floats, Indices, read_only
from orchestrator.bandit.columns import KernelColumns
from orchestrator.bandit.kernels import Kernel
from orchestrator.bandit.nystrom import pivoted_cholesky
from orchestrator.bandit.pulls import Pulls

BLOCK = 2048  # arms a matrix product: a block of a usual dictionary stays in the cache


@dataclass(frozen=True, eq=False)
class SparseModel:
    """What a posterior is fitted with: `kernel`, candidate `arms` (A, d), `regularization` λ."""

    kernel: Kernel
    arms: Floats
    regularization: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", read_only(self.arms, np.float64))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SparseModel):
            return NotImplemented
        settings = (self.kernel, self.regularization) == (other.kernel, other.regularization)
        return settings and (self.arms is other.arms or np.array_equal(self.arms, other.arms))

    __hash__ = None  # type: ignore[assignment]  # arrays have no hash

    @cached_property
    def columns(self) -> KernelColumns:
        """Kernel columns over the arms, kept from one fit to the next."""
        return KernelColumns(self.kernel, self.arms)

    @cached_property
    def diagonal(self) -> Floats:
        """k(x, x) of every arm (A,)."""
        return read_only(self.kernel.diagonal(self.arms), np.float64)

    def blocks(self) -> list[slice]:
        """The arms in consecutive slices."""
        return [slice(low, min(low + BLOCK, len(self.arms))) for low in range(0, len(self.arms), BLOCK)]

    def fit(self, pulls: Pulls, dictionary: Indices) -> "SparsePosterior":
        """The posterior after `pulls` with inducing points `dictionary` (m,); the prior when that is empty."""
        gram = self.columns.take(dictionary, dictionary)
        kept, factor = pivoted_cholesky(gram)
        basis = dictionary[kept]
        kernel_pulled = self.columns.take(basis, pulls.arms)  # (r, p)
        embedded = solve_triangular(factor, kernel_pulled, lower=True) if len(basis) else kernel_pulled
        spectrum, rotation = np.linalg.eigh((embedded * pulls.counts[pulls.arms]) @ embedded.T)
        spectrum = np.maximum(spectrum, 0.0)
        scaled = rotation / np.sqrt(spectrum + self.regularization)
        transform = solve_triangular(factor, scaled, lower=True, trans="T").T if len(basis) else scaled
        loadings = transform @ (kernel_pulled @ pulls.reward_sums[pulls.arms])
        return SparsePosterior(self, basis, np.ascontiguousarray(transform), spectrum, loadings)


@dataclass(frozen=True, eq=False)
class SparsePosterior:
    """Belief over all arms. `basis` (r,): atoms that carry it; `transform`, `spectrum`, `loadings`: see the module."""

    model: SparseModel
    basis: Indices
    transform: Floats
    spectrum: Floats
    loadings: Floats

    @property
    def mean(self) -> Floats:
        """μ̃ of every arm (A,), read-only."""
        return self._moments[0]

    @property
    def variance(self) -> Floats:
        """σ̃² of every arm (A,) on the 1/λ scale, ≥ 0, read-only."""
        return self._moments[1]

    @cached_property
    def _moments(self) -> tuple[Floats, Floats]:
        mean, explained = np.empty(len(self.model.arms)), np.empty(len(self.model.arms))
        roots = np.sqrt(self.spectrum)[:, None] * self.transform
        stacked = np.vstack((roots, self.loadings @ self.transform))
        for block in self.model.blocks():
            product = stacked @ self.model.columns.take(self.basis, block)
            explained[block] = np.einsum("ij,ij->j", product[:-1], product[:-1])
            mean[block] = product[-1]
        # rounding can take a well-known arm below 0
        variance = np.maximum(self.model.diagonal - explained, 0.0) / self.model.regularization
        return read_only(mean, np.float64), read_only(variance, np.float64)

    def whiten(self, arms: Indices) -> Floats:
        """y(x) of `arms` (n,): (n, r). An arm's row does not depend on which others are asked for, bit for bit."""
        rows = self.model.kernel.cross(self.model.arms[arms], self.model.arms[self.basis])
        # stacked, so that each row is a matrix-vector product of its own: a joint one rounds by position
        whitened: Floats = np.matmul(self.transform, rows[:, :, None])[:, :, 0]
        return whitened

    def covariances(self, arms: Indices, others: slice | Indices) -> tuple[Floats, Floats]:
        """k̃(x, x') and zᵀV⁻¹z' between `arms` (n,) and `others` (p of them): two (n, p) arrays."""
        rows = self.whiten(arms)
        columns = self.model.columns.take(self.basis, others)
        kernel = self.model.kernel.cross(self.model.arms[arms], self.model.arms[others])
        full = (kernel - (rows * self.spectrum) @ self.transform @ columns) / self.model.regularization
        return full, (rows @ self.transform) @ columns
