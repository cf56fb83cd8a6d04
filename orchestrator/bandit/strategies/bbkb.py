"""BBKB: batched budgeted kernel bandits (Calandriello, Carratino, Lazaric, Valko, Rosasco 2020,
Algorithm 1).

A batch is chosen on a frozen posterior mean while the variance shrinks with every pick, until the
termination rule says that the posterior could have drifted by more than C̃. The rewards then update
the width with the old variances, a new dictionary is drawn, and the posterior is fitted again from
counts.

Pulls without rewards (`pending`) are added to the variance and to the drift before anything is
picked. Lemma 1 holds for any dictionary, pulls and pending pulls, so the upper bounds stay valid
for any order of the rewards, as long as the time that an evaluation takes does not depend on its
noise. The asynchronous mode is based on this.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le
from typing_extensions import Doc

from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.checks import refusal, require
from orchestrator.bandit.confidence import Confidence, Schedule
from orchestrator.bandit.growing import AROUND, Growth, is_growth_due
from orchestrator.bandit.kernels import KernelOption
from orchestrator.bandit.model import defaults
from orchestrator.bandit.model.model import ModelOption
from orchestrator.bandit.options import (
    DriftThreshold,
    FailureProbability,
    NoiseVariance,
    NormBound,
    Oversampling,
    RefreshGrowth,
    RefreshOverhead,
    Regularization,
    VerifiedShare,
    check_options,
)
from orchestrator.bandit.recent import Recent
from orchestrator.bandit.sparse.argmax_queue import ArgmaxQueue
from orchestrator.bandit.sparse.blocks import LocalCovariance
from orchestrator.bandit.sparse.conditioning import ConditionedPosterior
from orchestrator.bandit.sparse.dictionary import DictionaryLimit, ResamplingOption
from orchestrator.bandit.sparse.forecasts import PausedCandidate, PausedTrials
from orchestrator.bandit.sparse.goal_queue import GoalQueue, leaders, potentials
from orchestrator.bandit.sparse.picking import Picking
from orchestrator.bandit.sparse.posterior import SparsePosterior
from orchestrator.bandit.sparse.state import SparseState, no_arm_left
from orchestrator.bandit.sparse.strategy import SparseStrategy
from orchestrator.bandit.sparse.termination import (
    AnyBatch,
    Drift,
    GlobalDrift,
    LocalDrift,
    NoDrift,
    ProductDrift,
    Termination,
    Verdict,
)
from orchestrator.bandit.sparse.verification import (
    VERIFICATION,
    Estimates,
    OpenArms,
    is_verification_due,
    may_verify,
)
from orchestrator.bandit.start.beginning import AnyArms, begin_state
from orchestrator.bandit.start.coverage import LevelPicker, is_coverage_due
from orchestrator.bandit.start.warm_start import (
    FIRST_BATCH,
    WarmStartOption,
    begin_sparse,
    extend_failed_start,
    next_start,
)
from orchestrator.bandit.strategy import (
    Choose,
    Decision,
    ModeOption,
    Observation,
    Pick,
    Prospect,
    Wait,
    Waiting,
    WaitOption,
)


@dataclass(frozen=True)
class BBKB(SparseStrategy[SparseState]):
    """Hyper-parameters of BBKB. Raises ValueError, naming the field, when one is out of range.

    The defaults suit features in [0, 1] and rewards that vary by about 1, a few hundred evaluations
    and ten workers. With λ = ξ² = 1e-4, as in the papers' experiments, variances on the 1/λ scale
    are so large that batches of one would be chosen for hundreds of rounds.

    A campaign or `Optimizer` that names neither `model` nor `kernel` nor λ gets the calibrated
    model, `width` 2, `wait: never` and first pulls that cover the space (`strategies.presets`).

    `mode`, `refresh_overhead` and `refresh_growth` are read where a campaign is run; `ask` and
    `tell` do not depend on them.
    """

    kernel: KernelOption = defaults.BBKB
    regularization: Regularization = 0.3
    noise_variance: NoiseVariance = 1e-3
    norm_bound: NormBound = 0.2
    delta: FailureProbability = 0.01
    oversampling: Oversampling = 2.0
    ratio_threshold: DriftThreshold = 4.0
    width: Annotated[
        Schedule | Annotated[float, Gt(0)],
        Doc("β̃, the width: `practical`, `theory` with Theorem 2's constants, or a number of deviations, > 0."),
    ] = "practical"
    termination: Annotated[
        Termination,
        Doc("When a batch ends: `global`, as published; `global_then_local`, longer batches; or GP-BUCB's `product`."),
    ] = "global_then_local"
    local_covariance: Annotated[
        LocalCovariance,
        Doc("Of the termination `global_then_local`: `embedded`, which is proven, or `paper`, as printed."),
    ] = "embedded"
    warm_start: WarmStartOption = FIRST_BATCH
    resampling: ResamplingOption = "arms"
    dictionary_limit: DictionaryLimit = None
    mode: ModeOption = "async"
    refresh_overhead: RefreshOverhead = 0.05
    refresh_growth: RefreshGrowth = 0.0
    wait: WaitOption = Waiting.DRIFT_BUDGET
    model: ModelOption = None
    coverage: Annotated[
        float,
        Ge(0),
        Le(1),
        Doc(
            "Share of the picks that go to levels of choices that lack evaluations, in [0, 1]; half of the picks if "
            "that is more, while the best mean reward does not rise; 0: none ever."
        ),
    ] = 0.0
    verify: VerifiedShare = 0.0
    is_shardable: ClassVar[Literal[True]] = True  # `init` accepts `PlacedArms`

    def __post_init__(self) -> None:
        check_options(self)
        require(self, "wait", "drift_budget with mode: batch", self.mode == "async" or not self.never_waits)

    @property
    def never_waits(self) -> bool:
        """See `Waits`."""
        return self.wait is Waiting.NEVER

    @cached_property
    def confidence(self) -> Confidence:
        """The schedule of the width; ξ² = λ = v with a fitted model, see `width_at`."""
        return self.confidence_of(self.width if isinstance(self.width, str) else "practical", self.ratio_threshold)

    def width_at(self, state: SparseState) -> float:
        """Return the width at `state`: a factor on σ̃ of the 1/λ scale."""
        noise = state.model.regularization
        if not isinstance(self.width, str):
            return self.width * math.sqrt(noise)
        if self.model is None:
            return self.confidence.width(state.information_gain)
        return replace(self.confidence, noise_variance=noise, regularization=noise).width(state.information_gain)

    def init(self, arms: AnyArms, rng: np.random.Generator) -> SparseState:
        """State before any pull of `arms` (A, d); draws the warm start's arms. Raises ValueError on
        bad arms.

        `arms` is a value of `Arms`, an array, or stands for one (`PlacedArms`).
        """
        return begin_state(arms, (self.kernel, self.regularization), self.model, self.warm_start, rng)

    def ask(self, state: SparseState, pending: Sequence[int], limit: int) -> Decision:
        """Return the warm start's arms; then a batch of at most `limit`, given `pending`."""
        refused = refusal(state, limit) or no_arm_left(state, pending)
        if refused is not None:
            return refused
        start = next_start(state, pending, limit, never_waits=self.never_waits)
        picks = tuple(Pick(arm) for arm in start)
        if picks and (len(picks) == limit or not self.never_waits or not state.pulls.total):
            return Choose(picks, "warm start")
        if state.pulls.total == 0:
            return Wait("no reward of the warm start is in yet")
        batch = self._choose(state, (*pending, *start), limit - len(start))
        return replace(batch, picks=(*picks, *batch.picks)) if isinstance(batch, Choose) else batch

    def _choose(self, state: SparseState, pending: Sequence[int], limit: int) -> Decision:
        open_arms = OpenArms.of(state, pending, self.verify)
        left = open_arms.left
        workspace = self._workspace(state, pending, open_arms)
        count = state.picks_left(pending, limit)
        verdict = workspace.drift.decide()
        if verdict is Verdict.SPENT:
            return Wait("the drift budget is spent on pulls whose rewards are not in yet")
        picks: list[Pick] = []
        prospect: Prospect | None = None
        paused = self._paused_trials(state, pending)
        while len(picks) < count and verdict is Verdict.OPEN:
            # x = argmax u; the arm that crosses the threshold belongs to the batch
            other_arm, reason = self._other_arm(state, workspace)
            top = workspace.queue.top() if other_arm is None else other_arm
            continued = None if paused is None else workspace.better_paused(paused, top, state.model.regularization)
            if prospect is None and continued is None and state.has_prospect:
                prospect = self._prospect(state, workspace, top if other_arm is None else workspace.queue.top())
            pick = workspace.append(top if continued is None else continued.arm)
            if continued is not None:
                pick = replace(pick, trial=continued.trial)
            elif reason:
                pick = replace(pick, reason=reason)
            picks.append(pick)
            if not state.repeats or workspace.explores_places:
                workspace.queue.block(picks[-1].arm)
            verdict = workspace.drift.decide()
            left -= reason != VERIFICATION
            if workspace.explores_places and not left:
                break
        self._kept_workspaces.put(self._key(state, workspace.pulls, workspace.explores_places), workspace)
        decision = Choose(tuple(picks), "drift budget" if verdict is Verdict.SPENT else "limit", prospect)
        if verdict is not Verdict.OPEN or len(picks) == count:
            return decision
        # the others by the model alone
        further = self._choose(state, (*pending, *(pick.arm for pick in picks)), count - len(picks))
        if not isinstance(further, Choose):
            return decision
        return replace(further, picks=(*picks, *further.picks), prospect=prospect)

    def _other_arm(self, state: SparseState, workspace: "_Workspace") -> tuple[int | None, str]:
        """Return the arm that the next pick takes in place of that of the largest bound, and the
        reason: it is one of the best, which are repeated, or of a level that lacks evaluations.
        None where it takes that of the largest bound."""
        number = len(workspace.pulls)
        if workspace.verifies and is_verification_due(state, workspace.pulls, self.verify):
            if workspace.estimates is None:
                workspace.estimates = Estimates.of(state)
            if (contender := workspace.estimates.contender(workspace.pulls, state.blocked_arms())) is not None:
                return contender, VERIFICATION
        if state.goals.is_single and is_coverage_due(state, number, self.coverage):
            if workspace.level_picker is None:
                workspace.level_picker = LevelPicker(state, self.width_at(state))
            if (lacking := workspace.level_picker.lacking_arm(workspace.pulls)) is not None:
                return lacking, "coverage"
        return None, workspace.reason

    def _prospect(self, state: SparseState, workspace: "_Workspace", top: int) -> Prospect:
        """Return what further evaluations promise, `top` being the arm of the queue's largest
        bound; arms that only verification repeats count, as they do where the model decides. The
        reason of a pick changes nothing: a level that lacks evaluations promises no gain by itself."""
        picking, bonus = workspace.picking, state.prior_bonus
        arms, bounds = np.array([top], np.intp), np.array([picking.upper_bound(top)])
        if workspace.verifies:
            chosen = np.union1d(state.pulls.arms, np.array(workspace.pulls, np.intp))
            chosen = np.setdiff1d(chosen, state.blocked_arms(), assume_unique=True)
            arms, bounds = np.append(arms, chosen), np.append(bounds, picking.upper_bounds(chosen))
        if bonus is not None:
            bounds += bonus[arms] - bonus.min()  # no other bound is larger by more
        return state.prospect(float(bounds.max()))

    def _paused_trials(self, state: SparseState, pending: Sequence[int]) -> PausedTrials | None:
        """Return stopped trials that compete with new ones; None where there are none."""
        if not len(state.paused) or not state.paused_compete or isinstance(self.width, str):
            return None
        return PausedTrials(state, pending, self.width)

    def _workspace(self, state: SparseState, pending: Sequence[int], arms: OpenArms) -> "_Workspace":
        """Return the workspace of a batch at `state` with these pulls pending.

        An earlier `ask` that ended with just these pulls is continued, so that choosing one by one
        costs no more than choosing a batch. Its workspace is taken out of the memory: no two calls
        ever use one at the same time.
        """
        explores_places = arms.left > 0
        earlier = self._kept_workspaces.take(self._key(state, pending, explores_places))
        if earlier is not None:
            return earlier
        blocked = arms.blocked
        picking = Picking.begin(state, self.width_at(state), blocked, is_conditioned=self.model is not None)
        workspace = _Workspace(
            picking,
            self._drift(picking.posterior),
            explores_places=explores_places,
            verifies=explores_places and may_verify(state),
            reason=arms.reason,
        )
        workspace.begin(pending)
        if workspace.verifies:  # the queue excludes what is looked at before; see `_prospect`
            picking.look_at(state.pulls.arms)
        if state.goals.is_single:
            workspace.queue = picking.queue(blocked)
        else:
            workspace.queue = GoalQueue(state, picking, blocked, state.pulls.total + len(pending))
        return workspace

    @cached_property
    def _kept_workspaces(self) -> "Recent[_Key, _Workspace]":
        """The end of the last `ask`; only one: it keeps arrays of all arms. Decisions are equal."""
        return Recent(1)

    @staticmethod
    def _key(state: SparseState, pulls: Sequence[int], explores_places: bool) -> "_Key":
        """Return all that a workspace depends on, beside the strategy; posteriors by identity."""
        return state.posterior, state.information_gain, state.set_aside.tobytes(), tuple(pulls), explores_places

    def _drift(self, batch: AnyBatch) -> Drift:
        if self.never_waits:
            return NoDrift()
        if self.termination == "product":
            return ProductDrift(self.ratio_threshold)
        if self.termination == "global_then_local":
            return LocalDrift(batch, self.ratio_threshold, self.local_covariance)
        return GlobalDrift(batch, self.ratio_threshold)

    def gain(self, variance: Floats) -> float:
        """See `Confidence.gain`."""
        return self.confidence.gain(variance)

    def tell(self, state: SparseState, observations: Sequence[Observation], rng: np.random.Generator) -> SparseState:
        """See `SparseStrategy.tell`; a failed warm start continues (`extend_failed_start`)."""
        return extend_failed_start(super().tell(state, observations, rng), rng)

    def begin(self, state: SparseState, existing: Sequence[Observation], rng: np.random.Generator) -> SparseState:
        """State with these pulls made elsewhere; see `begin_sparse` for dictionary and G."""
        return begin_sparse(state, existing, rng, self.model)

    @property
    def takes_goals(self) -> bool:
        """See `Multiobjective`: with the calibrated model."""
        return self.model is not None

    @property
    def takes_prior(self) -> bool:
        """See `Informed`: with the calibrated model, on whose scores the prior counts."""
        return self.model is not None

    @property
    def grows(self) -> bool:
        """See `Grows`: with the calibrated model, whose lengthscales new arms follow."""
        return self.model is not None

    def growth(self, state: SparseState) -> Growth | None:
        """See `Grows`."""
        if state.calibration is None or self.model is None or state.layout is None:
            return None
        if not is_growth_due(state.pulls.total, state.grown_at, self.model.results_at_first_fit(state.layout)):
            return None
        pulled = state.pulls.arms
        best = pulled[np.argsort(-state.posterior.moments(pulled)[0], kind="stable")[:AROUND]]
        around = tuple(best.tolist()) if state.goals.is_single else leaders(state, AROUND)
        return Growth(around=around, lengthscales=state.calibration.fitted.lengthscales)

    def extend(
        self, state: SparseState, features: Floats, retired: Sequence[int], log_prior: Floats | None = None
    ) -> SparseState:
        """See `Grows`. The posterior is that of the same pulls and dictionary."""
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


