"""Rules for the end of a batch: bounds on the drift of the posterior before it is fitted again.

Every rule is given the pulls of the batch one by one; pulls that are still pending come first. All
arguments are on the 1/λ scale and frozen at the start of the batch (fb), unless said otherwise.
"""

from typing import Literal, Protocol

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.sparse.batch import BatchPosterior
from orchestrator.bandit.sparse.blocks import LocalCovariance, Pulled
from orchestrator.bandit.sparse.conditioning import ConditionedPosterior

POWER_STEPS = 8  # of the power iteration that estimates a spectral radius; any number gives an upper bound
AnyBatch = BatchPosterior | ConditionedPosterior
Termination = Literal["global", "global_then_local", "product"]


class Drift(Protocol):
    """Scratch of one `ask`: the drift of the posterior over the pulls appended so far."""

    def append(self, arm: int, variance: float) -> None:
        """Add a pull of `arm`; `variance` is σ̃² of the arm just before it, pulls appended earlier
        included."""

    def is_spent(self) -> bool:
        """Return whether the bound on the drift is above C̃: the batch has ended."""


class NoDrift:
    """No rule: a batch ends at its limit."""

    def append(self, arm: int, variance: float) -> None:
        """See `Drift`."""

    def is_spent(self) -> bool:
        """See `Drift`."""
        return False


class GlobalDrift:
    """1 + Σ σ̃²_fb(x_s) > C̃ (Lemma 1; squares, as its proof needs)."""

    def __init__(self, batch: AnyBatch, ratio_threshold: float) -> None:
        self._batch, self._threshold = batch, ratio_threshold
        self.bound = 1.0

    def append(self, arm: int, variance: float) -> None:
        """See `Drift`."""
        position = self._batch.position(arm)  # must be first: it may move the arrays
        self.bound += self._batch.start_variance.item(position)

    def is_spent(self) -> bool:
        """See `Drift`."""
        return self.bound > self._threshold


class ProductDrift:
    """GP-BUCB's rule, Π (1 + σ̃²_{s−1}(x_s)) > C̃ (Desautels et al. 2014): the batch is never
    longer than Lemma 1's."""

    def __init__(self, ratio_threshold: float) -> None:
        self._threshold = ratio_threshold
        self.bound = 1.0

    def append(self, arm: int, variance: float) -> None:
        """See `Drift`."""
        self.bound *= 1.0 + variance

    def is_spent(self) -> bool:
        """See `Drift`."""
        return self.bound > self._threshold


