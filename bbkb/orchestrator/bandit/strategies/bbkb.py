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
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arrays import Floats, Recent
from bbkb.orchestrator.bandit.checks import refusal
from bbkb.orchestrator.bandit.growing import AROUND, Growth, is_growth_due
from bbkb.orchestrator.bandit.scheduling import DriftOptions, Schedule, information_gain
from bbkb.orchestrator.bandit.sparse.all_arms import LocalCovariance
from bbkb.orchestrator.bandit.sparse.forecasts import competing_trials, without_new_arms
from bbkb.orchestrator.bandit.sparse.goal_queue import leaders, potentials
from bbkb.orchestrator.bandit.sparse.picking import Picking
from bbkb.orchestrator.bandit.sparse.posterior import SparsePosterior
from bbkb.orchestrator.bandit.sparse.state import SparseState
from bbkb.orchestrator.bandit.sparse.strategy import SparseStrategy
from bbkb.orchestrator.bandit.sparse.termination import (
    AnyBatch,
    Drift,
    GlobalDrift,
    LocalDrift,
    NoDrift,
    ProductDrift,
    RatioDrift,
    Termination,
)
from bbkb.orchestrator.bandit.sparse.verification import WIDTH, OpenArms
from bbkb.orchestrator.bandit.start.beginning import AnyArms, begin_state
from bbkb.orchestrator.bandit.start.warm_start import (
    ONE_PULL,
    UncertaintyStart,
    WarmStartOption,
    begin_sparse,
    extend_failed_start,
    next_start,
)
from bbkb.orchestrator.bandit.strategies.choosing import Shares, Workspace
from bbkb.orchestrator.bandit.strategy import Choose, Decision, Observation, Pick, Wait

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
            "that is more, while the best mean reward does not rise; 0: none ever."
        ),
    ] = 0.0

    @property
    def drift_factor(self) -> float:
        """C̃."""
        return self.ratio_threshold

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
        """Return at most `limit` picks, by the first picker with an arm (`choosing.PICKERS`)."""
        continued = without_new_arms(state, pending, limit, WIDTH if isinstance(self.width, str) else self.width)
        if continued is not None:
            return continued
        count = state.picks_left(pending, limit)
        workspace = self._workspace(state, pending)
        if workspace.is_spent:
            return Wait("the drift budget is spent on pulls whose rewards have not arrived")
        has_prospect = count > 0 and workspace.is_open and state.knowledge.has_prospect
        prospect = workspace.prospect() if has_prospect else None
        picks: list[Pick] = []
        while len(picks) < count and workspace.is_open:
            picks.append(workspace.pick())
        self._kept_workspaces.put(_workspace_key(state, workspace.pulls, workspace.is_exploring), workspace)
        is_spent = workspace.is_spent
        decision = Choose(tuple(picks), "drift budget" if is_spent else "limit", prospect)
        if is_spent or len(picks) == count:
            return decision
        # all arms were chosen, so the strategy decides about repeats in the rest of the batch
        chosen = (*pending, *(pick.arm for pick in picks))
        further = self._batch(state, chosen, count - len(picks))
        if not isinstance(further, Choose):
            return decision
        return replace(further, picks=(*picks, *further.picks), prospect=prospect)

    def _workspace(self, state: SparseState, pending: Sequence[int]) -> Workspace:
        """Return the workspace of a batch at `state` with these pending pulls.

        The workspace of an `ask` that ended with the same pulls is reused, so choosing arms one by
        one costs no more than choosing a batch. It is removed from the cache, so two calls never
        use one workspace at the same time.
        """
        arms = OpenArms.of(state, pending, self.verify)
        workspace = self._kept_workspaces.take(_workspace_key(state, pending, arms.left > 0))
        if workspace is None:
            width = self.width_at(state)
            picking = Picking.begin(state, width, arms.blocked, is_conditioned=self.model is not None)
            drift = _drift(self, picking.posterior)
            workspace = Workspace.begin(state, picking, drift, arms, pending, Shares(self.verify, self.coverage))
        deviations = self.width
        paused = None if isinstance(deviations, str) else competing_trials(state, pending, deviations)
        workspace.begin_batch(state, arms.left, paused)
        return workspace

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
        if not is_growth_due(
            state.pulls.total, state.milestones.grown_at, self.model.results_at_first_fit(state.layout)
        ):
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


def _drift(strategy: BBKB, batch: AnyBatch) -> Drift:
    """Return the termination rule of a batch that the options of `strategy` specify."""
    if strategy.never_waits:
        return NoDrift()
    if strategy.termination == "product":
        return ProductDrift(strategy.ratio_threshold)
    if strategy.termination == "global_then_local":
        return LocalDrift(batch, strategy.ratio_threshold, strategy.local_covariance)
    if strategy.termination == "ratio":
        return RatioDrift(batch, strategy.ratio_threshold)
    return GlobalDrift(batch, strategy.ratio_threshold)
