"""The common part of strategies with an exact posterior: everything except the choice of arms."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.exact.state import ExactState
from bbkb.orchestrator.bandit.model.model import ModelOptions
from bbkb.orchestrator.bandit.sparse import verification
from bbkb.orchestrator.bandit.sparse.state import SparseState
from bbkb.orchestrator.bandit.start.beginning import begin_state
from bbkb.orchestrator.bandit.start.warm_start import AnyWarmStart
from bbkb.orchestrator.bandit.strategy import Decision, Observation, Posterior, Record

E = TypeVar("E", bound=ExactState)
Score = Callable[[ExactState], Floats]


class ExactStrategy(ModelOptions, ABC, Generic[E]):
    """A strategy whose state is an `ExactState`. Its dataclass subclasses add options.

    A strategy with more state than pulls and belief defines a state class `E` and overrides `init`.
    """

    warm_start: AnyWarmStart | None = None  # None unless a strategy has this field

    @abstractmethod
    def ask(self, state: E, pending: Sequence[int], limit: int) -> Decision:
        """See `Strategy.ask`."""

    @abstractmethod
    def width_at(self, state: E) -> float:
        """Return the factor on σ (1/λ scale) of the upper bounds at `state`; NaN if there are no
        upper bounds."""

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> ExactState:
        """Return the state before any pull of `arms` (A, d), and draw the arms of the warm start.
        Raises ValueError for invalid arms."""
        return ExactState.begin(self.base_state(arms, rng))

    def base_state(self, arms: Arms | Floats, rng: np.random.Generator) -> SparseState:
        """Return the state before any pull of `arms` (A, d), without the belief, and draw the arms
        of the warm start."""
        return begin_state(arms, (self.kernel, self.regularization), self.model, self.warm_start, rng)

    def tell(self, state: E, observations: Sequence[Observation], rng: np.random.Generator) -> E:
        """Return the state after these pulls; draws nothing. If all failed, the prior decides."""
        return state.observe(observations, self.model)

    def recorded(self, state: E) -> Record:
        """Return the warm start's arms and the fitted values."""
        return state.record()

    def restore(self, state: E, observations: Sequence[Observation], record: Record) -> E:
        """Like `tell`, with the warm start and the fitted values of `record`."""
        return state.restore(observations, self.model, record)

    def recommend(self, state: E) -> int | None:
        """See `Recommends`: the pulled arm with the largest posterior mean if rewards are noisy."""
        return verification.recommendation(state, state.moments)

    def posterior(self, state: E) -> Posterior:
        """Return the belief over all arms at `state`. Its bounds are NaN if there is no width."""
        return state.display(self.width_at(state))


def next_pull(
    state: ExactState, pending: Sequence[int], limit: int, score: Score, width: float, verify: float = 0.0
) -> Decision:  # fmt: skip
    """Return `verification.next_pull` with the arm of the largest `score`.

    `score` returns (A,), with −∞ for arms that may not be chosen; arms that were set aside are
    always excluded. Ties go to the lowest index.
    """

    def best(blocked: Indices) -> int:
        return state.best(score(state), blocked)

    return verification.next_pull(state, pending, limit, verify, best, width, state.moments)
