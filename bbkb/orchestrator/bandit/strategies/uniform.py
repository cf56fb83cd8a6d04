"""The uniform policy: every pull is a random arm."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.checks import refusal
from bbkb.orchestrator.bandit.observations import check_arms
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.strategies.model_free import ModelFree, ModelFreeState
from bbkb.orchestrator.bandit.strategy import Choose, Decision, Pick, Wait

MOST_PENDING = 20_000  # that a campaign keeps until a refresh; pulls do not depend on it


@dataclass(frozen=True)
class Uniform(ModelFree[ModelFreeState]):
    """Uniformly drawn arms. The i-th pull is a function of the seed and i."""

    takes_goals: ClassVar[Literal[True]] = True  # it does not use them

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> ModelFreeState:
        """Return the state before any pull of `arms` (A, d); draws the seed."""
        return ModelFreeState(seed=int(rng.integers(2**32)), pulls=Pulls.none(len(check_arms(arms))))

    def ask(self, state: ModelFreeState, pending: Sequence[int], limit: int) -> Decision:
        """Return `limit` arms, or none while `MOST_PENDING` are pending, which ends a batch."""
        refused = refusal(state, limit)
        if refused is not None:
            return refused
        if len(pending) >= MOST_PENDING:
            return Wait(f"batch of {MOST_PENDING} pulls")
        available = np.arange(len(state.pulls.counts))
        if len(state.set_aside):
            available = np.delete(available, state.set_aside)
        first = state.over + len(pending)
        draws = (np.random.default_rng([state.seed, i]).integers(len(available)) for i in range(first, first + limit))
        return Choose(tuple(Pick(int(available[draw])) for draw in draws), "limit")
