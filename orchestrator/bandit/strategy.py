"""The protocol of every strategy, and its argument and result types.

A strategy is a frozen dataclass of hyper-parameters plus six pure functions. Its state has only
what cannot be derived (pulls, dictionary, information gain, round); posterior, widths and upper
bounds are derived from it and never stored.

What a strategy *draws* (a dictionary) must not be drawn again at resume: a floating-point tie can
flip on another machine. So `tell` is split in two for the event log: `recorded(state)` is the
JSON-able part of a state that was drawn in the last `tell` (or in `init`), and
`restore(state_before, observations, record)` rebuilds the state after it without randomness:
`restore(s, obs, recorded(tell(s, obs, rng)))` equals `tell(s, obs, rng)`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from orchestrator.bandit.arms import Arms
from orchestrator.bandit.curves import TrialCurve
from orchestrator.bandit.pulls import Pulls

Record = Mapping[str, Any]  # plain values, whose meaning only the strategy knows
Mode = Literal["async", "batch"]  # the modes of a strategy whose bounds hold with pending pulls


class Waiting(StrEnum):
    """When a strategy chooses nothing although a worker is free."""

    NEVER = "never"
    DRIFT_BUDGET = "drift_budget"  # while pending pulls have spent the drift budget, as in the papers


ModeOption = Annotated[
    Mode,
    Doc("`async`: never wait for the slowest evaluations of a batch; `batch`: the published algorithm, pull for pull."),
]
WaitOption = Annotated[
    Waiting, Doc("`drift_budget`: choose nothing while the drift is spent; `never`: every free worker gets a pick.")
]


@dataclass(frozen=True, slots=True)
class Observation:
    """A pull that has ended.

    Attributes:
        arm: the arm pulled.
        reward: larger is better; None when the arm could not be evaluated: it is then set aside.
        further: rewards of further objectives, then margins of constraints, where there are any
            (`goals`).
        is_existing: whether it comes from existing data, which may contain copies, and not from
            this search.
        is_stopped: whether it was stopped early; its reward is then that of an unfinished
            evaluation.
    """

    arm: int
    reward: float | None
    further: tuple[float, ...] = ()
    is_existing: bool = False
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class Pick:
    """A chosen arm with the numbers that explain the choice, as they were before it; NaN where a
    strategy has none.

    Attributes:
        arm: the arm.
        mean: its posterior mean.
        width: the confidence width, a factor on the standard deviation.
        variance: its posterior variance on the 1/λ scale.
        trial: the stopped trial that is to be continued; None: a new one.
        reason: the reason of the pick: `"coverage"` for an arm of a level that lacks evaluations,
            `"verification"` for one of the best arms, which is repeated because values are noisy,
            `"exhausted"` for a repeated arm after all arms were chosen; empty for an arm that the
            strategy prefers to all others.
    """

    arm: int
    mean: float = float("nan")
    width: float = float("nan")
    variance: float = float("nan")
    trial: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Prospect:
    """The promise of further evaluations, in units of rewards.

    Attributes:
        gain: how far the largest upper confidence bound is above the best mean reward, where
            rewards are noisy above the best posterior mean; at least 0.
        noise: the standard deviation of a reward's noise.
    """

    gain: float
    noise: float


@dataclass(frozen=True, slots=True)
class Choose:
    """Pull these, in this order. `reason` says why the batch ended (`"drift budget"`, `"limit"`,
    `"warm start"`…).

    `prospect`: the promise of further evaluations before these picks; None if it is unknown.
    """

    picks: tuple[Pick, ...]
    reason: str
    prospect: Prospect | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing may be pulled before further rewards are known, or ever; `reason` explains it."""

    reason: str


Decision = Choose | Wait


@dataclass(frozen=True, slots=True)
class Posterior:
    """The belief over all arms, for display. All arrays are read-only.

    Attributes:
        mean: (A,).
        variance: (A,), in units of `unit`: a deviation is √(unit · variance).
        ucb: (A,), the upper confidence bounds.
        unit: λ of the model.
    """

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    ucb: NDArray[np.float64]
    unit: float = 1.0

    @property
    def deviation(self) -> NDArray[np.float64]:
        """Posterior standard deviation of every arm (A,), in `mean`'s unit: √(unit · variance)."""
        deviation: NDArray[np.float64] = np.sqrt(self.unit * self.variance)
        return deviation


class StrategyState(Protocol):
    """The common properties of all states."""

    @property
    def round(self) -> int:
        """The number of calls of `tell` that led to this state."""

    @property
    def pulls(self) -> Pulls:
        """The pulls with a reward."""

    @property
    def dictionary(self) -> NDArray[np.intp]:
        """Indices (m,) of the inducing points; empty where a strategy has none."""


S = TypeVar("S", bound=StrategyState)
S_contra = TypeVar("S_contra", bound=StrategyState, contravariant=True)


class Strategy(Protocol[S]):
    """One algorithm. All functions are pure; `ask` may be called twice and changes nothing."""

    def init(self, arms: Arms, rng: np.random.Generator) -> S:
        """Return the state before any pull of `arms`, A of them; draw the warm start."""

    def ask(self, state: S, pending: Sequence[int], limit: int) -> Decision:
        """Choose the next pulls.

        Args:
            state: the strategy's state, which is not changed.
            pending: the multiset of arms pulled whose rewards are not in `state` yet, in the order
                they were chosen.
            limit: the largest number of picks, >= 1. Fewer picks mean that there are no more before
                the next `tell`.
        """

    def tell(self, state: S, observations: Sequence[Observation], rng: np.random.Generator) -> S:
        """Return the state after newly finished pulls.

        Args:
            state: the state before them; it is not changed.
            observations: the pulls, each once, with their rewards.
            rng: the source of the strategy's draws (its dictionary, …); the same generator gives
                the same state.
        """

    def recorded(self, state: S) -> Record:
        """Return what was drawn or accumulated and is not computable from the pulls, for JSON."""

    def restore(self, state: S, observations: Sequence[Observation], record: Record) -> S:
        """Return what `tell` returned, without randomness: what was drawn is read from `record`."""

    def posterior(self, state: S) -> Posterior:
        """Return the belief over all arms at `state`, with no pull pending."""