_Key = tuple[SparsePosterior, float, bytes, tuple[int, ...], bool]


@dataclass
class _Workspace:
    """Scratch of one or more `ask`s at a state: `pulls` were pending or picked, in this order."""

    picking: Picking
    drift: Drift
    pulls: list[int] = field(default_factory=list)
    queue: ArgmaxQueue = field(init=False)
    level_picker: LevelPicker | None = None  # from the first pick for the sake of coverage on
    explores_places: bool = False  # whether only verification repeats arms
    verifies: bool = False  # whether it does
    reason: str = ""  # of the picks of the largest bound
    estimates: Estimates | None = None  # from the first pick for the sake of verification on

    def begin(self, pending: Sequence[int]) -> None:
        """Add pulls that are pending."""
        posterior = self.picking.posterior
        if isinstance(posterior, ConditionedPosterior) and isinstance(self.drift, NoDrift):
            posterior.extend(pending)
            self.pulls.extend(pending)
        else:
            for arm in pending:
                self.append(arm)

    def better_paused(self, paused: PausedTrials, arm: int, regularization: float) -> PausedCandidate | None:
        """Return the stopped trial whose bound exceeds that of a new trial of `arm`, if any."""
        pick = self.picking.pick(arm)
        return paused.take(pick.mean, pick.variance * regularization)

    def append(self, arm: int) -> Pick:
        """Add a pull of `arm`; its pick, with the variance just before."""
        pick = self.picking.pick(arm)
        self.drift.append(arm, pick.variance)
        self.picking.posterior.append(arm)
        self.pulls.append(arm)
        return pick
