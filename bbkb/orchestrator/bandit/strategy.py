"""The protocol of every strategy, its argument and result types, and checks that strategies share.

A strategy is a frozen dataclass of hyperparameters with six pure functions. Its state contains only
values that cannot be derived (pulls, dictionary, information gain, round). Posterior, widths and
upper bounds are derived from the state and never stored.

Values that a strategy *draws* (a dictionary) must not be drawn again by a resume, because the
outcome of a floating-point tie may differ on another machine. Therefore `tell` has two counterparts
for the event log. `recorded(state)` is the part of a state that was drawn in the last `tell` (or in
`init`), as JSON values. `restore(state_before, observations, record)` rebuilds the state without
randomness: `restore(s, obs, recorded(tell(s, obs, rng)))` equals `tell(s, obs, rng)`.

A strategy may request new arms and choose the arms to retire (`Grows`). Arms are added at the first fit
of the model, and then whenever the number of results has grown by 15 %. They are drawn around the five
pulled arms with the largest posterior means, at distances of the order of the fitted lengthscales.
`bbkb.orchestrator.engine.pool` makes the features of new arms from the search space, which the strategy
does not know.
"""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import Arms, check_features
from bbkb.orchestrator.bandit.arrays import Floats, Indices, read_only
from bbkb.orchestrator.bandit.options import excerpt
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.results import CurveUpdate
from bbkb.orchestrator.bandit.results import Observation as Observation

GROWTH_SHARE = 0.15  # the relative growth of the results between two growths
AROUND = 5  # arms


