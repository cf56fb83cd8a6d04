"""The common part of strategies without a posterior (state, record and displayed mean rewards), and the simplest of
them, the uniform policy: every pull is a random arm; a new one if arms do not repeat.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, Literal, Self, TypeVar

import numpy as np

from bbkb.orchestrator.bandit.arms import Arms, Layout, as_arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices, read_only, same
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.strategy import (
    ALL_CHOSEN,
    Choose,
    Decision,
    Observation,
    Pick,
    Posterior,
    Record,
    Wait,
    arms_and_rewards,
    refusal,
    with_set_aside,
)

_NOTHING = read_only((), np.intp)


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelFreeState:
    """State of a strategy without a model."""

    seed: int  # drawn by `init`
    pulls: Pulls  # those with a reward
    layout: Layout | None = None  # None if the strategy does not use it
    over: int = 0  # the number of ended pulls, including failures
    round: int = 0  # the number of calls of `tell`
    # (s,), arms that are no longer pulled because their evaluations failed, ascending
    set_aside: Indices = field(default_factory=lambda: _NOTHING)

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @property
    def dictionary(self) -> Indices:
        """Empty: there is no sparse posterior."""
        return _NOTHING

    def observe(self, observations: Sequence[Observation]) -> Self:
        """Return the state after these newly finished pulls."""
        return replace(
            self,
            pulls=self.pulls.add(*arms_and_rewards(observations)),
            over=self.over + len(observations),
            round=self.round + 1,
            set_aside=with_set_aside(self.set_aside, observations),
        )


S = TypeVar("S", bound=ModelFreeState)


class ModelFree(Generic[S]):
    """A strategy whose `tell` draws nothing, so that a log only needs the seed."""

    def tell(self, state: S, observations: Sequence[Observation], rng: np.random.Generator) -> S:
        """Return the state after these newly finished pulls; draws nothing."""
        return state.observe(observations)

    def recorded(self, state: S) -> Record:
        """Return the seed."""
        return {"seed": state.seed}

    def restore(self, state: S, observations: Sequence[Observation], record: Record) -> S:
        """Like `tell`, with the seed of `record`."""
        return replace(self.tell(state, observations, np.random.default_rng(0)), seed=int(record["seed"]))

    def posterior(self, state: S) -> Posterior:
        """Return the mean reward of each pulled arm, NaN for the others; variances and upper bounds
        are NaN, because there is no belief."""
        pulls = state.pulls
        mean = np.full(len(pulls.counts), np.nan)
        mean[pulls.arms] = pulls.reward_sums[pulls.arms] / pulls.counts[pulls.arms]
        unknown = read_only(np.full(len(mean), np.nan), np.float64)
        return Posterior(mean=read_only(mean, np.float64), variance=unknown, ucb=unknown)


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
