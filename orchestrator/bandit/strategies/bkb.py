"""BKB: budgeted kernel bandits (Calandriello, Carratino, Lazaric, Valko, Rosasco 2019, Algorithm 1).

One pull at a time, and a new dictionary after each: BBKB with batches of one, and with a width of its own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np

from orchestrator.bandit.arms import Arms
from orchestrator.bandit.arrays import Floats, Indices, read_only
from orchestrator.bandit.checks import (
    require,
    require_not_negative,
    require_optional,
    require_positive,
    require_probability,
    sequential_refusal,
)
from orchestrator.bandit.kernels import RBF, AnyKernel
from orchestrator.bandit.model.model import Model
from orchestrator.bandit.sparse.dictionary import Resampling, resparsify
from orchestrator.bandit.sparse.picking import Picking
from orchestrator.bandit.sparse.state import (
    SparseState,
    checked,
    exhausted,
    recommended,
    recorded_calibration,
    refitted,
    restored_calibration,
    rewarded,
    variances_before,
)
from orchestrator.bandit.start.beginning import begin_state
from orchestrator.bandit.start.warm_start import AnyWarmStart, RandomStart, begin_sparse
from orchestrator.bandit.strategy import Choose, Decision, Observation, Pick, Posterior, Record

ACCURACY = 0.5  # ε: a dictionary keeps all variances within (1 ± ε) of the exact ones
_DEFAULT_KERNEL, _DEFAULT_START = RBF(0.7), RandomStart()


@dataclass(frozen=True)
class BKB:
    """Hyper-parameters of BKB (Calandriello et al. 2019, Algorithm 1). Raises ValueError when one is out of range.

    Each pull is the argmax of μ̃ + β̃ σ̃ with the width of Theorem 2. `is_sequential`: nothing is chosen while a reward
    is not in yet, so a second worker stays idle.

    | field | symbol | meaning |
    | --- | --- | --- |
    | `kernel` | k | covariance function |
    | `regularization` | λ | ridge parameter, > 0 |
    | `noise_variance` | ξ² | upper bound on the variance of the reward's noise, ≥ 0 |
    | `norm_bound` | F | upper bound on the RKHS norm of f, ≥ 0 |
    | `delta` | δ | failure probability, in (0, 1) |
    | `oversampling` | q̄ | dictionary oversampling, ≥ 1; in theory ≥ 72 log(4T/δ), in practice 2 |
    | `warm_start` | | `RandomStart`, `UncertaintyStart` or existing data, `DataStart` |
    | `resampling` | | the dictionary's draw takes `pulls` one by one, or `arms` as a whole: see `dictionary` |
    | `width` | | a number of standard deviations instead of the formula; None: the formula |
    | `model` | | the calibrated model, in place of the kernel and λ; None: rewards as they come, nothing fitted |
    """

    kernel: AnyKernel = _DEFAULT_KERNEL
    regularization: float = 0.3
    noise_variance: float = 1e-3
    norm_bound: float = 0.2
    delta: float = 0.01
    oversampling: float = 2.0
    warm_start: AnyWarmStart = _DEFAULT_START
    resampling: Resampling = "arms"
    width: float | None = None
    model: Model | None = None
    is_sequential: ClassVar[Literal[True]] = True
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        require_positive(self, "regularization")
        require_optional(self, "width", self.width)
        require_not_negative(self, "noise_variance", "norm_bound")
        require_probability(self, "delta")
        require(self, "oversampling", ">= 1", 1 <= self.oversampling < math.inf)
        choices = get_args(Resampling)
        require(self, "resampling", f"one of {', '.join(choices)}", self.resampling in choices)

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> SparseState:
        """State before any pull of `arms` (A, d); draws the warm start's arms. Raises ValueError on bad arms."""
        return begin_state(arms, (self.kernel, self.regularization), self.model, self.warm_start, rng)

    def ask(self, state: SparseState, pending: Sequence[int], limit: int) -> Decision:
        """One arm, unless one is pending: the warm start's first, then argmax u."""
        wait = sequential_refusal(state, pending, limit) or exhausted(state, pending)
        if wait:
            return wait
        start = state.remaining_start()
        if start:
            return Choose((Pick(start[0]),), "warm start")
        picking = Picking.begin(state, self.width_at(state), state.blocked())
        return Choose((picking.pick(picking.queue(state.blocked()).top()),), "one pull at a time")

    def width_at(self, state: SparseState) -> float:
        """β̃ at `state` (Theorem 2): 2ξ √(a log(κ²t) Σσ̃² + log 1/δ) + (1 + 1/√(1 − ε)) √λ F, a = (1 + ε)/(1 − ε).

        Σσ̃² over the t pulls, with the variances at `state`, is the estimate of the effective dimension.
        """
        if self.width is not None:
            return self.width * math.sqrt(state.model.regularization)
        pulls, a = state.pulls, (1.0 + ACCURACY) / (1.0 - ACCURACY)
        dimension = float(pulls.counts[pulls.arms] @ state.posterior.moments(pulls.arms)[1])
        # log(κ²t) d_eff stands for log det(I + K/λ), which is not negative
        logarithm = math.log(max(1.0, float(state.model.diagonal.max()) * pulls.total))
        noise, log_delta = math.sqrt(self.noise_variance), math.log(1.0 / self.delta)
        bias = (1.0 + 1.0 / math.sqrt(1.0 - ACCURACY)) * math.sqrt(self.regularization) * self.norm_bound
        return 2.0 * noise * math.sqrt(a * logarithm * dimension + log_delta) + bias

    def tell(self, state: SparseState, observations: Sequence[Observation], rng: np.random.Generator) -> SparseState:
        """State after these newly finished pulls: a new dictionary, drawn with the old variances.

        Without a single reward the dictionary stays. When the warm start failed, the prior decides.
        """
        after = state.observe(observations)
        if not rewarded(observations)[0]:
            return after
        after = after if self.model is None else refitted(checked(after, state, observations), self.model)
        old = variances_before(state, after).moments(after.pulls.arms)[1]
        drawn = resparsify(after.pulls, old, self.oversampling, self.resampling, rng)
        return replace(after, dictionary=drawn)

    def begin(self, state: SparseState, existing: Sequence[Observation], rng: np.random.Generator) -> SparseState:
        """State with these pulls made elsewhere; see `begin_sparse`."""
        return replace(begin_sparse(state, existing, rng, self.model), information_gain=0.0)  # not in this width

    def recorded(self, state: SparseState) -> Record:
        """Dictionary, the warm start's arms, and what was fitted."""
        drawn = {"dictionary": state.dictionary.tolist(), "initial": list(state.initial)}
        return {**drawn, **recorded_calibration(state)}

    def restore(self, state: SparseState, observations: Sequence[Observation], record: Record) -> SparseState:
        """`tell` with what was drawn read from `record`; fits nothing."""
        dictionary: Indices = read_only(record["dictionary"], np.intp)
        initial = tuple(int(arm) for arm in record["initial"])
        after = restored_calibration(state.observe(observations), self.model, record)
        return replace(after, dictionary=dictionary, initial=initial)

    def recommend(self, state: SparseState) -> int | None:
        """See `Recommends`: the pulled arm of largest posterior mean where rewards are noisy."""
        return recommended(state)

    def posterior(self, state: SparseState) -> Posterior:
        """The belief over all arms at `state`."""
        mean, variance = state.posterior.mean, state.posterior.variance
        ucb = mean + self.width_at(state) * np.sqrt(variance)
        return Posterior(mean=mean, variance=variance, ucb=read_only(ucb, np.float64), unit=state.model.regularization)
