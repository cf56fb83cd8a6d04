"""BBKB without shortcuts, the oracle of its lazy evaluation: every arm is scored at every pick, and
every decision on the drift sweeps over all arms."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arrays import Indices
from bbkb.orchestrator.bandit.sparse import goal_queue
from bbkb.orchestrator.bandit.sparse.argmax_queue import (
    FIRST_NEAR,
    NOTHING,
    RemainingInArray,
    Scoring,
    argmax,
)
from bbkb.orchestrator.bandit.sparse.picking import Picking
from bbkb.orchestrator.bandit.sparse.scalarization import Scalarizing
from bbkb.orchestrator.bandit.sparse.state import SparseState
from bbkb.orchestrator.bandit.sparse.termination import LocalDrift
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategy import Decision


class EagerQueue:
    """Evaluates every arm from the start; those `blocked` are never returned."""

    def __init__(self, remaining: RemainingInArray, scoring: Scoring, blocked: Indices = NOTHING) -> None:
        evaluated = scoring.posterior
        self._scoring, self._is_excluded = scoring, np.zeros(len(remaining.bounds), np.bool_)
        self._is_excluded[blocked] = True
        while remaining.top > -np.inf:
            arms, _ = remaining.take(-np.inf, FIRST_NEAR)
            evaluated.enter(arms[np.isin(arms, evaluated.arms, invert=True)])

    def top(self) -> int:
        """See `LazyQueue`. Every score is updated."""
        evaluated = self._scoring.posterior
        evaluated.refresh(evaluated.stale)
        scores = self._scoring.scores(slice(None))
        scores[self._is_excluded[evaluated.arms]] = -np.inf
        return argmax(evaluated.arms, scores, evaluated.tie)[0]

    def block(self, arm: int) -> None:
        """See `LazyQueue`."""
        self._is_excluded[arm] = True


class EagerDrift(LocalDrift):
    """`LocalDrift` with a sweep over all arms at each pull, once Lemma 1 does not suffice."""

    def is_spent(self) -> bool:
        bound, self._rise = self._global.bound, np.inf  # every arm may have exceeded C̃
        return not self._lowers(bound if bound <= self._threshold else self._swept_bound(np.inf))


@dataclass(frozen=True)
class EagerBBKB(BBKB):
    """BBKB that scores all arms."""

    def _batch(self, state: SparseState, pending: Sequence[int], limit: int) -> Decision:
        def queue(picking: Picking, blocked: Indices) -> EagerQueue:
            return EagerQueue(picking.bounds.remaining, picking, blocked)

        first_look = goal_queue.GoalQueue._best

        def look_at_all(goals: goal_queue.GoalQueue, scalarizing: Scalarizing) -> tuple[int, float]:
            goals._picking.posterior.enter(goals._outside(scalarizing, -np.inf, len(state.model.arms)).arms)
            return first_look(goals, scalarizing)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Picking, "queue", queue)
            patch.setattr(goal_queue.GoalQueue, "_best", look_at_all)
            patch.setattr(LocalDrift, "is_spent", EagerDrift.is_spent)
            return super()._batch(state, pending, limit)


def eager(strategy: BBKB) -> EagerBBKB:
    """The same strategy without shortcuts."""
    return EagerBBKB(**{field.name: getattr(strategy, field.name) for field in fields(strategy)})
