"""IGP-UCB: exact upper bounds on a growing grid (Chowdhury and Gopalan 2017, "On kernelized
multi-armed bandits", Algorithm 1; settings of Salgia, Vakili, Zhao 2021, Section 4 and Appendix
D.1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge
from scipy.spatial.distance import cdist
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices, read_only
from bbkb.orchestrator.bandit.exact.strategy import ExactState, ExactStrategy
from bbkb.orchestrator.bandit.options import Width
from bbkb.orchestrator.bandit.scheduling import RkhsOptions, information_growth, rkhs_width
from bbkb.orchestrator.bandit.sparse.verification import OpenArms
from bbkb.orchestrator.bandit.start.warm_start import ONE_PULL, WarmStartOption
from bbkb.orchestrator.bandit.strategy import Decision, require

InformationSchedule = Literal["kernel", "log", "sqrt"]


@dataclass(frozen=True, eq=False, kw_only=True)
class GridState(ExactState):
    """`order` (A,), read-only: the arms in the order in which they join the grid."""

    order: Indices


@dataclass(frozen=True)
class IGPUCB(RkhsOptions, ExactStrategy[GridState]):
    """The hyperparameters of IGP-UCB (Chowdhury and Gopalan 2017, Algorithm 1). Raises ValueError,
    with the field's name, if a value is out of range.

    Pull t is the argmax of μ + β_t σ over a grid of arms, with the exact posterior on the Bayesian
    scale and β_t = B + R √(2(γ_{t−1} + 1 + log 1/δ)). The defaults are those of Salgia et al. 2021
    on Branin. `is_sequential`: no arm is chosen while a reward is missing, so a second worker would
    be idle.

    The grid of pull t consists of the first min(`final_points`, ⌊(√`initial_points` + `grid_growth`
    · (t − 1))²⌋) arms of a farthest-first traversal (see `farthest_first`), in which the next arms
    replace those that were set aside. Grids are therefore nested, and functions of the candidates,
    t and the set-aside arms. If there are fewer arms, the grid has all of them. The default, min(20
    + t, 80)², is that of the released experiment on Branin. The warm start may pull any arm.
    """

    information: Annotated[
        InformationSchedule,
        Doc("The information gain γ_s: `log` s, `sqrt` s, or by the `kernel`, √s for Matérn and log s for the others."),
    ] = "kernel"
    initial_points: Annotated[int, Ge(1), Doc("Arms on the grid of the first pull, ≥ 1.")] = 400
    final_points: Annotated[int, Ge(1), Doc("The largest number of arms on a grid, ≥ `initial_points`.")] = 6400
    grid_growth: Annotated[
        float, Ge(0), Doc("The growth of the side of a square grid per pull, in points, ≥ 0; 0: a fixed grid.")
    ] = 1.0
    warm_start: WarmStartOption = ONE_PULL
    width: Width = None
    is_sequential: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = f">= initial_points ({self.initial_points!r})"
        require(self, "final_points", rule, self.final_points >= self.initial_points)

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> GridState:
        """Return the state before any pull of `arms` (A, d); draws the warm start."""
        base = self.base_state(arms, rng)
        model = base.model
        # a grid of all arms needs no order
        ordered = self.final_points if self.initial_points < len(model.arms) else 1
        return GridState.begin(base, order=farthest_first(model.arms, ordered))

    def grid(self, state: GridState) -> Indices:
        """Return the arms from which the next pull is chosen, (n,), ascending."""
        side = math.sqrt(self.initial_points) + self.grid_growth * state.pulls.total
        # 1e-9, so that (√20)² is 20 for any rounding
        size = min(self.final_points, math.floor(min(side, math.sqrt(self.final_points) + 1.0) ** 2 + 1e-9))
        may_be_chosen = ~np.isin(state.order, OpenArms.of(state, (), self.verify).blocked)
        return np.sort(state.order[may_be_chosen][:size])

    def ask(self, state: GridState, pending: Sequence[int], limit: int) -> Decision:
        """Return one arm unless one is pending: the warm start, then argmax μ + β σ on the grid."""

        def on_grid() -> Floats:
            grid = self.grid(state)
            scores = np.full(len(state.order), -np.inf)
            scores[grid] = self.posterior(state).ucb[grid]
            return scores

        return self.next_pull(state, pending, limit, on_grid)

    def width_at(self, state: GridState) -> float:
        """Return √λ β_t at `state`, for σ of the 1/λ scale (Chowdhury and Gopalan 2017, Thm 2)."""
        if self.width is not None:
            return self.width * math.sqrt(state.model.regularization)
        pulls = state.pulls.total
        if self.information == "kernel":
            growth = information_growth(self.kernel, pulls)
        else:
            growth = math.sqrt(pulls) if self.information == "sqrt" else math.log(max(pulls, 1))
        return math.sqrt(self.regularization) * rkhs_width(self.norm_bound, self.noise_scale, growth, self.delta)


def farthest_first(arms: Floats, count: int) -> Indices:
    """Return all of `arms` (A, d) in order (A,): the first `count` by farthest-first traversal, the
    others by index.

    Gonzalez 1985: arm 0 first, then repeatedly the arm farthest from the selected arms, the lowest
    index among equals. Every prefix, up to `count`, covers the arms with at most twice the radius
    of the best subset of the same size. On a regular grid the prefixes run through coarser regular
    grids. Exact duplicates come last. Costs O(A d) per selected arm; deterministic.
    """
    taken = [0]
    distance = np.full(len(arms), np.inf)
    for _ in range(min(count, len(arms)) - 1):
        distance = np.minimum(distance, cdist(arms[taken[-1:]], arms, "sqeuclidean")[0])
        # a duplicate of a selected arm has distance 0 but is not itself selected
        distance[taken[-1]] = -1.0
        taken.append(int(np.argmax(distance)))
    others = np.setdiff1d(np.arange(len(arms)), taken, assume_unique=True)
    return read_only(np.concatenate((taken, others)), np.intp)
