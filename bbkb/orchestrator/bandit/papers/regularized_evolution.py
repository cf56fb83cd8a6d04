"""Regularized evolution (Real, Aggarwal, Huang, Le 2019, "Regularized evolution for image
classifier architecture search", Algorithm 1): parents win tournaments in a population whose oldest
member is removed, whatever its reward.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.options import BatchSize, Options
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.strategies.uniform import ModelFree, ModelFreeState
from bbkb.orchestrator.bandit.strategy import (
    Choose,
    Decision,
    Observation,
    Pick,
    Wait,
    arms_and_rewards,
    check_arms,
    refusal,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class EvolutionState(ModelFreeState):
    """`alive`: the population, (arm, reward) from the oldest to the newest."""

    arms: Floats
    alive: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class RegularizedEvolution(Options, ModelFree[EvolutionState]):
    """The hyperparameters, with the paper's defaults. Raises ValueError, with the field's name, if
    a value is out of range.

    The paper mutates an architecture in its search space: one edge or one operation of a cell. With
    `mutation: component`, a child is therefore a random candidate that differs from its parent in
    exactly one feature. Otherwise, or if there is none, it is a random candidate among the nearest
    ones, by the Euclidean distance of the features. All candidates at the same distance are
    included, so that on a grid every change by one step is equally likely. The parent and set-aside
    arms are excluded.

    At most `batch_size` children are pending. Their parents are members with known rewards, as with
    the paper's asynchronous workers. The draws of the i-th pull are a function of the seed and i,
    so `ask` is pure. A failed pull does not join the population; while the initial population is
    incomplete, a random arm replaces it.
    """

    population: Annotated[
        int, Ge(1), Doc("P, the size of the population, ≥ 1; this number of random arms is pulled first.")
    ] = 100
    tournament: Annotated[
        int,
        Ge(1),
        Doc("S, the number of members drawn with replacement, ≥ 1; the one with the largest reward is the parent."),
    ] = 10
    neighbours: Annotated[
        int,
        Ge(1),
        Doc("The child is one of this number of candidates nearest to the parent (ties included), ≥ 1."),
    ] = 10
    mutation: Annotated[
        Literal["nearest", "component"],
        Doc("The child is one of the `nearest` candidates, or one that differs from the parent in one `component`."),
    ] = "nearest"
    batch_size: BatchSize = 10

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> EvolutionState:
        """Return the state before any pull of `arms` (A, d); draws the seed."""
        arms = check_arms(arms)
        return EvolutionState(arms=arms, seed=int(rng.integers(2**32)), pulls=Pulls.none(len(arms)))

    def ask(self, state: EvolutionState, pending: Sequence[int], limit: int) -> Decision:
        """Return random arms up to the size of the population, then children of tournament winners,
        `batch_size` at a time."""
        refused = refusal(state, limit)
        if refused is not None:
            return refused
        free = max(self.population - state.pulls.total, self.batch_size) - len(pending)
        if free <= 0:
            return Wait("a whole batch is pending")
        available = np.setdiff1d(np.arange(len(state.arms)), state.set_aside, assume_unique=True)
        picks = []
        for ahead in range(len(pending), len(pending) + min(limit, free)):
            rng = np.random.default_rng([state.seed, state.over + ahead])
            if state.pulls.total + ahead < self.population or not state.alive:
                picks.append(Pick(int(rng.choice(available))))
            else:
                picks.append(Pick(self._child(state, available, rng)))
        return Choose(tuple(picks), "limit" if limit < free else "batch size")

    def _child(self, state: EvolutionState, available: Indices, rng: np.random.Generator) -> int:
        places: list[int] = rng.integers(len(state.alive), size=self.tournament).tolist()
        parent, _ = max((state.alive[member] for member in places), key=lambda member: member[1])
        other_arms: Indices = available[available != parent]
        if not len(other_arms):
            return parent
        if self.mutation == "component":
            siblings = other_arms[np.count_nonzero(state.arms[other_arms] != state.arms[parent], axis=1) == 1]
            if len(siblings):
                return int(siblings[rng.integers(len(siblings))])
        squared = np.square(state.arms[other_arms] - state.arms[parent]).sum(axis=1)
        nearest = min(self.neighbours, len(other_arms))
        radius = np.partition(squared, nearest - 1)[nearest - 1]
        # steps of the same length along different features differ in distance by rounding errors
        near = other_arms[squared <= radius * (1.0 + 1e-9)]
        return int(near[rng.integers(len(near))])

    def tell(
        self, state: EvolutionState, observations: Sequence[Observation], rng: np.random.Generator
    ) -> EvolutionState:
        """Return the state after these finished pulls, each of which in turn becomes the newest
        member. Draws nothing."""
        alive = (*state.alive, *zip(*arms_and_rewards(observations), strict=True))
        return replace(state.observe(observations), alive=alive[-self.population :])  # without the oldest members
