"""Rules that end a batch: bounds on the drift of the posterior until it is refitted.

Every rule receives the pulls of the batch one by one, starting with the pending pulls. All
arguments are on the 1/λ scale and frozen at the start of the batch (fb), unless stated otherwise.
"""

from typing import Literal

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.sparse.all_arms import LocalCovariance, Points, Pulled
from bbkb.orchestrator.bandit.sparse.picking import BatchPosterior, WorkspacePosterior

# the number of power iterations that estimate a spectral radius; any number gives an upper bound
POWER_STEPS = 8
Termination = Literal["global", "global_then_local", "product", "ratio"]


class Drift:
    """The workspace of one `ask`: a bound on the drift of the posterior over the pulls appended so
    far. Once it exceeds C̃, the batch ends."""

    def __init__(self, ratio_threshold: float) -> None:
        self._threshold = ratio_threshold
        self.bound = 1.0

    def append(self, arm: int, variance: float) -> None:
        """Add a pull of `arm`; `variance` is σ̃² just before it, after earlier appended pulls."""

    def is_spent(self) -> bool:
        """Return whether the drift exceeds C̃; the same in each call without a new pull."""
        return self.bound > self._threshold


class NoDrift(Drift):
    """No rule: a batch ends at its limit."""

    def __init__(self) -> None:
        super().__init__(np.inf)


class GlobalDrift(Drift):
    """1 + Σ σ̃²_fb(x_s) > C̃ (Lemma 1; squared deviations, as its proof requires)."""

    def __init__(self, batch: WorkspacePosterior, ratio_threshold: float) -> None:
        super().__init__(ratio_threshold)
        self._batch = batch

    def append(self, arm: int, variance: float) -> None:
        """See `Drift`."""
        position = self._batch.position(arm)  # first, because this call may move the arrays
        self.bound += self._batch.start_variance.item(position)


class ProductDrift(Drift):
    """GP-BUCB's rule, Π (1 + σ̃²_{s−1}(x_s)) > C̃ (Desautels et al. 2014): the batch is never
    longer than Lemma 1's."""

    def append(self, arm: int, variance: float) -> None:
        """See `Drift`."""
        self.bound *= 1.0 + variance


class RatioDrift(Drift):
    """max_x σ̃²_fb(x)/σ̃²_t(x) > C̃ over all arms, computed after every pull (BBKB, section 4).

    No rule on the approximate variances has longer batches. It does not bound the exact ratio,
    which Theorem 2 needs. While Lemma 1's bound is at most C̃, the ratio is, too, and is not
    computed.
    """

    def __init__(self, batch: WorkspacePosterior, ratio_threshold: float) -> None:
        super().__init__(ratio_threshold)
        self._global = GlobalDrift(batch, ratio_threshold)
        self._posterior = batch.posterior
        self._all_arms: BatchPosterior | None = None  # None until Lemma 1's bound exceeds C̃
        self._pulls: list[int] = []

    def append(self, arm: int, variance: float) -> None:
        """See `Drift`."""
        self._global.append(arm, variance)
        self._pulls.append(arm)
        if self._global.bound <= self._threshold:
            self.bound = self._global.bound
            return
        if self._all_arms is None:
            self._all_arms = BatchPosterior(self._posterior)
            self._all_arms.enter(np.arange(len(self._posterior.model.arms)))
            for earlier in self._pulls[:-1]:
                self._all_arms.append(earlier)
        self._all_arms.append(arm)
        self._all_arms.refresh(self._all_arms.stale)
        start = self._all_arms.start_variance
        rounding = 1e-12 * max(1.0, float(start.max()))  # the ratio of two variances of 0 is 1
        self.bound = float(((start + rounding) / (self._all_arms.variance + rounding)).max())


