"""The protocol of every strategy, and its argument and result types.

A strategy is a frozen dataclass of hyperparameters with six pure functions. Its state contains only
values that cannot be derived (pulls, dictionary, information gain, round). Posterior, widths and
upper bounds are derived from the state and never stored.

Values that a strategy *draws* (a dictionary) must not be drawn again by a resume, because the
outcome of a floating-point tie may differ on another machine. Therefore `tell` has two counterparts
for the event log. `recorded(state)` is the part of a state that was drawn in the last `tell` (or in
`init`), as JSON values. `restore(state_before, observations, record)` rebuilds the state without
randomness: `restore(s, obs, recorded(tell(s, obs, rng)))` equals `tell(s, obs, rng)`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.results import CurveUpdate
from bbkb.orchestrator.bandit.results import Observation as Observation

Record = Mapping[str, Any]  # plain values that only the strategy interprets
# the modes of a strategy whose bounds are valid with pending pulls
Mode = Literal["async", "batch"]


class Waiting(StrEnum):
    """The condition under which a strategy chooses nothing although a worker is idle."""

    NEVER = "never"
    DRIFT_BUDGET = "drift_budget"  # if pending pulls have spent the drift budget, as in the papers


ModeOption = Annotated[
    Mode,
    Doc("`async`: never wait for the slowest evaluations of a batch; `batch`: the published algorithm, pull for pull."),
]
WaitOption = Annotated[
    Waiting, Doc("`drift_budget`: choose nothing while the drift is spent; `never`: every free worker gets a pick.")
]


@dataclass(frozen=True, slots=True)
class Pick:
    """A chosen arm, with the numbers that explain the choice, as they were before it; NaN if the
    strategy does not have them.

    Attributes:
        arm: the arm.
        mean: its posterior mean.
        width: the confidence width, a factor on the standard deviation.
        variance: its posterior variance on the 1/λ scale.
        trial: the stopped trial to continue; None for a new trial.
        reason: the reason of the pick: `"spread"` for an arm that covers the space, because no
            result shows where better arms are, `"coverage"` for an arm of a level that lacks
            evaluations, `"verification"` for one of the best arms, which is repeated because values
            are noisy, `"exploitation"` for the best arm, because a new one is hardly expected to be
            better, `"exhausted"` for a repeated arm after all arms were chosen; empty if the
            strategy prefers the arm to all others.
        starts_from: the stopped trial from whose checkpoint a new trial starts; None if it starts
            at its first step.
    """

    arm: int
    mean: float = float("nan")
    width: float = float("nan")
    variance: float = float("nan")
    trial: int | None = None
    reason: str = ""
    starts_from: int | None = None


@dataclass(frozen=True, slots=True)
class Prospect:
    """The expected benefit of further evaluations, in units of rewards.

    Attributes:
        gain: the difference between the largest upper confidence bound and the best mean reward
            (the best posterior mean if rewards are noisy); at least 0.
        noise: the standard deviation of a reward's noise.
    """

    gain: float
    noise: float


@dataclass(frozen=True, slots=True)
class Choose:
    """Pull these arms, in this order. `reason`: why the batch ended (`"drift budget"`, `"limit"`,
    `"warm start"`…).

    `prospect`: the expected benefit of further evaluations before these picks; None if unknown.
    `gives_up`: the stopped trials that will never be continued.
    """

    picks: tuple[Pick, ...]
    reason: str
    prospect: Prospect | None = None
    gives_up: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """No arm may be pulled until further rewards are known, or ever. `reason` explains why."""

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
        """The posterior deviation of every arm (A,), in `mean`'s unit: √(unit · variance)."""
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
        """Indices (m,) of the inducing points; empty if the strategy has none."""


S = TypeVar("S", bound=StrategyState)
S_contra = TypeVar("S_contra", bound=StrategyState, contravariant=True)


class Strategy(Protocol[S]):
    """An algorithm. All functions are pure. `ask` can be called repeatedly and changes nothing."""

    def init(self, arms: Arms, rng: np.random.Generator) -> S:
        """Return the state before any pull of the A `arms`, with a drawn warm start. Raises
        ValueError for bad arms."""

    def ask(self, state: S, pending: Sequence[int], limit: int) -> Decision:
        """Choose the next pulls.

        Args:
            state: the strategy's state, which is not changed.
            pending: the multiset of pulled arms whose rewards are not yet in `state`, in the order
                of choice.
            limit: the largest number of picks, >= 1. Fewer picks mean that no further arm may be
                chosen before the next `tell`.
        """

    def tell(self, state: S, observations: Sequence[Observation], rng: np.random.Generator) -> S:
        """Return the state after newly finished pulls.

        Args:
            state: the state before them; it is not changed.
            observations: the pulls, each once, with their rewards.
            rng: the source of the strategy's draws (its dictionary, …); the same generator results
                in the same state.
        """

    def recorded(self, state: S) -> Record:
        """Return drawn or accumulated values, which the pulls do not determine, as JSON values."""

    def restore(self, state: S, observations: Sequence[Observation], record: Record) -> S:
        """Return the result of `tell` without randomness: drawn values are read from `record`."""

    def posterior(self, state: S) -> Posterior:
        """Return the belief over all arms at `state`, without pending pulls."""


