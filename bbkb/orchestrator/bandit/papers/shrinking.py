"""The state of GP-ThreDS: the epoch, the progress of its search, and the visit whose rewards
determine the belief.

Salgia, Vakili, Zhao 2021, Algorithms 1 to 4; the tests and the walk are in `gp_threds`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices, read_only, same
from bbkb.orchestrator.bandit.observations import arms_and_rewards
from bbkb.orchestrator.bandit.papers.boxes import Box, BoxedArms
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.strategies.model_free import ModelFreeState
from bbkb.orchestrator.bandit.strategy import Observation

Stage = Literal["leaves", "root", "left", "right", "leaf"]
First = Literal["random", "centre"]
SUB_PERFORMING = -1


@dataclass(frozen=True)
class Epoch:
    """An epoch k of GP-ThreDS."""

    number: int  # k
    low: float  # a_k, the lower end of the bracket of the maximum
    high: float  # b_k, its upper end
    height: int  # ρ_k/d, the depth of the tree
    roots: tuple[Box, ...]  # D_{k−1}, the boxes in which the search begins
    found: tuple[Box, ...] = ()  # the known part of D_k

    @property
    def threshold(self) -> float:
        """τ_k."""
        return (self.low + self.high) / 2.0


@dataclass(frozen=True, eq=False)
class Visit:
    """The progress of the search below a root, and its running test."""

    position: int  # the root's index in `Epoch.roots`
    path: tuple[Box, ...]  # the walk's boxes from that root to the current one
    stage: Stage  # the kind of the test
    taken: tuple[Box, ...]  # the high-performing leaves already found below this root
    node: Box  # the box tested
    grid: Indices  # D_g, the arms in the test, ascending
    pulls: Pulls  # the rewards of this test only
    since: int = 0  # t_loc, the number of them since the last leaf was accepted

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    def observe(self, arms: Sequence[int], rewards: Sequence[float], failed: Sequence[int]) -> "Visit":
        """Return the visit with these rewards of grid arms, without the arms that `failed`."""
        mine = [(arm, reward) for arm, reward in zip(arms, rewards, strict=True) if arm in self.grid]
        pulls = self.pulls.add([arm for arm, _ in mine], [reward for _, reward in mine])
        grid = read_only(self.grid[~np.isin(self.grid, np.asarray(failed, np.intp))], np.intp)
        return replace(self, grid=grid, pulls=pulls, since=self.since + len(mine))


@dataclass(frozen=True, eq=False, kw_only=True)
class ThresholdState(ModelFreeState):
    """The state of GP-ThreDS. `verdicts` has one entry for each test that ended in the last `tell`:
    an arm that made a box high-performing, or `SUB_PERFORMING`.
    """

    boxed: BoxedArms
    epoch: Epoch
    visit: Visit
    verdicts: tuple[int, ...] = ()

    @property
    def arms(self) -> Floats:
        """The candidates (A, d)."""
        return self.boxed.arms

    @cached_property
    def available(self) -> Indices:
        """Arms that may be chosen, ascending."""
        return np.setdiff1d(np.arange(len(self.arms)), self.set_aside, assume_unique=True)

    def first_arm(self, first: First) -> int:
        """Return x_1, which initializes the visit's test: an arm of the grid, drawn or nearest to
        the box's center.

        It is a function of the state, because the draw depends only on the seed and the round.
        """
        grid = self.visit.grid
        if first == "centre":
            return self.boxed.nearest(self.visit.node, grid)
        return int(grid[np.random.default_rng([self.seed, self.round]).integers(len(grid))])

    def observe(self, observations: Sequence[Observation]) -> Self:
        """Return the state of the next round with these pulls and set-aside arms; no test ended."""
        failed = [observation.arm for observation in observations if observation.reward is None]
        visit = self.visit.observe(*arms_and_rewards(observations), failed)
        return replace(super().observe(observations), visit=visit, verdicts=())

    def accept(self, arm: int) -> "ThresholdState":
        """Return the state after the leaf with this arm was accepted as high-performing and removed
        from the search (Algorithm 4)."""
        visit = self.visit
        leaf = self.boxed.leaf(visit.path[0], arm, self.boxed.dimension)
        grid = read_only(np.setdiff1d(visit.grid, self.boxed.inside(leaf, visit.grid)), np.intp)
        return replace(self, visit=replace(visit, taken=(*visit.taken, leaf), grid=grid, since=0))

    def grid(self, node: Box, taken: Sequence[Box], points: int) -> Indices:
        """Return D_g of `node` with at least `points` cells, without the leaves already found."""
        arms = self.boxed.inside(node, self.available)
        for leaf in taken:
            arms = np.setdiff1d(arms, self.boxed.inside(leaf, arms))
        return read_only(self.boxed.grid(node, points, arms), np.intp)

    def with_new_grid(self, points: int) -> "ThresholdState":
        """Return this state, with the box's other arms if every arm of the grid has failed."""
        visit = self.visit
        if len(visit.grid):
            return self
        return replace(self, visit=replace(visit, grid=self.grid(visit.node, visit.taken, points)))
