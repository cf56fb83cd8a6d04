"""BBKB's rivals for busy workers, with its posterior, its upper bounds and its options: only when and how they pick
differs, so a difference in regret is one of dispatching.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.bandit.checks import require
from orchestrator.bandit.sparse.picking import Picking
from orchestrator.bandit.sparse.state import SparseState
from orchestrator.bandit.strategies.bbkb import BBKB
from orchestrator.bandit.strategy import Choose, Decision, Mode, Pick


@dataclass(frozen=True)
class Barrier(BBKB):
    """Batches of `batch_size`, for any drift, each started when the batch before has ended."""

    mode: Mode = "batch"
    batch_size: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "batch_size", ">= 1", self.batch_size >= 1)

    def _choose(self, state: SparseState, pending: Sequence[int], limit: int) -> Decision:
        """By upper bounds whose variance falls with every pick, as in BBKB."""
        picking = Picking.begin(state, self.confidence.width(state.information_gain), state.set_aside)
        for arm in pending:
            picking.pick(arm)
            picking.posterior.append(arm)
        queue = picking.queue(state.set_aside, self.lazy)
        picks: list[Pick] = []
        while len(picks) < min(limit, self.batch_size):
            pick = picking.pick(queue.top())
            picking.posterior.append(pick.arm)
            picks.append(pick)
        return Choose(tuple(picks), "batch is full")


@dataclass(frozen=True)
class Liar(BBKB):
    """One arm for every free worker at once, a pending pull counting as one that gave the mean of all rewards so far.

    A constant liar (Ginsbourger, Le Riche, Carraro 2010) on BBKB's posterior, fitted anew for every pick. No worker
    ever waits, and the error of the assumed rewards has no bound.
    """

    mode: Mode = "async"

    def _choose(self, state: SparseState, pending: Sequence[int], limit: int) -> Decision:
        width, lie = self.confidence.width(state.information_gain), self._mean_reward(state)
        pulls = state.pulls.add(pending, np.full(len(pending), lie))
        picks: list[Pick] = []
        while len(picks) < limit:
            believed = state.model.fit(pulls, state.dictionary)
            bounds = believed.mean + width * np.sqrt(believed.variance)
            bounds[state.set_aside] = -np.inf
            arm = int(bounds.argmax())
            picks.append(Pick(arm, float(believed.mean[arm]), width, float(believed.variance[arm])))
            pulls = pulls.add((arm,), (lie,))
        return Choose(tuple(picks), "limit")

    def _mean_reward(self, state: SparseState) -> float:
        return float(state.pulls.reward_sums.sum() / state.pulls.total)
