"""What strategies with an exact posterior have in common: all but how they choose."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from orchestrator.bandit.arms import Arms
from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.exact.incremental import ExactState
from orchestrator.bandit.kernels import AnyKernel
from orchestrator.bandit.model.model import Model
from orchestrator.bandit.start.beginning import begin_state
from orchestrator.bandit.start.warm_start import AnyWarmStart
from orchestrator.bandit.strategy import Decision, Observation, Posterior, Record


class ExactStrategy(ABC):
    """A strategy whose state is an `ExactState`. It has no data of its own: hyper-parameters are a dataclass's."""

    kernel: AnyKernel
    regularization: float
    warm_start: AnyWarmStart
    model: Model | None

    @abstractmethod
    def ask(self, state: ExactState, pending: Sequence[int], limit: int) -> Decision:
        """See `Strategy.ask`."""

    @abstractmethod
    def width_at(self, state: ExactState) -> float:
        """The factor on σ of the 1/λ scale in the upper bounds at `state`; NaN where there are none."""

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> ExactState:
        """State before any pull of `arms` (A, d); draws the warm start's arms. Raises ValueError on bad arms."""
        return ExactState.begin(begin_state(arms, (self.kernel, self.regularization), self.model, self.warm_start, rng))

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
        """The belief over all arms at `state`, with no pull pending."""
        return state.posterior(self.width_at(state))
