"""The uniform policy: every pull an arm at random. Its regret is the denominator of every regret ratio."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from orchestrator.bandit.arms import Arms
from orchestrator.bandit.arrays import Floats, Indices, read_only, same
from orchestrator.bandit.pulls import Pulls
from orchestrator.bandit.sparse.state import arms_and_rewards, checked_arms, with_set_aside
from orchestrator.bandit.strategy import Choose, Decision, Observation, Pick, Posterior, Record, Wait

MOST_PENDING = 20_000  # results that a campaign keeps until it has learned of them; the pulls do not depend on it


@dataclass(frozen=True, eq=False)
class UniformState:
    """`seed` is drawn by `init`; `told` counts the finished pulls, failed ones included; rest: see `SparseState`."""

    seed: int
    pulls: Pulls
    told: int
    round: int
    set_aside: Indices

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @property
    def dictionary(self) -> Indices:
        """Empty: there is no sparse posterior."""
        return read_only((), np.intp)


@dataclass(frozen=True)
class Uniform:
    """Uniform arms, set-aside ones excepted. The i-th pull is a function of the seed and i, so `ask` is pure."""

    takes_goals: ClassVar[Literal[True]] = True  # it looks at none of them
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> UniformState:
        """State before any pull of `arms` (A, d)."""
        nothing = read_only((), np.intp)
        return UniformState(int(rng.integers(2**32)), Pulls.none(len(checked_arms(arms))), 0, 0, nothing)

    def ask(self, state: UniformState, pending: Sequence[int], limit: int) -> Decision:
        """`limit` arms, for any pending pulls; none while there are `MOST_PENDING` of them, which ends a batch."""
        if limit < 1:
            raise ValueError(f"limit must be >= 1, got {limit}")
        if len(pending) >= MOST_PENDING:
            return Wait(f"batch of {MOST_PENDING} pulls")
        available = np.setdiff1d(np.arange(len(state.pulls.counts)), state.set_aside, assume_unique=True)
        if not len(available):
            return Wait("every arm is set aside")
        first = state.told + len(pending)
        draws = (np.random.default_rng([state.seed, i]).integers(len(available)) for i in range(first, first + limit))
        return Choose(tuple(Pick(int(available[draw])) for draw in draws), "limit")

    def tell(self, state: UniformState, observations: Sequence[Observation], rng: np.random.Generator) -> UniformState:
        """State after these newly finished pulls; draws nothing."""
        return replace(
            state,
            pulls=state.pulls.add(*arms_and_rewards(observations)),
            told=state.told + len(observations),
            round=state.round + 1,
            set_aside=with_set_aside(state.set_aside, observations),
        )

    def recorded(self, state: UniformState) -> Record:
        """The seed."""
        return {"seed": state.seed}

    def restore(self, state: UniformState, observations: Sequence[Observation], record: Record) -> UniformState:
        """`tell` with the seed of `record`."""
        return replace(self.tell(state, observations, np.random.default_rng(0)), seed=int(record["seed"]))

    def posterior(self, state: UniformState) -> Posterior:
        """Mean reward of each pulled arm, NaN for the others; variance and upper bound are NaN: there is no belief."""
        return observed_means(state.pulls)


def observed_means(pulls: Pulls) -> Posterior:
    """Mean reward of each pulled arm, NaN for the others; variance and upper bound are NaN: there is no belief."""
    mean = np.full(len(pulls.counts), np.nan)
    mean[pulls.arms] = pulls.reward_sums[pulls.arms] / pulls.counts[pulls.arms]
    unknown = read_only(np.full(len(mean), np.nan), np.float64)
    return Posterior(mean=read_only(mean, np.float64), variance=unknown, ucb=unknown)
