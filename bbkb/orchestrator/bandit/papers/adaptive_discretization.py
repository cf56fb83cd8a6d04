"""Adaptive discretization (Shekhar and Javidi 2018, Algorithm 1): cells that are fine near possible
maxima.

Title: "Gaussian process bandits with adaptive discretization". The algorithm maintains a tree of
boxes. Each leaf, a cell, represents one arm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from annotated_types import Ge
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices, first_largest
from bbkb.orchestrator.bandit.exact.strategy import ExactState
from bbkb.orchestrator.bandit.kernels import RBF, Matern32, Matern52
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.papers.boxes import Box, BoxedArms
from bbkb.orchestrator.bandit.scheduling import RkhsOptions
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import initial_state
from bbkb.orchestrator.bandit.strategy import (
    Choose,
    Decision,
    Observation,
    Pick,
    Posterior,
    Record,
    check_arms,
    require,
    sequential_refusal,
)

Constants = Literal["norm", "chaining"]


@dataclass(frozen=True, slots=True)
class TreeCell:
    """A leaf of the tree."""

    box: Box  # the cell's part of the domain
    depth: int  # h, the depth as a number of halvings
    arm: int  # the arm nearest to its center
    parent: int | None  # the arm of the parent cell; None for the root
    members: tuple[int, ...]  # the selectable arms in the box, ascending


@dataclass(frozen=True, eq=False, kw_only=True)
class CellState(ExactState):
    """The state of adaptive discretization."""

    boxed: BoxedArms
    cells: tuple[TreeCell, ...]  # a partition of the domain, without cells that contain no arm
    # the splits of the last `tell`: positions of cells that were split together
    splits: tuple[tuple[int, ...], ...]

    def observe(self, observations: Sequence[Observation], model: Model | None = None) -> Self:
        """Return the state of the next round, without splits; cells replace their failed arms."""
        after = replace(super().observe(observations, model), splits=())
        failed = {observation.arm for observation in observations if observation.reward is None}
        if not failed:
            return after
        cells: list[TreeCell] = []
        for cell in self.cells:
            is_whole = failed.isdisjoint(cell.members)
            cells += (
                [cell] if is_whole else self._held_cells(cell.box, cell, [a for a in cell.members if a not in failed])
            )
        return replace(after, cells=tuple(cells))

    def split(self, positions: Sequence[int]) -> "CellState":
        """Return the state with the cells at `positions` halved, without halves that lack arms."""
        selected = frozenset(positions)
        cells = list[TreeCell]()
        for position, cell in enumerate(self.cells):
            if position not in selected:
                cells.append(cell)
                continue
            born = replace(cell, depth=cell.depth + 1, parent=cell.arm)
            for half in self.boxed.halves(cell.box):
                cells += self._held_cells(half, born, cell.members)
        return replace(self, cells=tuple(cells), splits=(*self.splits, tuple(positions)))

    def _held_cells(self, box: Box, like: TreeCell, members: Sequence[int]) -> list[TreeCell]:
        """Return a cell like `like` with this box and its `members`; None if there are none."""
        inside = self.boxed.inside(box, np.asarray(members, np.intp))
        if not len(inside):
            return []
        return [replace(like, box=box, arm=self.boxed.nearest(box, inside), members=tuple(inside.tolist()))]


@dataclass(frozen=True)
class AdaptiveDiscretization(RkhsOptions):
    """The hyperparameters of adaptive discretization. Raises ValueError, with the field's name, if
    a value is out of range.

    Each step selects the cell with the largest index min(U(x), U(x_parent) + V_{h−1}) + V_h with U
    = μ + β σ at the arm nearest to its center. The cell is halved if β σ ≤ V_h, because its size
    then dominates the uncertainty; otherwise its arm is pulled.

    The domain is the box spanned by the arms' features, and a cell's center is replaced by the
    nearest arm in the cell. Cells without an arm are dropped. Arms are pulled one at a time: no arm
    is chosen while a reward is missing.

    β = B + R √(2 (γ + 1 + log 1/δ)), as in GP-ThreDS. V_h = `variation` · d_k(h), d_k(h) the kernel
    distance √(k(x,x) + k(y,y) − 2k(x,y)) from the center of a cell at depth h to its corner: |f(x)
    − f(y)| ≤ ‖f‖ d_k(x, y), so B is a valid bound for every f to which the width applies.

    `constants: chaining` assumes instead that f is a sample of the Gaussian process, as the authors
    do, and uses the constants of the experiment that Salgia et al. 2021 released: with h_max = log₂
    T, and ℓ in units of the domain's edges,

        β = √(2 (2 + log(T h_max) + d h_max log 2 + log 2))
        V_h = 4 · 2^{−h/d} (√(4 + C + h log 2 + 4 d log(2^{h/d} / ℓ)) + 1 + 2.7 √(2 log 2))
        C = 2 log(4 π²/3) + 2 log(T² π²/6)

    and no cell more than h_max halvings deep. `norm_bound`, `noise_scale`, `delta` and `variation`
    are then ignored.
    """

    variation: Annotated[Annotated[float, Ge(0)] | None, Doc("The factor of V_h, ≥ 0; None: B.")] = None
    constants: Annotated[
        Constants, Doc("Whether β and V_h follow from the `norm` of f, or from the authors' `chaining` argument.")
    ] = "norm"
    horizon: Annotated[int, Ge(2), Doc("T, the number of pulls that `chaining` assumes, ≥ 2.")] = 1000
    is_sequential: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        has_scale = self.constants == "norm" or isinstance(self.kernel, RBF | Matern32 | Matern52)
        require(self, "kernel", "rbf, matern32 or matern52 with constants: chaining", has_scale)

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> CellState:
        """Return the state before any pull of `arms` (A, d), split as far as the prior allows.

        Raises ValueError for invalid arms.
        """
        model = SparseModel(self.kernel, check_arms(arms), self.regularization)
        boxed = BoxedArms(model.arms)
        root = Box.unit(boxed.dimension)
        every = np.arange(len(model.arms))
        cell = TreeCell(root, 0, boxed.nearest(root, every), None, tuple(every.tolist()))
        start = CellState.begin(initial_state(model, ()), boxed=boxed, cells=(cell,), splits=())
        return self._settle(start)

    def ask(self, state: CellState, pending: Sequence[int], limit: int) -> Decision:
        """Return the arm of the first cell with the largest index, unless an arm is pending."""
        wait = sequential_refusal(state, pending, limit)
        if wait:
            return wait
        arm = state.cells[first_largest(self.indices(state))].arm
        belief = state.belief
        pick = Pick(arm, float(belief.mean[arm]), self.width(state), float(belief.variance[arm]))
        return Choose((pick,), "one pull at a time")

    def tell(self, state: CellState, observations: Sequence[Observation], rng: np.random.Generator) -> CellState:
        """Return the state after these pulls, split until the best cell's arm is due; no draws."""
        return self._settle(state.observe(observations))

    def recorded(self, state: CellState) -> Record:
        """Return the last splits, because another machine's rounding must not change the tree."""
        return {"splits": [list(positions) for positions in state.splits]}

    def restore(self, state: CellState, observations: Sequence[Observation], record: Record) -> CellState:
        """Like `tell`, with the splits of `record`."""
        after = state.observe(observations)
        for positions in record["splits"]:
            after = after.split([int(position) for position in positions])
        return after

    def posterior(self, state: CellState) -> Posterior:
        """Return the belief over all arms at `state`."""
        return state.display(self.width(state))

    def width(self, state: CellState) -> float:
        """Return β √λ, the factor on σ of the 1/λ scale."""
        if self.constants == "chaining":
            deepest = math.log2(self.horizon)
            d = state.boxed.dimension
            exponent = 2.0 + math.log(self.horizon * deepest) + (d * deepest + 1.0) * math.log(2.0)
            return math.sqrt(2.0 * exponent * self.regularization)
        return self.width_after(state.pulls.total)

    def variations(self, state: CellState) -> Floats:
        """Return V_h for every depth h (deepest + 1,); cells of one depth have equal edges."""
        depths = 1 + max(cell.depth for cell in state.cells)
        if self.constants == "chaining":
            return self._chaining(state.boxed, np.arange(depths))
        box = Box.unit(state.boxed.dimension)
        edges = []
        for _ in range(depths):
            edges.append(state.boxed.half_edges(box))
            box = state.boxed.halves(box)[0]
        corners = np.array(edges)
        center = np.zeros((1, state.boxed.dimension))
        products = self.kernel.cross(corners, center)[:, 0]
        squared = self.kernel.diagonal(corners) + self.kernel.diagonal(center) - 2.0 * products
        scale = self.norm_bound if self.variation is None else self.variation
        return scale * np.sqrt(np.maximum(squared, 0.0))

    def _chaining(self, boxed: BoxedArms, depths: Indices) -> Floats:
        """Return V_h by the chaining argument for depths h (n,)."""
        d = boxed.dimension
        edges = boxed.spans[boxed.spans > 0]
        scales = np.broadcast_to(np.asarray(self.kernel.lengthscale), boxed.spans.shape)[boxed.spans > 0]
        relative = float(np.exp(np.log(scales / edges).mean())) if len(edges) else 1.0
        union = 2.0 * math.log(4.0 * math.pi**2 / 3.0) + 2.0 * math.log(self.horizon**2 * math.pi**2 / 6.0)
        level = depths * math.log(2.0)
        spread = 4.0 + union + level + 4.0 * d * (level / d - math.log(relative))
        return (
            4.0 * np.exp(-level / d) * (np.sqrt(np.maximum(spread, 0.0)) + 1.0 + 2.7 * math.sqrt(2.0 * math.log(2.0)))
        )

    def indices(self, state: CellState) -> Floats:
        """Return min(U(x), U(x_parent) + V_{h−1}) + V_h of every cell (n,)."""
        belief = state.belief
        width = self.width(state)
        variations = self.variations(state)
        arms = np.array([cell.arm for cell in state.cells])
        depths = np.array([cell.depth for cell in state.cells])
        parents = np.array([cell.arm if cell.parent is None else cell.parent for cell in state.cells])
        ucb = belief.mean + width * np.sqrt(belief.variance)
        # the root has no parent; its own bound plus a positive number is never the minimum
        inherited = ucb[parents] + variations[np.maximum(depths - 1, 0)]
        return np.asarray(np.minimum(ucb[arms], inherited) + variations[depths])

    def _settle(self, state: CellState) -> CellState:
        """Return the state after the splits before the next pull: the best cell is split while its
        split is due, β σ ≤ V_h.

        Before any pull, no half is better than its parent. Cells with equal indices are then split
        together, because in high dimensions there are thousands.
        """
        while state.cells:
            arms = np.array([cell.arm for cell in state.cells])
            depths = np.array([cell.depth for cell in state.cells])
            # cells of the same depth have the same edges, and thousands of cells have only a few dozen
            # depths; they are halved down to the features' resolution
            _, firsts, level = np.unique(depths, return_index=True, return_inverse=True)
            may = np.array([state.boxed.can_halve(state.cells[first].box) for first in firsts])[level]
            if self.constants == "chaining":
                may &= depths + 1 <= math.log2(self.horizon)
            deviation = self.width(state) * np.sqrt(state.belief.variance[arms])
            may &= deviation <= self.variations(state)[depths]
            indices = self.indices(state)
            best = first_largest(indices)
            if not may[best]:
                return state
            ties = may & (indices == indices[best])
            state = state.split([best] if state.pulls.total else np.flatnonzero(ties).tolist())
        return state
