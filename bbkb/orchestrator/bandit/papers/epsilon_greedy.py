"""ε-greedy on the exact Gaussian process (Sutton and Barto 2018, §2.2, with the posterior mean in
place of sample means)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices, first_largest
from bbkb.orchestrator.bandit.exact.strategy import ExactState, ExactStrategy
from bbkb.orchestrator.bandit.scheduling import PendingOptions
from bbkb.orchestrator.bandit.sparse.state import no_arm_left
from bbkb.orchestrator.bandit.sparse.verification import next_arm
from bbkb.orchestrator.bandit.strategy import Decision, Observation, Pick, Record, refusal


@dataclass(frozen=True, eq=False, kw_only=True)
class EpsilonGreedyState(ExactState):
    """`seed` is drawn by `init`. `over` counts the pulls that have ended, including failures."""

    seed: int
    over: int


@dataclass(frozen=True)
class EpsilonGreedy(PendingOptions, ExactStrategy[EpsilonGreedyState]):
    """The hyperparameters of ε-greedy. Raises ValueError, with the field's name, for a bad value.

    The i-th pull is a uniformly drawn arm with probability ε, and argmax μ otherwise. It is a
    function of the belief, the seed and i, so `ask` is pure. Before the first reward, all arms are
    equal and every pull is uniform. Pending pulls do not change the mean, so all greedy pulls of a
    batch choose the same arm. The method has no rule for batches, so at most `batch_size` pulls are
    pending (1 by default). Without a limit, a greedy pull takes the arm with the largest mean among
    those that are not pending; otherwise all idle workers would evaluate the same arm.
    """

    exploration: Annotated[float, Ge(0), Le(1), Doc("ε, the probability of a uniform arm, in [0, 1].")] = 0.1

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> EpsilonGreedyState:
        """State before any pull of `arms` (A, d). Raises ValueError for invalid arms."""
        base = self.base_state(arms, rng)
        return EpsilonGreedyState.begin(base, seed=int(rng.integers(2**32)), over=0)

    def ask(self, state: EpsilonGreedyState, pending: Sequence[int], limit: int) -> Decision:
        """Return as many arms as `limit` and `batch_size` allow."""
        wait = refusal(state, limit) or no_arm_left(state, pending)
        return wait or self.choose(pending, limit, state.picks_left, partial(self._pick, state))

    def _pick(self, state: EpsilonGreedyState, pending: Sequence[int]) -> Pick:
        draw = partial(self._draw, state, pending)
        arm, reason = next_arm(state, pending, self.verify, draw, state.moments)
        return state.pick(arm, math.nan, reason)

    def _draw(self, state: EpsilonGreedyState, pending: Sequence[int], blocked: Indices) -> int:
        """Return the arm of the next pull; never one of `blocked`."""
        rng = np.random.default_rng([state.seed, state.over + len(pending)])
        exploration = self.exploration if state.pulls.total else 1.0
        available = np.setdiff1d(np.arange(len(state.model.arms)), blocked, assume_unique=True)
        if rng.random() < exploration:
            return int(rng.choice(available))
        not_pending = np.setdiff1d(available, np.array(pending, np.intp)) if self.batch_size is None else available
        greedy = not_pending if len(not_pending) else available
        return int(greedy[first_largest(state.belief.mean[greedy])])

    def width_at(self, state: EpsilonGreedyState) -> float:
        """Return NaN: there are no upper bounds."""
        return math.nan

    def tell(
        self, state: EpsilonGreedyState, observations: Sequence[Observation], rng: np.random.Generator
    ) -> EpsilonGreedyState:
        """Return the state after these newly finished pulls; draws nothing."""
        return replace(state.observe(observations, self.model), over=state.over + len(observations))

    def recorded(self, state: EpsilonGreedyState) -> Record:
        """Return the seed and the fitted values."""
        return {"seed": state.seed, **state.record()}

    def restore(
        self, state: EpsilonGreedyState, observations: Sequence[Observation], record: Record
    ) -> EpsilonGreedyState:
        """Like `tell`, with the seed of `record`."""
        seed = int(record["seed"])
        over = state.over + len(observations)
        return replace(state.restore(observations, self.model, record), seed=seed, over=over)
