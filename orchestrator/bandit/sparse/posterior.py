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
from typing import Any, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from orchestrator.bandit.arrays import Floats, Indices, read_only
from orchestrator.bandit.kernels import Kernel
from orchestrator.bandit.pulls import Pulls
from orchestrator.bandit.sparse.blocks import BLOCK, AllArms, Block, Blocks, Fit, LocalBlocks, LocalCovariance, Pulled
from orchestrator.bandit.sparse.columns import KernelColumns, Points
from orchestrator.bandit.sparse.nystrom import pivoted_cholesky
from orchestrator.bandit.sparse.screening import Screen

PROBES = 8  # random vectors that estimate a norm


class ShardableArms(Protocol):
    """Candidates that do not lie in one array here."""

    def __len__(self) -> int:
        """A."""

    def blocks(self, kernel: Kernel, regularization: float) -> Blocks:
        """The blocks that answer for them."""


@dataclass(frozen=True, eq=False)
class SparseModel:
    """What a posterior is fitted with: `kernel`, candidate `arms` (A, d), `regularization` λ."""

    kernel: Kernel
    arms: Any  # an array (A, d), or `ShardableArms`
    regularization: float

    def __post_init__(self) -> None:
        if not hasattr(self.arms, "blocks"):
            object.__setattr__(self, "arms", read_only(self.arms, np.float64))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SparseModel):
            return NotImplemented
        settings = (self.kernel, self.regularization) == (other.kernel, other.regularization)
        return settings and (self.arms is other.arms or np.array_equal(self.arms, other.arms))

    __hash__ = None  # type: ignore[assignment]  # arrays have no hash

    @cached_property
    def all_arms(self) -> AllArms:
        """Whatever is done to every arm."""
        if hasattr(self.arms, "blocks"):
            return AllArms(self.arms.blocks(self.kernel, self.regularization))
        return AllArms(LocalBlocks((self._block,)))

    @cached_property
    def _block(self) -> Block:
        return Block(self.kernel, self.arms, self.regularization)

    @property
    def columns(self) -> KernelColumns:
        """Kernel columns over the arms, kept from one fit to the next; for arms in one array."""
        return self._block.columns

    @cached_property
    def diagonal(self) -> Floats:
        """k(x, x) of every arm (A,)."""
        return read_only(np.concatenate(self.all_arms.each("prior")), np.float64)

    @cached_property
    def screen(self) -> Screen:
        """Bounds on all arms out of an earlier fit."""
        return Screen(self.kernel, self.regularization, max(self.all_arms.each("largest_prior")))

    def points(self, arms: Indices) -> Points:
        """`arms` (n,) with their features."""
        return Points(arms, self.all_arms.at("look_up", arms))

    def parts(self) -> list[slice]:
        """The arms in consecutive slices, of a size that suits a matrix product."""
        return [slice(low, min(low + BLOCK, len(self.arms))) for low in range(0, len(self.arms), BLOCK)]

    def fit(self, pulls: Pulls, dictionary: Indices) -> "SparsePosterior":
        """The posterior after `pulls` with inducing points `dictionary` (m,); the prior when that is empty."""
        inducing = self.points(dictionary)
        gram = self.all_arms.at("kernel_rows", dictionary, inducing)
        kept, factor = pivoted_cholesky(gram)
        basis = Points(dictionary[kept], inducing.features[kept])
        kernel_pulled = self.all_arms.at("kernel_rows", pulls.arms, basis).T  # (r, p)
        embedded = (
            solve_triangular(factor, kernel_pulled, lower=True, check_finite=False) if len(kept) else kernel_pulled
        )
        spectrum, rotation = np.linalg.eigh((embedded * pulls.counts[pulls.arms]) @ embedded.T)
        spectrum = np.maximum(spectrum, 0.0)
        scaled = rotation / np.sqrt(spectrum + self.regularization)
        transform = (
            solve_triangular(factor, scaled, lower=True, trans="T", check_finite=False).T if len(kept) else scaled
        )
        loadings = transform @ (kernel_pulled @ pulls.reward_sums[pulls.arms])
        transform = np.ascontiguousarray(transform)
        defect = _defect(gram[np.ix_(kept, kept)], transform, spectrum, self.regularization)
        return SparsePosterior(self, Fit(basis, transform, spectrum, loadings, defect))


