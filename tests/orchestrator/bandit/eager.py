"""BBKB without shortcuts, the oracle of its lazy evaluation: every arm is scored at every pick, and
every decision on the drift sweeps over all arms."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arrays import Indices
from bbkb.orchestrator.bandit.sparse import argmax_queue, goal_queue
from bbkb.orchestrator.bandit.sparse.argmax_queue import FIRST_NEAR, NOTHING, ArgmaxQueue, RemainingArms, ScoredArms
from bbkb.orchestrator.bandit.sparse.picking import Picking
from bbkb.orchestrator.bandit.sparse.scalarization import Scalarizing
from bbkb.orchestrator.bandit.sparse.state import SparseState
from bbkb.orchestrator.bandit.sparse.termination import Bracket, LocalDrift
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategy import Decision


class EagerQueue:
    """Evaluates every arm from the start; those `blocked` are never returned."""

    def __init__(self, remaining: RemainingArms, scored: ScoredArms, blocked: Indices = NOTHING) -> None:
        self._scored, self._excluded = scored, np.intersect1d(scored.arms, blocked)
        while remaining.top > -np.inf:
            arms, _ = remaining.take(-np.inf, FIRST_NEAR)
            scored.enter(arms[np.isin(arms, scored.arms, invert=True)])

    def top(self) -> int:
        """See `ArgmaxQueue`."""
        return argmax_queue._best(self._scored, self._excluded)[0]

    def block(self, arm: int) -> None:
        """See `ArgmaxQueue`."""
        self._excluded = np.append(self._excluded, arm)


def sweep_at_each_pull(drift: LocalDrift) -> Iterator[Bracket]:
    """The brackets of a `LocalDrift` that sweeps over all arms, once Lemma 1 does not suffice."""
    yield Bracket(1.0, drift._global.bound)
    yield drift._from_sweep(np.inf)


class EagerDrift(LocalDrift):
    """`LocalDrift` with a sweep over all arms at each pull."""

    def _brackets(self) -> Iterator[Bracket]:
        return sweep_at_each_pull(self)


@dataclass(frozen=True)
class EagerBBKB(BBKB):
    """BBKB that scores all arms."""

    def _batch(self, state: SparseState, pending: Sequence[int], limit: int) -> Decision:
        def queue(picking: Picking, blocked: Indices) -> ArgmaxQueue:
            return EagerQueue(picking.bounds, picking, blocked)

        first_look = goal_queue.GoalQueue._best

        def look_at_all(goals: goal_queue.GoalQueue, scalarizing: Scalarizing) -> tuple[int, float]:
            goals._picking.enter(goals._outside(scalarizing, -np.inf, len(state.model.arms)).arms)
            return first_look(goals, scalarizing)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Picking, "queue", queue)
            patch.setattr(goal_queue.GoalQueue, "_best", look_at_all)
            patch.setattr(LocalDrift, "_brackets", sweep_at_each_pull)
            return super()._batch(state, pending, limit)


def eager(strategy: BBKB) -> EagerBBKB:
    """The same strategy without shortcuts."""
    return EagerBBKB(**{field.name: getattr(strategy, field.name) for field in fields(strategy)})
