"""Other methods that keep workers busy, with BBKB's posterior, upper bounds and options. They
differ from BBKB only in when and how they pick, so a difference in regret is caused by the
dispatching.
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
    """Batches of a fixed `batch_size`, whatever their drift; each starts when the batch before has
    ended."""

    mode: Mode = "batch"
    batch_size: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "batch_size", ">= 1", self.batch_size >= 1)

    def _choose(self, state: SparseState, pending: Sequence[int], limit: int) -> Decision:
        """Picks by upper bounds whose variance decreases with each pick, as in BBKB."""
        picking = Picking.begin(state, self.confidence.width(state.information_gain), state.set_aside)
        for arm in pending:
            picking.pick(arm)
            picking.posterior.append(arm)
        queue = picking.queue(state.set_aside)
        picks: list[Pick] = []
        while len(picks) < min(limit, self.batch_size):
            pick = picking.pick(queue.top())
            picking.posterior.append(pick.arm)
            picks.append(pick)
        return Choose(tuple(picks), "batch is full")


@dataclass(frozen=True)
class Liar(BBKB):
    """An arm for each free worker; a pending pull counts as a pull with the mean of all rewards so
    far.

    A constant liar (Ginsbourger, Le Riche, Carraro 2010) on BBKB's posterior, which is fitted again
    for each pick. Workers never wait, and the error of the assumed rewards has no bound.
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