AnyStrategy = Strategy[Any]  # a strategy whose type of state is known to its own functions only


@runtime_checkable
class BeginsWithExisting(Protocol[S]):
    """A strategy that must initialise from existing data differently from an ordinary `tell`."""

    def begin(self, state: S, existing: Sequence[Observation], rng: np.random.Generator) -> S:
        """Return the state after `init` and these pulls made elsewhere, all with a reward. It counts
        as a `tell`: `restore` rebuilds it too."""


@runtime_checkable
class Shardable(Protocol):
    """A strategy whose `init` takes arms of several arrays (`sparse.all_arms.PlacedArms`)."""

    @property
    def is_shardable(self) -> Literal[True]:
        """True; a strategy that cannot has no such attribute."""


@runtime_checkable
class Sequential(Protocol):
    """A strategy that chooses nothing while a reward is missing: one worker at a time."""

    @property
    def is_sequential(self) -> Literal[True]:
        """True; a strategy that chooses with pulls pending has no such attribute."""


@runtime_checkable
class Waits(Protocol):
    """A strategy that has a rule on when it makes a worker wait for rewards."""

    @property
    def never_waits(self) -> bool:
        """Whether it chooses for any pending pulls, and so has no batch of its own."""


@runtime_checkable
class RefreshesByGrowth(Protocol):
    """A strategy that learns results together, once there are enough of them. In a campaign one
    that never waits needs this, and a field `mode` that is `async`."""

    @property
    def refresh_growth(self) -> float:
        """The share by which results have grown when a refresh is due; 0: not by growth."""


@runtime_checkable
class Multiobjective(Protocol):
    """A strategy that can be given several objectives and constraints (`Arms.goals`)."""

    @property
    def takes_goals(self) -> bool:
        """Whether it handles several objectives and constraints, with the options it has."""


@runtime_checkable
class Informed(Protocol):
    """A strategy that uses how good arms are expected to be (`Arms.log_prior`)."""

    @property
    def takes_prior(self) -> bool:
        """Whether it uses a prior over arms, with the options it has."""


@runtime_checkable
class Recommends(Protocol[S_contra]):
    """A strategy that may recommend another arm than that of the largest mean reward."""

    def recommend(self, state: S_contra) -> int | None:
        """Return the pulled arm to recommend; None: that of the largest mean reward."""


@runtime_checkable
class EstimatesRewards(Protocol[S_contra]):
    """A strategy that estimates the reward of a pulled arm."""

    def estimate(self, state: S_contra, arm: int) -> tuple[float, float] | None:
        """Return the expected reward of `arm` without noise, and its standard deviation; None where
        nothing is known."""


@dataclass(frozen=True, slots=True)
class TrialForecast:
    """What a strategy expects of the final value of a trial that has reported.

    Attributes:
        trial: the trial's number.
        mean: the expected final reward.
        low: the reward two standard deviations below it.
        high: the reward two standard deviations above it.
        score: the expected final score, in the model's units.
        deviation: its standard deviation, noise included, in the model's units.
    """

    trial: int
    mean: float
    low: float
    high: float
    score: float
    deviation: float


@runtime_checkable
class LearnsCurves(Protocol[S]):
    """A strategy whose model learns the values that trials report at steps before their end."""

    def with_curves(
        self,
        state: S,
        curves: Sequence[TrialCurve],
        paused: Sequence[int],
        last_step: int | None = None,
        *,
        compete: bool = True,
    ) -> S:
        """Return the state that knows these curves, in place of those of the same trials; the next
        `tell` learns them.

        Args:
            state: the state before.
            curves: of trials that reported since the last call, running, stopped and finished ones.
            paused: all trials that were stopped and may be continued; their arms are not begun
                again.
            last_step: the step at which a training ends, if it is given.
            compete: whether `ask` may choose paused trials; else the caller continues them.
        """

    def predict_trials(self, state: S, trials: Sequence[int]) -> tuple[TrialForecast, ...]:
        """Return the forecasts of those of these trials that reported."""


def never_waits(strategy: object) -> bool:
    """Return whether the strategy chooses for any pending pulls, and so has no batch of its own."""
    return isinstance(strategy, Waits) and strategy.never_waits


def refresh_growth(strategy: object) -> float:
    """Return the share by which results have grown when a strategy that never waits is to learn
    them; 0: it learns at once."""
    return strategy.refresh_growth if never_waits(strategy) and isinstance(strategy, RefreshesByGrowth) else 0.0


def is_grown(share: float, waiting: int, known: int, running: int) -> bool:
    """Return whether `waiting` results are `share` of those `known` and of the pulls `running`, and
    a refit is due: with many workers one more result changes little."""
    return waiting >= share * (known + running)


def begin(strategy: Strategy[S], state: S, existing: Sequence[Observation], rng: np.random.Generator) -> S:
    """Return the state of `init` with `existing` pulls, at least one, all with rewards."""
    if isinstance(strategy, BeginsWithExisting):
        begun: S = strategy.begin(state, existing, rng)
        return begun
    return strategy.tell(state, existing, rng)