G = TypeVar("G")


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A request for new arms."""

    around: tuple[int, ...]  # the arms around which the new arms are drawn, the best first
    lengthscales: tuple[float, ...]  # (p,), one per parameter, in units of its features


class Perturbation(NamedTuple):
    """A request for a perturbed configuration of each of some arms."""

    arms: tuple[int, ...]  # may contain repetitions
    factors: tuple[float, float]  # the factors on numbers
    resample_probability: float  # the probability of a new draw, for each parameter


@runtime_checkable
class Grows(Protocol[G]):
    """A strategy whose set of arms may grow during a campaign."""

    @property
    def grows(self) -> bool:
        """Whether the strategy, with its options, ever requests more arms."""

    def growth(self, state: G) -> Growth | Perturbation | None:
        """Return the request for new arms at `state`; None if there is none."""

    def extend(self, state: G, features: Floats, retired: Sequence[int], log_prior: Floats | None = None) -> G:
        """Return the state with n ≥ 0 appended arms, `features` (n, d), and with the `retired` arms
        excluded from later choices; a retired new arm only has results from elsewhere. Growth is
        then due again only after further results. `log_prior` (n,): see `Arms`."""

    def arms_to_retire(self, state: G, pending: Sequence[int], most: int) -> tuple[int, ...]:
        """Return arms to retire, so that at most `most` remain if possible: those with the smallest
        upper bounds, among the arms that were never pulled and are not `pending`."""


def is_growth_due(results: int, at_last: int, first: int) -> bool:
    """Return whether arms should be added after `results` results. `at_last`: the number of results
    at the last growth; 0 before the first growth, which is due at `first` results."""
    return results >= max(first, (1.0 + GROWTH_SHARE) * at_last)


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
            better or the best value has not risen for long, `"exhausted"` for a repeated arm after
            all arms were chosen; empty if the strategy prefers the arm to all others.
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
class WeighsResults(Protocol):
    """A strategy that weighs a result by its known deviation (`Observation.deviation`)."""

    @property
    def takes_deviations(self) -> bool:
        """Whether the strategy, with its options, weighs results."""


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


# the methods that a campaign requires of a strategy
CAMPAIGN_METHODS = ("init", "ask", "tell", "recorded", "restore")
METHODS = (*CAMPAIGN_METHODS, "posterior")  # that a strategy must have

# the reason of a `Wait` that ends a campaign
ALL_CHOSEN = "every arm was chosen, and a repeat would return the same value"


class HasArms(Protocol):
    """The pulls and the set-aside arms of a state."""

    @property
    def pulls(self) -> Pulls:
        """The pulls of each of the A candidates."""

    @property
    def set_aside(self) -> Indices:
        """The arms that could not be evaluated."""


def require(strategy: object, name: str, rule: str, is_met: bool) -> None:
    """Raise ValueError with the field `name` and its value unless the rule `is_met`."""
    if not is_met:
        raise ValueError(f"strategy.{name} must be {rule}, got {excerpt(getattr(strategy, name))}")


def check_class(value: object, prefix: str = "", methods: Sequence[str] = METHODS) -> type[Any]:
    """Return `value`, a user's class of a strategy.

    Raises ValueError, with a message that begins with `prefix`, if it is not a dataclass with these
    `methods`.
    """
    if not isinstance(value, type):
        raise ValueError(f"{prefix}must name a class, got {excerpt(value)}")
    lacking = [method for method in methods if not callable(getattr(value, method, None))]
    if lacking:
        raise ValueError(f"{prefix}must have the methods {', '.join(methods)}; it lacks {', '.join(lacking)}")
    if not is_dataclass(value):
        raise ValueError(f"{prefix}must be a dataclass, whose fields are its options; add @dataclass to it")
    return value


def refusal(state: HasArms, limit: int) -> Wait | None:
    """Return the response of `ask` if no arm is left. Raises ValueError if `limit` < 1."""
    if limit < 1:
        raise ValueError(f"limit must be >= 1, got {limit}")
    return Wait("all arms were set aside") if len(state.set_aside) == len(state.pulls.counts) else None


def sequential_refusal(state: HasArms, pending: Sequence[int], limit: int) -> Wait | None:
    """Check like `refusal`, for strategies that pull one arm and wait for its reward."""
    return refusal(state, limit) or (Wait("one pull at a time: the last reward has not arrived") if pending else None)


def check_decision(decision: object, arms: int) -> Decision:
    """Return the result of a strategy's `ask`, with Python's numbers instead of NumPy's.

    Raises ValueError if it is neither Choose nor Wait, or if it chooses anything but one of the
    `arms`.
    """
    if not isinstance(decision, Choose | Wait):
        raise ValueError(f"ask must return Choose or Wait, got {excerpt(decision)}")
    reason = str(decision.reason or "")
    if isinstance(decision, Wait):
        return Wait(reason)
    return replace(decision, picks=tuple(_check_pick(pick, arms) for pick in decision.picks), reason=reason)


def _check_pick(pick: object, arms: int) -> Pick:
    try:
        if isinstance(pick, Pick):
            arm = operator.index(pick.arm)
            if pick.trial is not None or 0 <= arm < arms:
                mean, width, variance = map(float, (pick.mean, pick.width, pick.variance))
                return replace(pick, arm=arm, mean=mean, width=width, variance=variance)
    except (TypeError, ValueError):  # the same message for numbers of a wrong type
        pass
    raise ValueError(f"ask must pick candidates from 0 to {arms - 1}, got {excerpt(pick)}")


def check_arms(arms: Arms | ArrayLike) -> Floats:
    """Return the read-only features (A, d) of `arms`. Raises ValueError for an invalid array."""
    return arms.features if isinstance(arms, Arms) else check_features(arms)


def arms_and_rewards(observations: Sequence[Observation]) -> tuple[list[int], list[float]]:
    """Return the arms and rewards of the observations with a reward. Raises ValueError if a reward
    is not finite."""
    pairs = [(observation.arm, observation.reward) for observation in observations if observation.reward is not None]
    for arm, reward in pairs:
        if not math.isfinite(reward):
            raise ValueError(f"the reward of arm {arm} must be finite, got {reward}; use None for a failed evaluation")
    return [arm for arm, _ in pairs], [float(reward) for _, reward in pairs]


def further_rewards(observations: Sequence[Observation], count: int) -> list[tuple[float, ...]]:
    """Return the `count` further rewards of each observation that has a reward; none for a pull that
    was stopped early. Raises ValueError if the number of rewards differs, or one is not finite."""
    rewarded = [observation for observation in observations if observation.reward is not None]
    for observation in rewarded:
        further = observation.further
        expected = 0 if observation.is_stopped else count
        if len(further) != expected or not all(map(math.isfinite, further)):
            arm = observation.arm
            raise ValueError(f"arm {arm} must have {expected} finite further rewards, got {further}")
    return [observation.further for observation in rewarded]


def with_set_aside(set_aside: Indices, observations: Sequence[Observation]) -> Indices:
    """Return `set_aside` and the arms that could not be evaluated, ascending."""
    failed = [observation.arm for observation in observations if observation.reward is None]
    return read_only(np.union1d(set_aside, np.array(failed, np.intp)), np.intp) if failed else set_aside
