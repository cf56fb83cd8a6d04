"""BBKB: batched budgeted kernel bandits (Calandriello, Carratino, Lazaric, Valko, Rosasco 2020,
Algorithm 1).

A batch is chosen with a frozen posterior mean, while every pick shrinks the variance, until the
termination rule finds that the posterior could have drifted by more than C̃. The rewards then
update the width with the old variances, a new dictionary is drawn, and the posterior is refitted
from counts.

Pulls without rewards (`pending`) are added to the variance and to the drift before the first pick.
Lemma 1 holds for any dictionary, pulls and pending pulls. The upper bounds therefore remain valid
for any order of the rewards, provided that the duration of an evaluation does not depend on its
noise. The asynchronous mode is based on this property.

The picks of a batch of BBKB: pickers, in a fixed order, with a common workspace.

Each picker names an arm, or defers to the next picker. A stopped trial that is more promising than
a new trial of the named arm is continued instead.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Self

import numpy as np
from annotated_types import Ge, Gt, Le
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arrays import Floats, Recent
from bbkb.orchestrator.bandit.scheduling import DriftOptions, Schedule, information_gain
from bbkb.orchestrator.bandit.sparse.all_arms import LocalCovariance
from bbkb.orchestrator.bandit.sparse.argmax_queue import LazyQueue, best_evaluated
from bbkb.orchestrator.bandit.sparse.forecasts import PausedTrials, competing_trials, without_new_arms
from bbkb.orchestrator.bandit.sparse.goal_queue import GoalQueue, leaders, potentials
from bbkb.orchestrator.bandit.sparse.picking import ConditionedPosterior, Picking, WorkspacePosterior
from bbkb.orchestrator.bandit.sparse.posterior import SparsePosterior
from bbkb.orchestrator.bandit.sparse.state import SparseState, has_plateau
from bbkb.orchestrator.bandit.sparse.strategy import SparseStrategy
from bbkb.orchestrator.bandit.sparse.termination import (
    Drift,
    GlobalDrift,
    LocalDrift,
    NoDrift,
    ProductDrift,
    RatioDrift,
    Termination,
)
from bbkb.orchestrator.bandit.sparse.verification import (
    EXPLOITATION,
    VERIFICATION,
    WIDTH,
    Estimates,
    OpenArms,
    check_due,
    has_best,
    may_verify,
    repeat_due,
)
from bbkb.orchestrator.bandit.start.coverage import LevelPicker, is_coverage_due
from bbkb.orchestrator.bandit.start.warm_start import (
    ONE_PULL,
    AnyArms,
    UncertaintyStart,
    WarmStartOption,
    begin_sparse,
    begin_state,
    extend_failed_start,
    next_start,
    unused_arms,
)
from bbkb.orchestrator.bandit.strategy import (
    AROUND,
    Choose,
    Decision,
    Growth,
    Observation,
    Pick,
    Prospect,
    Wait,
    is_growth_due,
    refusal,
)

Named = tuple[int, str]  # the arm that a picker names, and the reason of the pick


@dataclass
class Workspace:
    """The workspace of one or more `ask`s at a state."""

    state: SparseState
    picking: Picking
    drift: Drift
    # the shares of the picks, in [0, 1], that need not be the arm with the largest bound
    verify: float
    coverage: float
    is_exploring: bool  # whether only verification and exploitation repeat arms
    verifies: bool  # whether verification repeats arms
    reason: str  # the reason of the picks with the largest bound
    pulls: list[int] = field(default_factory=list)  # those pending or picked, in this order
    left: int = 0  # the number of arms not chosen yet if `is_exploring`
    queue: LazyQueue | GoalQueue = field(init=False)
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
        verify: float,
        coverage: float,
    ) -> Self:
        """Return the workspace with these pending pulls."""
        is_exploring = arms.left > 0
        verifies = is_exploring and may_verify(state)
        workspace = cls(state, picking, drift, verify, coverage, is_exploring, verifies, arms.reason)
        posterior = picking.posterior
        if isinstance(posterior, ConditionedPosterior) and isinstance(drift, NoDrift):
            posterior.extend(pending)
            workspace.pulls.extend(pending)
        else:
            for arm in pending:
                workspace._append(arm)
        if verifies:  # entered arms that are blocked are excluded; see `prospect`
            picking.look_at(state.pulls.arms)
        if state.goals.is_single:
            workspace.queue = picking.queue(arms.blocked)
        else:
            workspace.queue = GoalQueue(state, picking, arms.blocked, state.pulls.total + len(pending))
        return workspace

    @cached_property
    def estimates(self) -> Estimates:
        """The estimates of the evaluated arms."""
        return Estimates.of(self.state)

    @property
    def is_open(self) -> bool:
        """Whether this workspace has another pick."""
        return not self.drift.is_spent() and (not self.is_exploring or self.left > 0)

    def pick(self) -> Pick:
        """Return the next pick, and add it to the pulls."""
        # the first one that names an arm
        arm, reason = repeat(self) or spread(self) or coverage(self) or known_best(self) or largest_bound(self)
        trial = None
        if self.paused is not None:
            new = self.picking.pick(arm)
            trial = self.paused.take(new.mean, new.variance * self.state.model.regularization)
        # the bound of a stopped trial that is taken exceeds that of a new trial of the arm
        pick = self._append(arm, None, reason) if trial is None else self._append(trial.arm, trial.trial)
        if self.is_exploring or not self.state.repeats:
            self.queue.block(pick.arm)
        self.left -= reason not in (VERIFICATION, EXPLOITATION)
        return pick

    def prospect(self) -> Prospect:
        """Return the gain and the noise to expect from further evaluations.

        Arms that only verification and exploitation may repeat are included, as if the strategy decided about
        repeats. A level that lacks evaluations does not contribute to the gain.
        """
        state = self.state
        picking = self.picking
        arms = [self.queue.top()]
        if self.verifies:
            picking.look_at(state.pulls.arms)  # the queue may have removed some
            is_excluded = np.ones(len(state.model.arms), np.bool_)
            is_excluded[state.pulls.arms] = is_excluded[self.pulls] = False
            is_excluded[state.blocked_arms()] = True
            if (chosen := best_evaluated(picking, is_excluded)[0]) >= 0:
                arms.append(chosen)
        bonus = state.prior_bonus
        lowest = 0.0 if bonus is None else bonus.min()  # no other bound can exceed it by more
        bounds = (picking.upper_bound(arm) + (0.0 if bonus is None else bonus[arm] - lowest) for arm in arms)
        return state.knowledge.prospect(float(max(bounds)))

    def _append(self, arm: int, trial: int | None = None, reason: str = "") -> Pick:
        """Add a pull of `arm`, and return its pick with the variance before the pull."""
        pick = self.picking.pick(arm, trial, reason)
        self.drift.append(arm, pick.variance)
        self.picking.posterior.append(arm)
        self.pulls.append(arm)
        return pick


def repeat(workspace: Workspace) -> Named | None:
    """Name one of the best arms, because values are noisy or may be, or exploration ends."""
    if not workspace.is_exploring:
        return check_due(workspace.state, workspace.pulls, workspace.verify)
    return repeat_due(workspace.state, workspace.pulls, workspace.verify, lambda: workspace.estimates)


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
    return best, EXPLOITATION


def spread(workspace: Workspace) -> Named | None:
    """Name the next arm that covers the space, if the results do not show where better ones are.
    Otherwise the most uncertain arms would be chosen: the corners of the space, which are rarely
    good. If the user expects good arms somewhere, these are chosen."""
    if workspace.unused is None:
        state = workspace.state
        is_needed = (state.prior_bonus is None or state.prefers_center) and has_plateau(state)
        workspace.unused = unused_arms(state, workspace.pulls).tolist() if is_needed else ()
    if not workspace.unused:
        return None
    picked = set(workspace.pulls)
    arm = next((arm for arm in workspace.unused if arm not in picked), None)
    return None if arm is None else (arm, "spread")


def coverage(workspace: Workspace) -> Named | None:
    """Name the most promising arm of a level that lacks evaluations."""
    state = workspace.state
    if not state.goals.is_single or not is_coverage_due(state, len(workspace.pulls), workspace.coverage):
        return None
    if workspace.level_picker is None:
        workspace.level_picker = LevelPicker(state, workspace.picking.width)
    lacking = workspace.level_picker.lacking_arm(workspace.pulls)
    return None if lacking is None else (lacking, "coverage")


def largest_bound(workspace: Workspace) -> Named:
    """Name the arm with the largest upper bound (BBKB Algorithm 1, line 6)."""
    return workspace.queue.top(), workspace.reason


_Key = tuple[SparsePosterior, float, bytes, tuple[int, ...], bool]


@dataclass(frozen=True)
class BBKB(DriftOptions, SparseStrategy[SparseState]):
    """The hyperparameters of BBKB. Raises ValueError, with the field's name, if a value is out of
    range.

    The defaults are those of the paper's experiments. They have λ = ξ² = 1e-4, so with rough
    kernels batches hold a single arm for hundreds of rounds. `theory` has the settings of Theorem 2.

    A campaign or `Optimizer` that specifies neither `model` nor `kernel` nor λ uses the calibrated
    model, `width` 2, `wait: never`, and first pulls that cover the space (`strategies.presets`).
    """

    width: Annotated[
        Schedule | Annotated[float, Gt(0)],
        Doc("β̃, the width: `practical`, `theory` with Theorem 2's constants, or a number of deviations, > 0."),
    ] = "practical"
    termination: Annotated[
        Termination,
        Doc(
            "When a batch ends: `global`, as published; `global_then_local`, longer batches; `ratio`, the longest "
            "ones, at the cost of all variances after each pick; or GP-BUCB's `product`."
        ),
    ] = "global"
    local_covariance: Annotated[
        LocalCovariance,
        Doc("Of the termination `global_then_local`: `embedded`, which is proven, or `paper`, as printed."),
    ] = "embedded"
    warm_start: WarmStartOption = ONE_PULL
    coverage: Annotated[
        float,
        Ge(0),
        Le(1),
        Doc(
            "Share of the picks that go to levels of choices that lack evaluations, in [0, 1]; half of the picks if "
            "that is more, while the best mean reward does not rise or a choice has more than 100; 0: none ever."
        ),
    ] = 0.0

    @property
    def drift_factor(self) -> float:
        """C̃."""
        return self.ratio_threshold

    @property
    def draws_as_proven(self) -> bool:
        """See `SparseStrategy.draws_as_proven`. Batches must end by the drift budget, in its proven form."""
        is_local = self.termination == "global_then_local"
        is_proven = self.local_covariance == "embedded" if is_local else self.termination != "ratio"
        return super().draws_as_proven and self.mode == "batch" and is_proven

    def width_at(self, state: SparseState) -> float:
        """Return the width at `state`, a factor on σ̃ of the 1/λ scale."""
        noise = state.model.regularization
        if not isinstance(self.width, str):
            return self.width * math.sqrt(noise)
        # ξ² = λ = v with a fitted model
        variances = (self.noise_variance, self.regularization) if self.model is None else (noise, noise)
        return self.sparse_width(self.width, self.ratio_threshold, variances, state.information_gain)

    def init(self, arms: AnyArms, rng: np.random.Generator) -> SparseState:
        """Return the state before any pull of `arms` (A, d); draws the warm start."""
        return begin_state(arms, (self.kernel, self.regularization), self.model, self.warm_start, rng)

    def ask(self, state: SparseState, pending: Sequence[int], limit: int) -> Decision:
        """Return the arms of the warm start, then a batch of at most `limit`, given `pending`."""
        refused = refusal(state, limit)
        if refused is not None:
            return refused
        start = next_start(state, pending, limit, never_waits=self.never_waits)
        picks = tuple(Pick(arm) for arm in start)
        if picks and (len(picks) == limit or not self.never_waits or not state.pulls.total):
            return Choose(picks, "warm start")
        if state.pulls.total == 0:
            return Wait("no reward of the warm start has arrived")
        batch = self._batch(state, (*pending, *start), limit - len(start))
        return replace(batch, picks=(*picks, *batch.picks)) if isinstance(batch, Choose) else batch

    def _batch(self, state: SparseState, pending: Sequence[int], limit: int) -> Decision:
        """Return at most `limit` picks (see `Workspace.pick`)."""
        continued = without_new_arms(state, pending, limit, WIDTH if isinstance(self.width, str) else self.width)
        if continued is not None:
            return continued
        count = state.picks_left(pending, limit)
        arms = OpenArms.of(state, pending, self.verify)
        # the workspace of an `ask` that ended with the same pulls is used again, so choosing arms one by one
        # costs no more than choosing a batch; it is taken, so two calls never use one at the same time
        workspace = self._kept_workspaces.take(_workspace_key(state, pending, arms.left > 0))
        if workspace is None:
            picking = Picking.begin(state, self.width_at(state), arms.blocked, is_conditioned=self.model is not None)
            drift = self._drift(picking.posterior)
            workspace = Workspace.begin(state, picking, drift, arms, pending, self.verify, self.coverage)
        workspace.state = state
        workspace.left = arms.left
        workspace.paused = None if isinstance(self.width, str) else competing_trials(state, pending, self.width)
        if workspace.drift.is_spent():
            return Wait("the drift budget is spent on pulls whose rewards have not arrived")
        has_prospect = count > 0 and workspace.is_open and state.knowledge.has_prospect
        prospect = workspace.prospect() if has_prospect else None
        picks: list[Pick] = []
        while len(picks) < count and workspace.is_open:
            picks.append(workspace.pick())
        self._kept_workspaces.put(_workspace_key(state, workspace.pulls, workspace.is_exploring), workspace)
        is_spent = workspace.drift.is_spent()
        decision = Choose(tuple(picks), "drift budget" if is_spent else "limit", prospect)
        if is_spent or len(picks) == count:
            return decision
        # all arms were chosen, so the strategy decides about repeats in the rest of the batch
        chosen = (*pending, *(pick.arm for pick in picks))
        further = self._batch(state, chosen, count - len(picks))
        if not isinstance(further, Choose):
            return decision
        return replace(further, picks=(*picks, *further.picks), prospect=prospect)

    def _drift(self, batch: WorkspacePosterior) -> Drift:
        """Return the termination rule of a batch."""
        if self.never_waits:
            return NoDrift()
        if self.termination == "product":
            return ProductDrift(self.ratio_threshold)
        if self.termination == "global_then_local":
            return LocalDrift(batch, self.ratio_threshold, self.local_covariance)
        rule = RatioDrift if self.termination == "ratio" else GlobalDrift
        return rule(batch, self.ratio_threshold)

    @cached_property
    def _kept_workspaces(self) -> Recent[_Key, Workspace]:
        """A cache with the workspace of the last `ask`. Only one is cached, because it contains
        arrays over all arms. Decisions do not depend on it."""
        return Recent(1)

    def gain(self, variance: Floats) -> float:
        """See `information_gain`."""
        return information_gain(variance, self.width if isinstance(self.width, str) else "practical")

    def tell(self, state: SparseState, observations: Sequence[Observation], rng: np.random.Generator) -> SparseState:
        """See `SparseStrategy.tell`; a failed warm start is extended (`extend_failed_start`)."""
        return extend_failed_start(super().tell(state, observations, rng), rng)

    def begin(self, state: SparseState, existing: Sequence[Observation], rng: np.random.Generator) -> SparseState:
        """Return the state with these existing pulls; for dictionary and G see `begin_sparse`.
        Uncertainty sampling continues after them, until max σ² ≤ 1/P."""
        after = begin_sparse(state, existing, rng, self.model)
        if not isinstance(self.warm_start, UncertaintyStart):
            return after
        known = np.repeat(after.pulls.arms, after.pulls.counts[after.pulls.arms]).tolist()
        return replace(after, initial=(*known, *self.warm_start.draw_after(known, after.model)))

    @property
    def takes_goals(self) -> bool:
        """See `Multiobjective`. Requires the calibrated model."""
        return self.model is not None

    @property
    def takes_prior(self) -> bool:
        """See `Informed`. The prior is added to the scores of the calibrated model."""
        return self.model is not None

    @property
    def grows(self) -> bool:
        """See `Grows`. New arms are drawn with the lengthscales of the calibrated model."""
        return self.model is not None

    def growth(self, state: SparseState) -> Growth | None:
        """See `Grows`."""
        if state.calibration is None or self.model is None or state.layout is None:
            return None
        if not is_growth_due(state.pulls.total, state.grown_at, self.model.results_at_first_fit(state.layout)):
            return None
        pulled = np.setdiff1d(state.pulls.arms, state.outside, assume_unique=True)
        if not len(pulled):
            return None
        best = pulled[np.argsort(-state.posterior.moments(pulled)[0], kind="stable")[:AROUND]]
        around = tuple(best.tolist()) if state.goals.is_single else leaders(state, AROUND)
        return Growth(around=around, lengthscales=state.calibration.fitted.lengthscales)

    def extend(
        self, state: SparseState, features: Floats, retired: Sequence[int], log_prior: Floats | None = None
    ) -> SparseState:
        """See `Grows`. The posterior is that of the same pulls and the same dictionary."""
        return state.extend(features, retired, log_prior)

    def arms_to_retire(self, state: SparseState, pending: Sequence[int], most: int) -> tuple[int, ...]:
        """See `Grows`."""
        live = len(state.model.arms) - len(state.set_aside)
        if live <= most:
            return ()
        needed = np.union1d(np.union1d(state.set_aside, state.pulls.arms), np.array(pending, np.intp))
        never = np.setdiff1d(np.arange(len(state.model.arms)), needed, assume_unique=True)
        bounds = self.posterior(state).ucb if state.goals.is_single else potentials(state, self.width_at(state))
        bounds = bounds if state.prior_bonus is None else bounds + state.prior_bonus
        order = np.argsort(bounds[never], kind="stable")
        return tuple(never[order[: live - most]].tolist())


def _workspace_key(state: SparseState, pulls: Sequence[int], is_exploring: bool) -> _Key:
    """Return all values on which a workspace depends; posteriors by identity."""
    return state.posterior, state.information_gain, state.set_aside.tobytes(), tuple(pulls), is_exploring