class LocalDrift(Drift):
    """First Lemma 1's bound; if it exceeds C̃, max_x [1 + Σ c(x, x_s)/σ̃²_fb(x)] > C̃ (Lemma 3).

    c = max(k̃_fb², (zᵀV⁻¹z_s)²) for `embedded`, because the paper's squared k̃_fb (`paper`) does
    not bound the ratio of the approximate variances. The larger of the two does, and remains below
    Lemma 1's bound.

    Before a sweep over all arms, three cheaper bounds on the maximum are tried. Later sweeps of a batch
    compute only the arms that can have exceeded C̃ since the last sweep. The verdicts are the same as
    with sweeps over all arms at every pull.
    """

    def __init__(self, batch: WorkspacePosterior, ratio_threshold: float, covariance: LocalCovariance) -> None:
        super().__init__(ratio_threshold)
        self._batch = batch
        self._covariance = covariance
        self._global = GlobalDrift(batch, ratio_threshold)
        arms = len(batch.posterior.model.arms)
        self._sums = np.zeros(arms)  # the sums at the last complete sweep (A,)
        self._largest_sum = 0.0  # over the arms of `_sums`
        self._bounds = np.zeros(arms)  # upper bounds on the sums at the last sweep, complete or not (A,)
        self._rise = 0.0  # Σ σ̃²_fb over the pulls since the last sweep, complete or not
        self._unswept: dict[int, int] = {}  # the number of pulls of each arm since the last complete sweep
        self._of_unswept: tuple[Points, Floats, Floats, Floats] | None = None  # see `_distinct`

    def append(self, arm: int, variance: float) -> None:
        """See `Drift`. Each summand c(x, x_s)/σ̃²_fb(x) is at most σ̃²_fb(x_s)."""
        before = self._global.bound
        self._global.append(arm, variance)
        if arm not in self._unswept:
            self._of_unswept = None
        self._unswept[arm] = self._unswept.get(arm, 0) + 1
        self._rise += self._global.bound - before
        self.bound += self._global.bound - before

    def is_spent(self) -> bool:
        """See `Drift`. Lowers `bound` to the smallest upper bound so far."""
        # Lemma 1, or an earlier bound and the later summands
        if self._lowers(self._global.bound):
            return False
        if 1.0 + self._largest_sum > self._threshold:
            return True
        at_pulls, anywhere = self.sums_of_pulls()
        if 1.0 + at_pulls > self._threshold:
            return True
        # the largest sum before the pulls, plus that of the pulls
        if self._lowers(1.0 + self._largest_sum + anywhere):
            return False
        return not self._lowers(self._swept_bound(anywhere))

    def sums_of_pulls(self) -> tuple[float, float]:
        """Return the largest sum over the pulls since the last complete sweep at one of these pulls, which
        nearly always is the maximum, and an upper bound on this sum at any x, candidate or not."""
        _, _, variance, magnitudes = self._distinct()
        counts = np.array(list(self._unswept.values()))
        sums = np.divide(magnitudes**2 @ counts, variance, out=np.zeros_like(variance), where=variance > 0)
        # over distinct arms, weighted by counts: the nonzero eigenvalues are those of the matrix over all pulls
        roots = np.sqrt(counts)
        return float(sums.max()), _spectral_radius(magnitudes * np.multiply.outer(roots, roots), sums)

    def _lowers(self, bound: float) -> bool:
        """Lower `bound` to this upper bound, and return whether it is then at most C̃."""
        self.bound = min(self.bound, bound)
        return self.bound <= self._threshold

    def _swept_bound(self, anywhere: float) -> float:
        """Return an upper bound on the drift that is at most C̃ only if the drift is, given that no sum has
        risen by more than `anywhere` since the last complete sweep: from the sums of the arms that can have
        exceeded C̃, or of all arms if there are many of them."""
        self._bounds = np.minimum(self._bounds + self._rise, self._sums + anywhere)
        self._rise = 0.0
        reaching = np.flatnonzero(1.0 + self._bounds > self._threshold)
        if len(reaching) <= len(self._sums) // 4:
            self._bounds[reaching] = self._sums[reaching] + self._summands(reaching)
            return 1.0 + float(self._bounds.max())
        self._bounds = self._sums = self._sums + self._summands(None)
        self._largest_sum = float(self._sums.max())
        self._unswept.clear()
        self._of_unswept = None
        return 1.0 + self._largest_sum

    def _distinct(self) -> tuple[Points, Floats, Floats, Floats]:
        """Return the distinct arms pulled since the last complete sweep (n), their y (n, r) and σ̃²_fb (n,), and
        √c of every two of them (n, n)."""
        if self._of_unswept is None:
            arms = np.array(list(self._unswept), np.intp)
            posterior = self._batch.posterior
            points = posterior.model.points(arms)
            rows = self._batch.rows[self._batch.positions(arms)]
            full, embedded = posterior.covariances(rows, points)
            magnitudes = np.abs(full) if self._covariance == "paper" else np.maximum(np.abs(full), np.abs(embedded))
            self._of_unswept = points, rows, full.diagonal(), magnitudes
        return self._of_unswept

    def _summands(self, arms: Indices | None) -> Floats:
        """Return Σ c(x, x_s)/σ̃²_fb(x) over the pulls since the last complete sweep, for x in `arms`, or for
        all arms if None."""
        points, rows, _, _ = self._distinct()
        pulled = Pulled(points, np.array(list(self._unswept.values())), rows)
        return self._batch.posterior.local_sums(arms, pulled, self._covariance)


def _spectral_radius(matrix: Floats, start: Floats) -> float:
    """Return an upper bound on the largest eigenvalue of a symmetric `matrix` (n, n) ≥ 0: max
    (Nv)/v for any v > 0.

    (Collatz 1942.) Let a(s, t) = ⟨φ_s, φ_t⟩ = k̃ and b(s, t) = ⟨φ'_s, φ'_t⟩ = zᵀV⁻¹z', where φ' is
    the embedded part of φ. Then Σ_s max(⟨x, φ_s⟩², ⟨x, φ'_s⟩²)/‖x‖² is at most the largest
    eigenvalue of the Gram matrix of the larger vectors. Its entries are at most max(|a|, |b|), and
    the eigenvalue increases with them (Perron and Frobenius).
    """
    vector = start + 1e-3 * start.max() + np.finfo(np.float64).tiny
    for _ in range(POWER_STEPS):
        product = matrix @ vector
        vector = product / product.max(initial=np.finfo(np.float64).tiny) + 1e-9
    product = matrix @ vector
    return float((product / vector).max())