class LocalDrift:
    """Lemma 1's bound first; once that is above C̃, max_x [1 + Σ c(x, x_s)/σ̃²_fb(x)] > C̃ (Lemma
    3).

    c = max(k̃_fb², (zᵀV⁻¹z_s)²) for `embedded`: the squared k̃_fb that is printed in the paper
    (`paper`) does not bound the ratio of the approximate variances, the larger of the two does, and
    stays below Lemma 1's bound.

    With `is_lazy` three cheaper answers are tried before a sweep over all arms, and nothing is
    decided otherwise:

    * each summand is at most σ̃²_fb(x_s), so an upper bound of any kind plus the sum since it was
    found is one too;
    * the maximum over the arms pulled is a lower bound, nearly always the maximum itself;
    * Σ_s c(x, x_s)/σ̃²_fb(x) is at most the spectral radius of the matrix (max(|k̃_fb|, |zᵀV⁻¹z'|))
      over the pulls, for every x there could be: see `_spectral_radius`.

    A second sweep of a batch looks only at the arms that can have come above C̃ since the first.
    """

    def __init__(
        self, batch: AnyBatch, ratio_threshold: float, covariance: LocalCovariance, is_lazy: bool = True
    ) -> None:
        self._batch, self._threshold = batch, ratio_threshold
        self._covariance, self._is_lazy = covariance, is_lazy
        self._global = GlobalDrift(batch, ratio_threshold)
        self._unswept: list[int] = []
        self._sums: Floats | None = None  # Σ c(x, x_s) / σ̃²_fb(x) (A,) over the pulls swept; None before the first
        self.bound = 1.0

    def append(self, arm: int, variance: float) -> None:
        """See `Drift`."""
        before = self._global.bound
        self._global.append(arm, variance)
        self._unswept.append(arm)
        self.bound += self._global.bound - before

    def is_spent(self) -> bool:
        """See `Drift`."""
        if not self._global.is_spent() or (self._is_lazy and self.bound <= self._threshold):
            return False
        if not self._unswept:
            return self.bound > self._threshold
        if not self._is_lazy:
            return self._sweep() > self._threshold
        least, most = self._among_pulls()
        if self._sums is None and least > self._threshold:
            return True
        self.bound = min(self.bound, most) if self._sums is None else self.bound
        if self.bound > self._threshold:
            self.bound = self._swept(min(self._since(), most - 1.0))
        return self.bound > self._threshold

    def _pulled(self) -> Pulled:
        """Return the distinct arms pulled since the last sweep."""
        arms, counts = np.unique(np.array(self._unswept, np.intp), return_counts=True)
        return Pulled(self._batch.posterior.model.points(arms), counts, self._batch.rows[self._batch.positions(arms)])

    def _among_pulls(self) -> tuple[float, float]:
        """Return a lower and an upper bound on the maximum, from the covariances between the
        pulls."""
        pulled = self._pulled()
        full, embedded = self._batch.posterior.covariances(pulled.rows, pulled.points)
        magnitudes = np.abs(full) if self._covariance == "paper" else np.maximum(np.abs(full), np.abs(embedded))
        variance = full.diagonal()
        sums = np.divide(magnitudes**2 @ pulled.counts, variance, out=np.zeros_like(variance), where=variance > 0)
        roots = np.sqrt(pulled.counts)
        return 1.0 + float(sums.max()), 1.0 + _spectral_radius(magnitudes * np.multiply.outer(roots, roots), sums)

    def _sweep(self) -> float:
        """Return the bound over all arms, exactly."""
        self._sums = self._summands(None) + (0.0 if self._sums is None else self._sums)
        self._unswept.clear()
        self.bound = 1.0 + float(self._sums.max())
        return self.bound

    def _swept(self, rise: float) -> float:
        """Return an upper bound on the maximum over all arms that is above C̃ if and only if the
        maximum is.

        `rise`: no sum can have grown by more since the last sweep.
        """
        sums = np.zeros(len(self._batch.posterior.model.arms)) if self._sums is None else self._sums
        reaching = np.flatnonzero(1.0 + sums + rise > self._threshold)
        if len(reaching) > len(sums) // 4:
            return self._sweep()
        reached = 1.0 + float((sums[reaching] + self._summands(reaching)).max(initial=0.0))
        return max(reached, 1.0 + float(np.delete(sums, reaching).max(initial=-np.inf)) + rise)

    def _since(self) -> float:
        """Return Σ σ̃²_fb over the pulls since the last sweep."""
        return float(self._batch.start_variance[self._batch.positions(np.array(self._unswept, np.intp))].sum())

    def _summands(self, arms: Indices | None) -> Floats:
        """Return Σ c(x, x_s)/σ̃²_fb(x) over the pulls since the last sweep, for x in `arms`, for
        all arms if None."""
        return self._batch.posterior.local_sums(arms, self._pulled(), self._covariance)


def _spectral_radius(matrix: Floats, start: Floats) -> float:
    """Return an upper bound on the largest eigenvalue of a symmetric `matrix` (n, n) ≥ 0: max
    (Nv)/v for any v > 0.

    (Collatz 1942.) With a(s, t) = ⟨φ_s, φ_t⟩ = k̃ and b(s, t) = ⟨φ'_s, φ'_t⟩ = zᵀV⁻¹z', φ' being
    the embedded part of φ, Σ_s max(⟨x, φ_s⟩², ⟨x, φ'_s⟩²)/‖x‖² is at most the largest eigenvalue of
    the Gram matrix of the larger ones, whose entries are at most max(|a|, |b|); the eigenvalue
    rises with them (Perron and Frobenius).
    """
    vector = start + 1e-3 * start.max() + np.finfo(np.float64).tiny
    for _ in range(POWER_STEPS):
        product = matrix @ vector
        vector = product / product.max(initial=np.finfo(np.float64).tiny) + 1e-9
    product = matrix @ vector
    return float((product / vector).max())
