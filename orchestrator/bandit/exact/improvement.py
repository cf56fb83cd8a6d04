"""Improvement on the best belief: what EI and PI share (Salgia, Vakili, Zhao 2021, Appendix D.1, after Nguyen et al.
2017, "Regret for expected improvement over the best-observed value and stopping condition").

With f* the largest posterior mean and ε the margin, both rank the arms by how far f may be above f* + ε. They are
written on the Bayesian scale, where the prior's variance is k(x, x) and the noise's is λ: with the σ² of the 1/λ scale
that is √λ σ. Each has a file in `strategies`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from orchestrator.bandit.arms import Arms
from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.checks import require_not_negative, require_positive
from orchestrator.bandit.exact.incremental import ExactState
from orchestrator.bandit.exact.sequential import next_pull
from orchestrator.bandit.kernels import RBF, AnyKernel
from orchestrator.bandit.model.model import Model
from orchestrator.bandit.start.beginning import begin_state
from orchestrator.bandit.start.warm_start import AnyWarmStart, RandomStart
from orchestrator.bandit.strategy import Decision, Observation, Posterior, Record

_DEFAULT_KERNEL, _DEFAULT_START = RBF(0.2), RandomStart()


@dataclass(frozen=True)
class Improvement(ABC):
    """Hyper-parameters shared by EI and PI; the defaults are the paper's. The belief is the exact Gaussian process.

    f* is the largest posterior mean of the arms that may be chosen, pulled or not. `is_sequential`: nothing is chosen
    while a reward is not in yet. Raises ValueError, naming the field, when one is out of range.

    | field | symbol | meaning |
    | --- | --- | --- |
    | `kernel` | k | covariance function |
    | `regularization` | λ | variance of the noise in the model, > 0 |
    | `margin` | ε | an improvement counts from f* + ε on, ≥ 0; the larger, the more is explored |
    | `warm_start` | | `RandomStart`, `UncertaintyStart` or existing data, `DataStart` |
    | `model` | | the calibrated model, in place of the kernel and λ; None: rewards as they come, nothing fitted |
    """

    kernel: AnyKernel = _DEFAULT_KERNEL
    regularization: float = 0.01
    margin: float = 0.01
    warm_start: AnyWarmStart = _DEFAULT_START
    model: Model | None = None
    is_sequential: ClassVar[bool] = True
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        require_positive(self, "regularization")
        require_not_negative(self, "margin")

    @abstractmethod
    def improvement(self, mean: Floats, deviation: Floats, target: float) -> Floats:
        """The acquisition of beliefs (n,), Bayesian scale, over `target` = f* + ε, up to an increasing function."""

    def scores(self, state: ExactState) -> Floats:
        """The acquisition of every arm (A,)."""
        mean, deviation = state.belief.mean, np.sqrt(state.ground.model.regularization * state.belief.variance)
        return self.improvement(mean, deviation, float(state.without_set_aside(mean).max()) + self.margin)

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> ExactState:
        """State before any pull of `arms` (A, d); draws the warm start's arms. Raises ValueError on bad arms."""
        return ExactState.begin(begin_state(arms, (self.kernel, self.regularization), self.model, self.warm_start, rng))

    def ask(self, state: ExactState, pending: Sequence[int], limit: int) -> Decision:
        """One arm, unless one is pending: the warm start's first, then the acquisition's argmax."""
        return next_pull(state, pending, limit, self.scores, math.nan)

    def tell(self, state: ExactState, observations: Sequence[Observation], rng: np.random.Generator) -> ExactState:
        """State after these newly finished pulls; draws nothing. When the warm start failed, the prior decides."""
        return state.observe(observations, self.model)

    def recorded(self, state: ExactState) -> Record:
        """The warm start's arms, and what was fitted."""
        return state.recorded()

    def restore(self, state: ExactState, observations: Sequence[Observation], record: Record) -> ExactState:
        """`tell` with the warm start and what was fitted read from `record`."""
        return state.restored(observations, self.model, record)

    def recommend(self, state: ExactState) -> int | None:
        """See `Recommends`: the pulled arm of largest posterior mean where rewards are noisy."""
        return state.recommend()

    def posterior(self, state: ExactState) -> Posterior:
        """The belief over all arms at `state`; the upper bound is NaN: there is no width."""
        return state.posterior(math.nan)