def _defect(gram: Floats, transform: Floats, spectrum: Floats, regularization: float) -> float:
    """An estimate of ‖H K_𝒮 Hᵀ − diag(b/(b + λ))‖, the Frobenius norm, from its products with random signs."""
    roots, signs = np.sqrt(spectrum)[:, None], np.random.default_rng(0).choice((-1.0, 1.0), (len(spectrum), PROBES))
    seen = roots * (transform @ (gram @ (transform.T @ (roots * signs))))
    off = seen - (spectrum / (spectrum + regularization))[:, None] * signs
    return float(np.linalg.norm(off) / np.sqrt(PROBES))


@dataclass(frozen=True, eq=False)
class SparsePosterior:
    """Belief over all arms: `fit`, made with `model`."""

    model: SparseModel
    fit: Fit

    @property
    def basis(self) -> Indices:
        """The atoms that carry it (r,)."""
        return self.fit.basis.arms

    @property
    def mean(self) -> Floats:
        """μ̃ of every arm (A,), read-only."""
        return self._sweep[0]

    @property
    def variance(self) -> Floats:
        """σ̃² of every arm (A,) on the 1/λ scale, ≥ 0, read-only."""
        return self._sweep[1]

    @cached_property
    def _sweep(self) -> tuple[Floats, Floats]:
        means, variances = zip(*self.in_use().each("sweep"), strict=True)
        return read_only(np.concatenate(means), np.float64), read_only(np.concatenate(variances), np.float64)

    def in_use(self) -> AllArms:
        """All arms, ready to answer for this posterior."""
        return self.model.all_arms.use(self.fit)

    def whiten(self, arms: Indices) -> Floats:
        """y(x) of `arms` (n,): (n, r). An arm's row does not depend on which others are asked for, bit for bit."""
        return self.moments(arms)[2]

    def moments(self, arms: Indices) -> tuple[Floats, Floats, Floats]:
        """μ̃ (n,), σ̃² (n,) and y (n, r) of `arms` (n,); like `whiten`, the same in whatever company.

        What strategies decide by. `mean` and `variance` of all arms come from joint products: some last digits differ.
        """
        moments: tuple[Floats, Floats, Floats] = self.in_use().at("moments", arms)
        return moments

    def covariances(self, rows: Floats, points: Points) -> tuple[Floats, Floats]:
        """k̃(x, x') and zᵀV⁻¹z' among `points` (n), whose y are `rows` (n, r): two (n, n) arrays."""
        explained = (rows * self.fit.spectrum) @ rows.T
        kernel = self.model.kernel.cross(points.features, points.features)
        return (kernel - explained) / self.model.regularization, rows @ rows.T

    def covariances_with(self, arm: int) -> Floats:
        """k̃(x, x') of every arm with `arm`: (A,)."""
        point = self.model.points(np.array([arm]))
        row = self.model.all_arms.at("kernel_rows", point.arms, self.fit.basis)[0]
        projected = self.fit.roots.T @ (self.fit.roots @ row)
        return np.concatenate(self.in_use().each("covariances_with", point, projected))

    def local_sums(self, arms: Indices | None, pulled: Pulled, covariance: LocalCovariance) -> Floats:
        """Σ_s c(x, x_s)/σ̃²(x) over the pulls (Lemma 3) for x in `arms` (n,), for every arm if None: (n,)."""
        every = self.in_use()
        if arms is None:
            return np.concatenate(every.each("local_sums", None, pulled, covariance))
        sums: Floats = every.at("local_sums", arms, pulled, covariance)
        return sums
