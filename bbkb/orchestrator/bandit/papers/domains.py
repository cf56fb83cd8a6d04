"""The options of published strategies whose width is Theorem 2 of Chowdhury and Gopalan 2017.

The binary tree of boxes over the candidates, for strategies made for a continuous domain.

The domain is the smallest box around all arms, from the minimum to the maximum of every feature. A
box is halved across its longest edge, in feature units (for equal edges: the first feature), as in
GP-ThreDS §3.1. Its points are arms: each arm is in exactly one box of every partition, and a point
of the continuous domain is replaced by the nearest arm in its box.

Boxes have unit coordinates, in which halving is exact. The coordinates of arms are rounded to 2⁻⁴⁰
of the domain.

The state of GP-ThreDS: the epoch, the progress of its search, and the visit whose rewards
determine the belief.

Salgia, Vakili, Zhao 2021, Algorithms 1 to 4; the tests and the walk are in `gp_threds`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from bbkb.orchestrator.bandit.arrays import Floats, Indices, read_only, same
from bbkb.orchestrator.bandit.kernels import KernelOption
from bbkb.orchestrator.bandit.model import defaults
from bbkb.orchestrator.bandit.options import FailureProbability, ModelNoise, NoiseScale, NormBound, Options
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.scheduling import information_growth, rkhs_width
from bbkb.orchestrator.bandit.strategies.uniform import ModelFreeState
from bbkb.orchestrator.bandit.strategy import Observation, arms_and_rewards


@dataclass(frozen=True)
class RkhsOptions(Options):
    """Kernel, λ and the constants of `scheduling.rkhs_width`. The defaults are those of the
    experiment of Salgia, Vakili, Zhao 2021 on Branin; their text prints R = 0.01, and their code has
    the deviation of the noise, 0.1."""

    kernel: KernelOption = defaults.BRANIN
    regularization: ModelNoise = 0.01
    norm_bound: NormBound = 0.5
    noise_scale: NoiseScale = 0.1
    delta: FailureProbability = 1e-3

    def width_after(self, pulls: int) -> float:
        """Return √λ β, the factor on σ of the 1/λ scale after this number of pulls."""
        growth = information_growth(self.kernel, pulls)
        beta = rkhs_width(self.norm_bound, self.noise_scale, growth, self.delta)
        return beta * math.sqrt(self.regularization)


FINEST = 2.0**-40  # an edge this short is not halved, because that cannot separate two arms


@dataclass(frozen=True, slots=True)
class Box:
    """The box [`low`, `high`) in unit coordinates. It includes an upper end of 1."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @staticmethod
    def unit(d: int) -> "Box":
        """Return the whole domain of `d` features."""
        return Box((0.0,) * d, (1.0,) * d)

    def contains(self, points: Floats) -> NDArray[np.bool_]:
        """Return a mask (n,) of the `points` (n, d), in unit coordinates, that are in the box."""
        below = (points < self.high) | (np.asarray(self.high) == 1.0)
        return np.asarray(((points >= np.asarray(self.low)) & below).all(axis=1))


@dataclass(frozen=True, eq=False)
class BoxedArms:
    """The arms (A, d) and their domain."""

    arms: Floats

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @property
    def dimension(self) -> int:
        """d, the number of features."""
        return int(self.arms.shape[1])

    @cached_property
    def spans(self) -> Floats:
        """The domain's edges (d,), in feature units."""
        return np.asarray(self.arms.max(axis=0) - self.arms.min(axis=0))

    @cached_property
    def coordinates(self) -> Floats:
        """The arms in unit coordinates (A, d); 0 along a constant feature."""
        scales = np.where(self.spans > 0, self.spans, 1.0)
        return np.asarray(np.rint((self.arms - self.arms.min(axis=0)) / scales / FINEST) * FINEST)

    def inside(self, box: Box, arms: Indices) -> Indices:
        """Return those of `arms` (n,) that are in the box, in their order."""
        return np.asarray(arms[box.contains(self.coordinates[arms])])

    def can_halve(self, box: Box) -> bool:
        """Return whether the longest edge exceeds the resolution of the arms' coordinates."""
        axis = self._longest(box)
        return box.high[axis] - box.low[axis] > FINEST

    def halves(self, box: Box) -> tuple[Box, Box]:
        """Return the lower and the upper half."""
        axis = self._longest(box)
        middle = (box.low[axis] + box.high[axis]) / 2.0
        lower = Box(box.low, (*box.high[:axis], middle, *box.high[axis + 1 :]))
        return lower, Box((*box.low[:axis], middle, *box.low[axis + 1 :]), box.high)

    def is_point(self, box: Box) -> bool:
        """Return whether all arms of the box have equal coordinates, which no halving separates."""
        inside = self.coordinates[box.contains(self.coordinates)]
        return bool((inside == inside[:1]).all())

    def leaf(self, box: Box, arm: int, generations: int) -> Box:
        """Return the descendant of `box` that contains `arm` after `generations` halvings; boxes of
        one point are not halved."""
        for _ in range(generations):
            if self.is_point(box):
                break
            box = next(half for half in self.halves(box) if half.contains(self.coordinates[[arm]])[0])
        return box

    def nearest(self, box: Box, arms: Indices) -> int:
        """Return the arm of `arms` (n ≥ 1) nearest to the box's center. Ties go to the first."""
        return int(arms[self._snap(np.full((1, self.dimension), 0.5), box, arms)[0]])

    def grid(self, box: Box, points: int, arms: Indices) -> Indices:
        """Return D_g: the `arms` in the box that represent it, ascending (GP-ThreDS §3.2.2).

        These are all arms in the box if there are at most `points`, otherwise the arms nearest to
        the centers of a regular grid of at least `points` cells.
        """
        members = np.sort(self.inside(box, arms))
        if len(members) <= points:
            return members
        cells = self._cells(box, points)
        centers = (np.indices(cells).reshape(self.dimension, -1).T + 0.5) / cells
        return members[np.unique(self._snap(centers, box, members))]

    def _cells(self, box: Box, points: int) -> tuple[int, ...]:
        """Return the number of cells along each feature's edge (d,): as even as possible, with at
        least `points` in total.

        400 cells in five dimensions are 4 · 4 · 3 · 3 · 3. The longest edges have the most cells,
        and an edge of length 0 has one.
        """
        edges = self.half_edges(box)
        cut = np.flatnonzero(edges > 0)
        cells = np.ones(self.dimension, int)
        cells[cut] = int(points ** (1.0 / max(len(cut), 1)) + 1e-9)
        by_length = cut[np.argsort(-edges[cut], kind="stable")]
        for axis in by_length:
            if cells.prod() >= points:
                break
            cells[axis] += 1
        return tuple(cells.tolist())

    def half_edges(self, box: Box) -> Floats:
        """Return the distances from the center to the upper corner (d,), in feature units."""
        return np.asarray(self.spans * (np.asarray(box.high) - box.low) / 2.0)

    def _snap(self, fractions: Floats, box: Box, arms: Indices) -> Indices:
        """Return the positions (n,) of the `arms` nearest to points (n, d), as shares of edges."""
        places = np.asarray(box.low) + fractions * (np.asarray(box.high) - box.low)
        return np.asarray(cdist(places * self.spans, self.coordinates[arms] * self.spans).argmin(axis=1))

    def _longest(self, box: Box) -> int:
        return int(np.argmax(self.half_edges(box)))


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
