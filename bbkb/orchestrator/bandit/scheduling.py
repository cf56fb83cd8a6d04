"""The options of strategies with confidence widths and with pending pulls: when results reach the model.

A confidence width is the factor on σ̃ in u = μ̃ + width · σ̃ (BBKB Theorem 2), or on σ of the
Bayesian scale (Chowdhury and Gopalan 2017, Theorem 2, as in IGP-UCB, GP-ThreDS and adaptive
discretization).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.kernels import AnyKernel, KernelOption, Matern32, Matern52
from bbkb.orchestrator.bandit.model import defaults
from bbkb.orchestrator.bandit.options import (
    DriftThreshold,
    FailureProbability,
    ModelNoise,
    MostPending,
    NoiseScale,
    NoiseVariance,
    NormBound,
    Options,
    RefreshGrowth,
)
from bbkb.orchestrator.bandit.strategy import Choose, Decision, ModeOption, Pick, Wait, Waiting, WaitOption, require

Schedule = Literal["practical", "theory"]


@dataclass(frozen=True)
class WidthOptions(Options):
    """The constants of a width on the 1/λ scale, besides λ."""

    noise_variance: NoiseVariance = 1e-4
    norm_bound: NormBound = 1.0
    delta: FailureProbability = 0.01

    def exact_width(self, regularization: float, information_gain: float) -> float:
        """Return β = ξ √(G + 2 log 1/δ) + √λ F, with λ = `regularization`, for the exact posterior
        (Chowdhury and Gopalan 2017, Theorem 2)."""
        noise = math.sqrt(self.noise_variance)
        bias = math.sqrt(regularization) * self.norm_bound
        return noise * math.sqrt(information_gain + 2.0 * math.log(1.0 / self.delta)) + bias

    def sparse_width(
        self, schedule: Schedule, ratio_threshold: float, variances: tuple[float, float], information_gain: float
    ) -> float:  # fmt: skip
        """Return the width α̃ of u at the start of a batch, including the inflation by C̃.

        `theory` is Theorem 2 of BBKB. `practical` drops its constants, as the authors' released
        experiments do. `variances`: ξ² and λ; the symbols are defined in docs/glossary.md.
        """
        noise, root = map(math.sqrt, variances)
        log_delta = math.log(1.0 / self.delta)
        bias = root * self.norm_bound
        if schedule == "theory":  # C̃ β̃, Theorem 2
            beta = 2.0 * noise * math.sqrt(information_gain + log_delta) + (1.0 + math.sqrt(2.0)) * bias
            return ratio_threshold * beta
        return noise * math.sqrt(ratio_threshold * information_gain + log_delta) + bias


def information_gain(variance: Floats, schedule: Schedule = "practical") -> float:
    """Return the increase of the information gain G by pulls of arms with these old variances
    σ̃²_fb (n,): Σ log(1 + c σ̃²)."""
    c = 3.0 if schedule == "theory" else 1.0
    return float(np.log1p(c * variance).sum())


def information_growth(kernel: AnyKernel, pulls: int) -> float:
    """Return γ_s, the growth of GP-ThreDS's maximal information gain; 0 before any pull."""
    if isinstance(kernel, Matern32 | Matern52):
        return math.sqrt(pulls)
    return math.log(max(pulls, 1))


def rkhs_width(norm_bound: float, noise_scale: float, growth: float, delta: float) -> float:
    """Return β = B + R √(2 (γ + 1 + log 1/δ)), a factor on σ of the Bayesian scale (Chowdhury and
    Gopalan 2017, Theorem 2)."""
    return norm_bound + noise_scale * math.sqrt(2.0 * (growth + 1.0 + math.log(1.0 / delta)))


@dataclass(frozen=True)
class RkhsOptions(Options):
    """Kernel, λ and the constants of `rkhs_width`. The defaults are those of the
    experiment of Salgia, Vakili, Zhao 2021 on Branin; their text prints R = 0.01, and their code has
    the deviation of the noise, 0.1."""

    kernel: KernelOption = defaults.BRANIN
    regularization: ModelNoise = 0.01
    norm_bound: NormBound = 0.5
    noise_scale: NoiseScale = 0.1
    delta: FailureProbability = 1e-3

    def width_after(self, pulls: int) -> float:
        """Return √λ β, the factor on σ of the 1/λ scale after this number of pulls."""
        growth = information_growth(self.kernel, pulls)
        beta = rkhs_width(self.norm_bound, self.noise_scale, growth, self.delta)
        return beta * math.sqrt(self.regularization)


@dataclass(frozen=True)
class RefreshOptions(Options):
    """When results reach the model. `campaign.policy` reads these options; the functions of a strategy do not."""

    mode: ModeOption = "batch"
    refresh_growth: RefreshGrowth = 0.0


@dataclass(frozen=True)
class DriftOptions(RefreshOptions):
    """Pulls may be pending until the posterior could have drifted by more than C̃."""

    ratio_threshold: DriftThreshold = 2.0
    wait: WaitOption = Waiting.DRIFT_BUDGET

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "wait", "drift_budget with mode: batch", self.mode == "async" or not self.never_waits)

    @property
    def never_waits(self) -> bool:
        """See `Waits`."""
        return self.wait is Waiting.NEVER


@dataclass(frozen=True)
class PendingOptions(RefreshOptions):
    """At most `batch_size` pulls may be pending, for methods without a rule for their batches."""

    batch_size: MostPending = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "batch_size", "given with mode: batch", self.mode == "async" or not self.never_waits)

    @property
    def never_waits(self) -> bool:
        """See `Waits`. True if nothing bounds the pending pulls."""
        return self.batch_size is None

    def choose(
        self,
        pending: Sequence[int],
        limit: int,
        picks_left: Callable[[Sequence[int], int], int],
        pick: Callable[[Sequence[int]], Pick],
    ) -> Decision:
        """Return picks one by one, as many as `limit` and `batch_size` allow.

        Args:
            pending: arms without a reward.
            limit: the largest number of picks, >= 1.
            picks_left: returns the number of picks that the arms allow, given `pending` and a limit.
            pick: returns the next pick, given the pending arms and the picks before it.
        """
        free = limit if self.batch_size is None else self.batch_size - len(pending)
        if free <= 0:
            return Wait("a whole batch is pending")
        pulls = list(pending)
        picks: list[Pick] = []
        for _ in range(picks_left(pending, min(limit, free))):
            picks.append(pick(pulls))
            pulls.append(picks[-1].arm)
        return Choose(tuple(picks), "limit" if self.batch_size is None or limit < free else "batch size")
