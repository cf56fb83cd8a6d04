"""The picks of a batch of BBKB: an ordered list of pickers with a common workspace.

Each picker names an arm, or defers to the next picker. A stopped trial that is more promising than
a new trial of the named arm is continued instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from bbkb.orchestrator.bandit.sparse.argmax_queue import ArgmaxQueue
from bbkb.orchestrator.bandit.sparse.forecasts import PausedTrials
from bbkb.orchestrator.bandit.sparse.goal_queue import GoalQueue
from bbkb.orchestrator.bandit.sparse.picking import ConditionedPosterior, Picking
from bbkb.orchestrator.bandit.sparse.state import SparseState, has_plateau
from bbkb.orchestrator.bandit.sparse.termination import Drift, NoDrift
from bbkb.orchestrator.bandit.sparse.verification import (
    EXPLOITATION,
    VERIFICATION,
    Estimates,
    OpenArms,
    has_best,
    may_verify,
    repeat_due,
)
from bbkb.orchestrator.bandit.start.coverage import LevelPicker, is_coverage_due
from bbkb.orchestrator.bandit.start.warm_start import unused_arms
from bbkb.orchestrator.bandit.strategy import Pick, Prospect


@dataclass(frozen=True)
class Named:
    """The arm that a picker names."""

    arm: int
    reason: str  # the reason of the pick


@dataclass(frozen=True)
class Shares:
    """The shares of the picks, in [0, 1], that need not be the arm with the largest bound."""

    verify: float
    coverage: float


@dataclass
class Workspace:
    """The workspace of one or more `ask`s at a state."""

    state: SparseState
    picking: Picking
    drift: Drift
    shares: Shares
    is_exploring: bool  # whether only verification repeats arms
    verifies: bool  # whether verification repeats arms
    reason: str  # the reason of the picks with the largest bound
    pulls: list[int] = field(default_factory=list)  # those pending or picked, in this order
    left: int = 0  # the number of arms not chosen yet if only verification repeats arms
    queue: ArgmaxQueue = field(init=False)
    paused: PausedTrials | None = None  # the stopped trials that compete with new ones
    # the arms that cover the space on a plateau, else none; None until the first pick
    unused: Sequence[int] | None = None
    level_picker: LevelPicker | None = None  # None until the first pick for coverage

    @classmethod
    def begin(
        cls,
        state: SparseState,
        picking: Picking,
        drift: Drift,
        arms: OpenArms,
        pending: Sequence[int],
        shares: Shares,
    ) -> Self:
        """Return the workspace with these pending pulls."""
        is_exploring = arms.left > 0
        verifies = is_exploring and may_verify(state)
        workspace = cls(state, picking, drift, shares, is_exploring, verifies, arms.reason)
        workspace._add_pending(pending)
        if verifies:  # entered arms that are blocked are excluded; see `prospect`
            picking.look_at(state.pulls.arms)
        if state.goals.is_single:
            workspace.queue = picking.queue(arms.blocked)
        else:
            workspace.queue = GoalQueue(state, picking, arms.blocked, state.pulls.total + len(pending))
        return workspace

    def begin_batch(self, state: SparseState, left: int, paused: PausedTrials | None) -> None:
        """Set the attributes that differ between two `ask`s with the same posterior."""
        self.state = state
        self.left = left
        self.paused = paused

    @cached_property
    def estimates(self) -> Estimates:
        """The estimates of the evaluated arms."""
        return Estimates.of(self.state)

    @property
    def is_spent(self) -> bool:
        """Whether the pulls have spent the drift budget."""
        return self.drift.is_spent()

    @property
    def is_open(self) -> bool:
        """Whether this workspace has another pick."""
        return not self.is_spent and (not self.is_exploring or self.left > 0)

    def pick(self) -> Pick:
        """Return the next pick, and add it to the pulls."""
        named = next(named for picker in PICKERS if (named := picker(self)) is not None)
        pick = self._continued(named.arm)
        if pick is None:
            pick = replace(self._append(named.arm), reason=named.reason)
        if self.is_exploring or not self.state.repeats:
            self.queue.block(pick.arm)
        self.left -= named.reason not in (VERIFICATION, EXPLOITATION)
        return pick

    def prospect(self) -> Prospect:
        """Return the gain and the noise to expect from further evaluations.

        Arms that only verification may repeat are included, as if the strategy decided about
        repeats. A level that lacks evaluations does not contribute to the gain.
        """
        state = self.state
        picking = self.picking
        top = self.queue.top()
        arms = np.array([top], np.intp)
        bounds = np.array([picking.upper_bound(top)])
        if self.verifies:
            chosen = np.union1d(state.pulls.arms, np.array(self.pulls, np.intp))
            chosen = np.setdiff1d(chosen, state.blocked_arms(), assume_unique=True)
            arms = np.append(arms, chosen)
            bounds = np.append(bounds, picking.upper_bounds(chosen))
        if (bonus := state.prior_bonus) is not None:
            bounds += bonus[arms] - bonus.min()  # no other bound can exceed it by more
        return state.knowledge.prospect(float(bounds.max()))

    def _continued(self, arm: int) -> Pick | None:
        """Return the pick that continues a stopped trial whose bound exceeds that of a new trial of
        `arm`; None if there is no such trial."""
        if self.paused is None:
            return None
        new = self.picking.pick(arm)
        trial = self.paused.take(new.mean, new.variance * self.state.model.regularization)
        return None if trial is None else replace(self._append(trial.arm), trial=trial.trial)

    def _add_pending(self, pending: Sequence[int]) -> None:
        posterior = self.picking.posterior
        if isinstance(posterior, ConditionedPosterior) and isinstance(self.drift, NoDrift):
            posterior.extend(pending)
            self.pulls.extend(pending)
            return
        for arm in pending:
            self._append(arm)

    def _append(self, arm: int) -> Pick:
        """Add a pull of `arm`, and return its pick with the variance before the pull."""
        pick = self.picking.pick(arm)
        self.drift.append(arm, pick.variance)
        self.picking.posterior.append(arm)
        self.pulls.append(arm)
        return pick


def repeat(workspace: Workspace) -> Named | None:
    """Name one of the best arms, because values are noisy or exploration ends."""
    if not workspace.is_exploring:
        return None
    due = repeat_due(workspace.state, workspace.pulls, workspace.shares.verify, lambda: workspace.estimates)
    return None if due is None else Named(*due)


def known_best(workspace: Workspace) -> Named | None:
    """Name the best arm again, if repeats have shown that arms differ from their neighbors, and no new
    arm is expected to be better."""
    state = workspace.state
    if not workspace.is_exploring or not has_best(state) or not state.pulls.varies:
        return None
    if not workspace.estimates.shows_own_effects:
        return None
    best = workspace.estimates.best(state.blocked_arms())
    new = workspace.picking.pick(workspace.queue.top())
    if best is None or not workspace.estimates.exceeds(best, new.mean, new.variance * state.model.regularization):
        return None
    return Named(best, EXPLOITATION)


def spread(workspace: Workspace) -> Named | None:
    """Name the next arm that covers the space, if the results do not show where better ones are.
    Otherwise the most uncertain arms would be chosen: the corners of the space, which are rarely
    good. If the user expects good arms somewhere, these are chosen."""
    if workspace.unused is None:
        state = workspace.state
        is_needed = state.log_prior is None and has_plateau(state)
        workspace.unused = unused_arms(state, workspace.pulls).tolist() if is_needed else ()
    if not workspace.unused:
        return None
    picked = set(workspace.pulls)
    arm = next((arm for arm in workspace.unused if arm not in picked), None)
    return None if arm is None else Named(arm, "spread")


def coverage(workspace: Workspace) -> Named | None:
    """Name the most promising arm of a level that lacks evaluations."""
    state = workspace.state
    if not state.goals.is_single or not is_coverage_due(state, len(workspace.pulls), workspace.shares.coverage):
        return None
    if workspace.level_picker is None:
        workspace.level_picker = LevelPicker(state, workspace.picking.width)
    lacking = workspace.level_picker.lacking_arm(workspace.pulls)
    return None if lacking is None else Named(lacking, "coverage")


def largest_bound(workspace: Workspace) -> Named:
    """Name the arm with the largest upper bound (BBKB Algorithm 1, line 6)."""
    return Named(workspace.queue.top(), workspace.reason)


Picker = Callable[[Workspace], Named | None]
PICKERS: Sequence[Picker] = (repeat, spread, coverage, known_best, largest_bound)