AnyStrategy = Strategy[Any]  # a strategy whose state type is only known to its own functions


@runtime_checkable
class BeginsWithExisting(Protocol[S]):
    """A strategy that is initialized from existing data, instead of learning them with `tell`."""

    def begin(self, state: S, existing: Sequence[Observation], rng: np.random.Generator) -> S:
        """Return the state after `init` and these existing pulls, all of which have a reward. The
        call counts as a `tell`, which `restore` can rebuild."""


@runtime_checkable
class Sequential(Protocol):
    """A strategy that chooses nothing while a reward is missing, so it only uses one worker."""

    @property
    def is_sequential(self) -> Literal[True]:
        """True. A strategy that chooses while pulls are pending does not have this attribute."""


@runtime_checkable
class Waits(Protocol):
    """A strategy with a rule for when a worker waits for rewards. One that never waits has the field
    `mode`, which is `async`, and may have `refresh_growth`: the relative growth of the number of results
    at which a refresh is due."""

    @property
    def never_waits(self) -> bool:
        """Whether it chooses with any number of pending pulls, so that batches have no limit."""


@runtime_checkable
class Multiobjective(Protocol):
    """A strategy that supports several objectives and constraints (`Arms.goals`)."""

    @property
    def takes_goals(self) -> bool:
        """Whether the strategy, with its options, supports several objectives and constraints."""


@runtime_checkable
class Informed(Protocol):
    """A strategy that uses a prior over the quality of arms (`Arms.log_prior`)."""

    @property
    def takes_prior(self) -> bool:
        """Whether the strategy, with its options, uses a prior over arms."""


@runtime_checkable
class Recommends(Protocol[S_contra]):
    """A strategy that may recommend a different arm than the one with the largest mean reward."""

    def recommend(self, state: S_contra) -> int | None:
        """Return the pulled arm to recommend; None for the arm with the largest mean reward."""


@runtime_checkable
class EstimatesRewards(Protocol[S_contra]):
    """A strategy that estimates the reward of a pulled arm."""

    def estimate(self, state: S_contra, arm: int) -> tuple[float, float] | None:
        """Return the noise-free reward expected of `arm` and its deviation; None if unknown."""


@dataclass(frozen=True, slots=True)
class TrialForecast:
    """A strategy's forecast of the final value of a trial that has reported.

    Attributes:
        trial: the trial's index.
        mean: the expected final reward.
        low: the reward two standard deviations below it.
        high: the reward two standard deviations above it.
        score: the expected final score, in the model's units.
        deviation: its standard deviation, including noise, in the model's units.
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

    def with_curves(self, state: S, update: CurveUpdate) -> S:
        """Return the state with the curves of `update` in place of those of the same trials. The next
        `tell` learns them."""

    def predict_trials(self, state: S, trials: Sequence[int]) -> tuple[TrialForecast, ...]:
        """Return the forecasts of the given trials that have reported."""


@runtime_checkable
class PausesTrials(Protocol):
    """A strategy that pauses its trials at every multiple of `interval` steps, and decides which of
    them continue. Its new trials may start from the checkpoints of paused ones
    (`Pick.starts_from`)."""

    @property
    def interval(self) -> int:
        """The number of steps between two pauses."""

    @property
    def population(self) -> int:
        """The number of trials that start at their first step."""

    @property
    def last_step(self) -> int | None:
        """The step at which a training ends; None if it is not given."""


def never_waits(strategy: object) -> bool:
    """Return whether the strategy's batches are unlimited; see `Waits`."""
    return isinstance(strategy, Waits) and strategy.never_waits


def is_grown(share: float, waiting: int, known: int, running: int) -> bool:
    """Return whether a refit is due because the `waiting` results are at least the given `share` of
    the `known` results and the `running` pulls. With many workers, a single further result changes
    little."""
    return waiting >= share * (known + running)


def begin(strategy: Strategy[S], state: S, existing: Sequence[Observation], rng: np.random.Generator) -> S:
    """Return the state of `init` with at least one `existing` pull; all of them have rewards."""
    if isinstance(strategy, BeginsWithExisting):
        begun: S = strategy.begin(state, existing, rng)
        return begun
    return strategy.tell(state, existing, rng)
