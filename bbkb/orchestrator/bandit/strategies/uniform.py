"""The uniform policy: every pull is a random arm; a new one if arms do not repeat."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bbkb.orchestrator.bandit.arms import Arms, as_arms
from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.checks import ALL_CHOSEN, refusal
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
        checked = as_arms(arms)
        return ModelFreeState(seed=int(rng.integers(2**32)), pulls=Pulls.none(len(checked)), layout=checked.layout)

    def ask(self, state: ModelFreeState, pending: Sequence[int], limit: int) -> Decision:
        """Return at most `limit` arms, or none while `MOST_PENDING` are pending, which ends a batch. If
        arms do not repeat, none is pulled twice."""
        refused = refusal(state, limit)
        if refused is not None:
            return refused
        if len(pending) >= MOST_PENDING:
            return Wait(f"batch of {MOST_PENDING} pulls")
        is_exact = state.layout is not None and not state.layout.repeats
        used = np.union1d(state.pulls.arms, np.array(pending, np.intp)) if is_exact else ()
        available = np.delete(np.arange(len(state.pulls.counts)), np.union1d(state.set_aside, used).astype(np.intp))
        if not len(available):
            return Wait(ALL_CHOSEN)
        first = state.over + len(pending)
        picks: list[Pick] = []
        for i in range(first, first + min(limit, len(available) if is_exact else limit)):
            draw = int(np.random.default_rng([state.seed, i]).integers(len(available)))
            picks.append(Pick(int(available[draw])))
            available = np.delete(available, draw) if is_exact else available
        return Choose(tuple(picks), "limit")
