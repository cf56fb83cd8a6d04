"""GP-ThreDS: thresholded domain shrinking (Salgia, Vakili, Zhao 2021, Algorithms 1 to 6).

"A domain-shrinking based Bayesian optimization algorithm with order-optimal regret performance".
Epochs have three stages on a binary tree of boxes. Prune: each box of the last epoch is searched
for leaves, d halvings below it, that contain a value above the threshold τ. Refine: these leaves
are the next epoch's boxes. Re-threshold: τ is the middle of [a, b], the interval that should
contain the maximum. a rises, or the whole interval falls if no leaf is high-performing. During a
search, the belief depends only on the rewards of the current visit.

    β_s(ν) = B + R √(2 (γ_{s−1} + 1 + log 1/ν))              γ_s = log s (Gaussian), √s (Matérn)
    max μ − β σ ≥ τ                     high-performing
    max μ + β σ ≤ τ − P 2^{−αρ/d}       sub-performing; P is c in theory, L Δ^α = c 2^{−αρ/d}
    a ← τ − Q 2^{−αρ/d}                 Q is 2c in theory
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices, first_largest, read_only, same
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.papers.boxes import Box, BoxedArms
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.scheduling import RkhsOptions, information_growth, rkhs_width
from bbkb.orchestrator.bandit.strategies.uniform import ModelFreeState
from bbkb.orchestrator.bandit.strategy import (
    Choose,
    Decision,
    Observation,
    Pick,
    Posterior,
    Record,
    arms_and_rewards,
    check_arms,
    require,
    sequential_refusal,
)

Search = Literal["random_walk", "direct"]
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


@dataclass(frozen=True)
class GPThreDS(RkhsOptions):
    """The hyperparameters of GP-ThreDS (Salgia, Vakili, Zhao 2021). Raises ValueError, with the
    field's name, if a value is out of range.

    The defaults are those of the paper's Branin experiment, except for P and Q, which are from the
    theory. The domain is the box spanned by the arms' features, and only arms are pulled: each
    point of a box's grid is replaced by the nearest arm in the box; the grid of a box with at most
    `grid_points` arms is all of them. Boxes without an arm are dropped, and boxes with one arm are
    not halved. Arms are pulled one at a time: no arm is chosen while a reward is missing.

    The paper does not specify x_1, which is drawn here. The walk requires a random x_1: it returns
    to a box whose test may have ended after x_1, and the same x_1 would lead to an endless loop.
    After a leaf is accepted, the remaining grid is tested before the next pull. The walk restarts
    at the root after every leaf, and continues at the root's children if the root passes. If all
    boxes have lost their arms to failures, the next epoch starts with the whole domain. The printed
    δ̂ has the number of visited nodes as a factor; the union bound needs it as a divisor.

    A value of B that is too small is costly: if B alone is below the pruning line, a box is pruned
    after x_1 unless x_1 is good, and a maximum above b cannot be found after [a, b] has fallen.
    """

    low: Annotated[float, Doc("a, a lower bound on the largest value of f.")] = 0.5
    high: Annotated[float, Doc("b, an upper bound on the largest value of f, > `low`.")] = 1.2
    c: Annotated[float, Gt(0), Doc("c, the coarseness of the search against the error that is allowed, > 0.")] = 0.2
    pruning_constant: Annotated[Annotated[float, Ge(0)] | None, Doc("P, ≥ 0; None: c. The experiments have 2c.")] = None
    threshold_constant: Annotated[
        Annotated[float, Ge(0)] | None, Doc("Q, ≥ 0; None: 2c. The experiments have 2c (b − a).")
    ] = None
    holder_exponent: Annotated[float, Gt(0), Le(1), Doc("α, the Hölder exponent of f, in (0, 1].")] = 1.0
    grid_points: Annotated[
        int, Ge(1), Doc("The least number of cells of D_g, the grid of a box, ≥ 1: 400 is 20 × 20 in two dimensions.")
    ] = 400
    max_local_pulls: Annotated[
        Annotated[int, Ge(1)] | None,
        Doc("t_term, the rewards after which a box counts as high-performing, ≥ 1; None: the cap of eq. 4."),
    ] = 50
    search: Annotated[
        Search, Doc("`direct`: Algorithm 4, all leaves at once; `random_walk`: Algorithms 3, 5 and 6.")
    ] = "direct"
    first: Annotated[
        First,
        Doc("x_1, the first pull of a test: a `random` arm of D_g, or the `centre`'s, with search `direct` only."),
    ] = "random"
    horizon: Annotated[
        int, Ge(1), Doc("T, the pulls over which δ₀ is spread, ≥ 1, with search `random_walk` only.")
    ] = 1000
    walk_error: Annotated[
        float, Gt(0), Lt(0.5), Doc("p, the error probability of the walk, in (0, 1/2), with search `random_walk` only.")
    ] = 0.25
    is_sequential: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "high", f"> low ({self.low!r})", self.low < self.high)
        walks = self.search == "random_walk"
        require(self, "first", "random if search is random_walk", self.first == "random" or not walks)

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> ThresholdState:
        """Return the state before any pull of `arms` (A, d); draws the seed."""
        boxed = BoxedArms(check_arms(arms))
        nothing = read_only((), np.intp)
        root = Box.unit(boxed.dimension)
        pulls = Pulls.none(len(boxed.arms))
        state = ThresholdState(
            boxed=boxed,
            seed=int(rng.integers(2**32)),
            pulls=pulls,
            epoch=Epoch(1, self.low, self.high, 1, (root,)),
            visit=Visit(0, (root,), "root", (), root, nothing, pulls),
        )
        return self._begin(state, 0)

    def ask(self, state: ThresholdState, pending: Sequence[int], limit: int) -> Decision:
        """Return one arm unless one is pending: first x_1, then argmax μ + β σ on the grid."""
        wait = sequential_refusal(state, pending, limit)
        if wait:
            return wait
        visit = state.visit
        mean, variance = self._belief(state)
        confidence = self.delta if self.search == "direct" else self.delta / (4.0 * self.horizon)
        width = self._width(visit, confidence) * math.sqrt(self.regularization)
        position = first_largest(mean + width * np.sqrt(variance))
        if not visit.pulls.total:  # x_1, which initializes the test
            position = int(np.searchsorted(visit.grid, state.first_arm(self.first)))
        pick = Pick(int(visit.grid[position]), float(mean[position]), width, float(variance[position]))
        return Choose((pick,), "one pull at a time")

    def tell(
        self, state: ThresholdState, observations: Sequence[Observation], rng: np.random.Generator
    ) -> ThresholdState:
        """Return the state after these newly finished pulls, in which every test that they decide
        has ended. Draws nothing.

        Rewards of arms outside the visit's grid are counted, but do not affect the visit's belief.
        """
        after = state.observe(observations).with_new_grid(self.grid_points)
        verdicts = []
        while (verdict := self.verdict(after)) is not None:
            verdicts.append(verdict)
            after = self._advance(after, verdict)
        return replace(after, verdicts=tuple(verdicts))

    def recorded(self, state: ThresholdState) -> Record:
        """Return the seed and the last verdicts, which depend on the machine's rounding."""
        return {"seed": state.seed, "verdicts": list(state.verdicts)}

    def restore(self, state: ThresholdState, observations: Sequence[Observation], record: Record) -> ThresholdState:
        """Like `tell`, with the seed and the verdicts of `record`."""
        after = state.observe(observations).with_new_grid(self.grid_points)
        verdicts = tuple(int(arm) for arm in record["verdicts"])
        for verdict in verdicts:
            after = self._advance(after, verdict)
        return replace(after, seed=int(record["seed"]), verdicts=verdicts)

    def posterior(self, state: ThresholdState) -> Posterior:
        """Return the belief given all pulls, for display; tests use those of their visit only."""
        mean, variance = exact_posterior(self.kernel, state.arms, state.pulls, self.regularization)
        ucb = mean + self.width_after(state.pulls.total) * np.sqrt(variance)
        mean, variance, ucb = (read_only(values, np.float64) for values in (mean, variance, ucb))
        return Posterior(mean, variance, ucb, unit=self.regularization)

    def verdict(self, state: ThresholdState) -> int | None:
        """Return the verdict of the running test: an arm in the high-performing part,
        `SUB_PERFORMING`, or None to continue.

        Figure 3, and Algorithms 4 (`leaves`), 5 (`leaf`) and 6 (`root`).
        """
        visit = state.visit
        if not len(state.available):
            return None
        if not len(visit.grid):
            return SUB_PERFORMING
        if not visit.pulls.total:
            return None
        mean, variance = self._belief(state)
        deviation = np.sqrt(self.regularization * variance)
        below, above, last = self._confidences(state)
        lower = mean - self._width(visit, above) * deviation
        best = first_largest(lower)
        if lower[best] >= state.epoch.threshold:
            return int(visit.grid[best])
        upper = mean + self._width(visit, below) * deviation
        if upper.max() <= state.epoch.threshold - self.margin(state.epoch):
            return SUB_PERFORMING
        return int(visit.grid[best]) if self._is_capped(state, last) else None

    def margin(self, epoch: Epoch) -> float:
        """Return P 2^{−αρ/d}: how far the upper bound of a sub-performing box is below τ."""
        constant = self.c if self.pruning_constant is None else self.pruning_constant
        return constant * float(2.0 ** (-self.holder_exponent * epoch.height))

    def next_epoch(self, epoch: Epoch) -> Epoch:
        """Return the epoch after this one, whose boxes were all searched (Algorithm 1)."""
        if not epoch.found:
            shift = (epoch.high - epoch.low) / 2.0
            return Epoch(epoch.number + 1, epoch.low - shift, epoch.high - shift, epoch.height, epoch.roots)
        constant = 2.0 * self.c if self.threshold_constant is None else self.threshold_constant
        low = epoch.threshold - constant * float(2.0 ** (-self.holder_exponent * epoch.height))
        return Epoch(epoch.number + 1, low, epoch.high, epoch.height + 1, epoch.found)

    def _width(self, visit: Visit, confidence: float) -> float:
        """Return β_s(ν) for the next pull of this visit."""
        growth = information_growth(self.kernel, visit.pulls.total)
        return rkhs_width(self.norm_bound, self.noise_scale, growth, confidence)

    def _confidences(self, state: ThresholdState) -> tuple[float, float, float]:
        """Return ν of the upper bound, of the lower bound, and of the cap."""
        stage = state.visit.stage
        if stage == "leaves":
            return self.delta, self.delta, self.delta
        p = self.walk_error
        r = len(state.visit.taken) + 1
        T = self.horizon
        d = state.boxed.dimension
        if stage in ("left", "right"):
            return p, p, p
        nodes = math.log(4.0 * d * T / self.delta) / (2.0 * (p - 0.5) ** 2)  # Lemma 3 with δ₁ = δ₀/4T
        strict = self.delta / (4.0 * T * r * (r + 1) * nodes)
        if stage == "root":  # Algorithm 6
            return strict, p, strict
        return (strict if self._is_capped(state, p) else p), strict, strict  # Algorithm 5

    def _is_capped(self, state: ThresholdState, confidence: float) -> bool:
        """Return whether the test has drawn t_term, or S̄(ν) of eq. 4: the t with 2 (1 + 2λ) β_t
        |D_g|^{1/2} ≤ L Δ^α √t."""
        visit = state.visit
        if self.max_local_pulls is not None:
            return visit.since >= self.max_local_pulls
        error = 2.0 * (1.0 + 2.0 * self.regularization) * self._width(visit, confidence) * math.sqrt(len(visit.grid))
        return error <= self.margin(state.epoch) * math.sqrt(visit.since)

    def _belief(self, state: ThresholdState) -> tuple[Floats, Floats]:
        """Return mean and variance (1/λ scale) of the grid's arms (n,), given the visit's rewards."""
        visit = state.visit
        points = np.union1d(visit.grid, visit.pulls.arms)
        local = Pulls.of(visit.pulls.counts[points], visit.pulls.reward_sums[points])
        mean, variance = exact_posterior(self.kernel, state.arms[points], local, self.regularization)
        rows = np.searchsorted(points, visit.grid)
        return mean[rows], variance[rows]

    def _advance(self, state: ThresholdState, verdict: int) -> ThresholdState:
        """Return the state after a test's verdict."""
        if state.visit.stage in ("leaves", "root") and verdict == SUB_PERFORMING:
            return self._finish(state)
        return state.accept(verdict) if state.visit.stage == "leaves" else self._step(state, verdict)

    def _step(self, state: ThresholdState, verdict: int) -> ThresholdState:
        """Return the walk's next box and its test (Algorithm 3)."""
        is_high = verdict != SUB_PERFORMING
        path = state.visit.path
        stage = state.visit.stage
        taken = state.visit.taken
        if stage == "leaf" and is_high:
            return self._visit(state, path[:1], "root", (*taken, path[-1]))
        if stage == "left" and not is_high:
            return self._visit(state, path, "right", taken)
        if is_high:  # the root passed, or one of the two children is entered
            path = path if stage == "root" else (*path, state.visit.node)
            is_leaf = len(path) > state.boxed.dimension or state.boxed.is_point(path[-1])
            return self._visit(state, path, "leaf" if is_leaf else "left", taken)
        path = path[:-1] or path  # the root is its own parent
        return self._visit(state, path, "root" if len(path) == 1 else "left", taken)

    def _visit(
        self, state: ThresholdState, path: tuple[Box, ...], stage: Stage, taken: tuple[Box, ...]
    ) -> ThresholdState:
        """Return the state at the start of a test of `path`'s last box, or of one of its halves."""
        node = path[-1]
        if stage in ("left", "right"):
            node = state.boxed.halves(node)[stage == "right"]
        visit = Visit(
            state.visit.position,
            path,
            stage,
            taken,
            node=node,
            grid=state.grid(node, taken, self.grid_points),
            pulls=Pulls.none(len(state.arms)),
        )
        return replace(state, visit=visit)

    def _finish(self, state: ThresholdState) -> ThresholdState:
        """Return the state after the search below one box: the next box, or the next epoch."""
        epoch = replace(state.epoch, found=(*state.epoch.found, *state.visit.taken))
        following = state.visit.position + 1
        if following < len(epoch.roots):
            return self._begin(replace(state, epoch=epoch), following)
        epoch = self.next_epoch(epoch)
        alive = tuple(box for box in epoch.roots if len(state.boxed.inside(box, state.available)))
        roots = alive or (Box.unit(state.boxed.dimension),)
        return self._begin(replace(state, epoch=replace(epoch, roots=roots)), 0)

    def _begin(self, state: ThresholdState, position: int) -> ThresholdState:
        """Return the state at the start of the search below `roots[position]`."""
        started = replace(state, visit=replace(state.visit, position=position))
        stage: Stage = "leaves" if self.search == "direct" else "root"
        return self._visit(started, (state.epoch.roots[position],), stage, ())
