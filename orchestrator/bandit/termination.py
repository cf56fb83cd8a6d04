"""When a batch ends: rules on how far the posterior may drift before it is fitted again.

Every rule is given the pulls of the batch one by one; pulls that are still pending come first. All arguments are on the
1/λ scale and frozen at the start of the batch (fb), unless said otherwise.
"""

from typing import Literal, Protocol

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.posterior import SparsePosterior

Termination = Literal["global", "global_then_local", "product"]
LocalCovariance = Literal["embedded", "paper"]


class Drift(Protocol):
    """Scratch of one `ask`: the drift of the posterior over the pulls appended so far."""

    def append(self, arm: int, variance: float) -> None:
        """Add a pull of `arm`; `variance` is σ̃² of the arm just before it, pulls appended earlier included."""

    def is_spent(self) -> bool:
        """Whether the bound on the drift is above C̃: the batch is over."""


class GlobalDrift:
    """1 + Σ σ̃²_fb(x_s) > C̃ (Lemma 1; squares, as its proof needs)."""

    def __init__(self, posterior: SparsePosterior, ratio_threshold: float) -> None:
        self._variance, self._threshold = posterior.variance, ratio_threshold
        self.bound = 1.0

    def append(self, arm: int, variance: float) -> None:
        """See `Drift`."""
        self.bound += float(self._variance[arm])

    def is_spent(self) -> bool:
        """See `Drift`."""
        return self.bound > self._threshold


class ProductDrift:
    """GP-BUCB's rule, Π (1 + σ̃²_{s−1}(x_s)) > C̃ (Desautels et al. 2014): the batch is never longer than Lemma 1's."""

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
    """Lemma 1's bound first; once that is above C̃, max_x [1 + Σ c(x, x_s)/σ̃²_fb(x)] > C̃ (Lemma 3).

    c = max(k̃_fb², (zᵀV⁻¹z_s)²) for `embedded`: the squared k̃_fb that is printed in the paper (`paper`) does not bound
    the ratio of the approximate variances, the larger of the two does, and stays below Lemma 1's bound.

    Each summand is at most σ̃²_fb(x_s), so the last exact maximum plus the sum since then is an upper bound; with
    `is_lazy` the sweep over all arms waits until that bound is above C̃ and takes all pulls since in one product.
    """

    def __init__(
        self, posterior: SparsePosterior, ratio_threshold: float, covariance: LocalCovariance, is_lazy: bool = True
    ) -> None:
        self._posterior, self._threshold = posterior, ratio_threshold
        self._covariance, self._is_lazy = covariance, is_lazy
        self._global = GlobalDrift(posterior, ratio_threshold)
        self._unswept: list[int] = []
        self._sums = np.zeros(len(posterior.variance))  # Σ c(x, x_s) / σ̃²_fb(x) over the pulls swept
        self.bound = 1.0

    def append(self, arm: int, variance: float) -> None:
        """See `Drift`."""
        self._global.append(arm, variance)
        self._unswept.append(arm)
        self.bound += float(self._posterior.variance[arm])

    def is_spent(self) -> bool:
        """See `Drift`."""
        if not self._global.is_spent() or (self._is_lazy and self.bound <= self._threshold):
            return False
        if self._unswept:
            self._sweep()
        return self.bound > self._threshold

    def _sweep(self) -> None:
        arms, counts = np.unique(np.array(self._unswept, np.intp), return_counts=True)
        for block in self._posterior.model.blocks():
            variance = self._posterior.variance[block]
            summands = counts @ self._squares(arms, block)
            # an arm with variance 0 is known for certain: its covariances are 0 too
            self._sums[block] += np.divide(summands, variance, out=np.zeros_like(variance), where=variance > 0)
        self._unswept.clear()
        self.bound = 1.0 + float(self._sums.max())

    def _squares(self, arms: Indices, block: slice) -> Floats:
        full, embedded = self._posterior.covariances(arms, block)
        if self._covariance == "paper":
            return full**2
        return np.maximum(full**2, embedded**2)
