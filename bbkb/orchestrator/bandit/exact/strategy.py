"""The common part of strategies with an exact posterior: their state (observations and belief), and everything
except the choice of arms.

`Improvement` is the common part of EI and PI (Salgia, Vakili, Zhao 2021, Appendix D.1, after Nguyen et al.
2017, "Regret for expected improvement over the best-observed value and stopping condition"). With the largest
posterior mean f* and the margin ε, both rank arms by how far f may exceed f* + ε. Both use the Bayesian
scale, on which the prior variance is k(x, x) and the noise variance is λ. The standard deviation is √λ σ,
with the σ² of the 1/λ scale. Both are in `strategies.gp_ucb`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import scipy
from annotated_types import Ge
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices, first_largest, read_only
from bbkb.orchestrator.bandit.exact.posterior import ExactPosterior
from bbkb.orchestrator.bandit.kernels import KernelOption
from bbkb.orchestrator.bandit.model import defaults
from bbkb.orchestrator.bandit.model.model import Model, ModelOptions
from bbkb.orchestrator.bandit.options import ModelNoise
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse import verification
from bbkb.orchestrator.bandit.sparse.state import SparseState, recorded_start
from bbkb.orchestrator.bandit.sparse.strategy import calibrate, calibration_record, restore_calibration
from bbkb.orchestrator.bandit.start.warm_start import ONE_PULL, AnyWarmStart, WarmStartOption, begin_state
from bbkb.orchestrator.bandit.strategy import Decision, Observation, Pick, Posterior, Record, arms_and_rewards

# from this number of first pulls on, one factorization is faster than an update for each pull
_MANY = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactState(SparseState):
    """The state of strategies with an exact posterior: the observations, without a dictionary, and
    the `belief` after them. A strategy with more state adds fields in a subclass; the methods of
    this class preserve them.

    The belief is a function of the rewards and of the order of the `tell`s. It is stored because
    each belief is an update of the previous one. The inherited `posterior` is not used.
    """

    belief: ExactPosterior

    @classmethod
    def begin(cls, base: SparseState, **further: Any) -> Self:
        """Return the state before any pull, with the prior belief and the `further` fields of a
        subclass."""
        return cls.of(base, belief=ExactPosterior.prior(base.model), **further)

    def observe(self, observations: Sequence[Observation], model: Model | None = None) -> Self:
        """Return the state of the next round, with these pulls and set-aside arms.

        `model`: the strategy's calibrated model. It is checked against these results, and fitted to
        them if a fit is due.
        """
        after = calibrate(super().observe(observations), self, observations, model, self.moments)
        arms, rewards = arms_and_rewards(observations)
        if model is not None:
            return replace(after, belief=after._score(arms))
        belief = self.belief
        if len(arms) > _MANY and not len(belief.order):  # existing data
            pulls = Pulls.none(len(belief.model.arms)).add(arms, rewards)
            order = np.array(list(dict.fromkeys(arms)), np.intp)
            return replace(after, belief=ExactPosterior.of(belief.model, pulls, order))
        for arm, reward in zip(arms, rewards, strict=True):
            belief = belief.pull(arm, reward)
        return replace(after, belief=belief)

    def restore(self, observations: Sequence[Observation], model: Model | None, record: Record) -> Self:
        """Like `observe`, with the warm start and the fitted values of `record`."""
        if model is None:
            return self.observe(observations).with_start(record.get("initial", self.initial))
        after = restore_calibration(super().observe(observations), model, record)
        belief = after._score(arms_and_rewards(observations)[0])
        return replace(after, belief=belief).with_start(record["initial"])

    def record(self) -> Record:
        """Return the record that `restore` reads."""
        return {"initial": list(self.initial), **calibration_record(self)}

    def _score(self, arms: Sequence[int]) -> ExactPosterior:
        """Return the belief after additional pulls of `arms`, with new scores of all arms and,
        after a fit, a new kernel."""
        belief = self.belief
        if not self.pulls.total:
            return belief
        if self.model is not belief.model or len(arms) > _MANY:
            return ExactPosterior.of(self.model, self.pulls, self.pulls.arms)
        for arm in arms:
            belief = belief.pull_without_reward(arm)
        return belief.rescore(self.pulls) if arms else belief

    def moments(self, arms: Indices) -> tuple[Floats, Floats]:
        """Return mean and variance of `arms` (n,), on the 1/λ scale."""
        return self.belief.mean[arms], self.belief.variance[arms]

    def with_start(self, initial: Sequence[int]) -> Self:
        """Return this state with the recorded arms of the warm start."""
        return replace(self, initial=recorded_start(initial, len(self.model.arms)))

    def display(self, width: float) -> Posterior:
        """Return the belief over all arms, for display; `width`: factor on σ of the 1/λ scale."""
        belief = self.belief
        ucb = belief.mean + width * np.sqrt(belief.variance)
        return Posterior(
            mean=belief.mean, variance=belief.variance, ucb=read_only(ucb, np.float64), unit=belief.model.regularization
        )

    def best(self, scores: Floats, blocked: Indices) -> int:
        """Return the unblocked arm with the largest of `scores` (A,). Ties go to the lowest
        index."""
        masked = scores.copy()
        masked[blocked] = -np.inf
        return first_largest(masked)

    def pick(self, arm: int, width: float, reason: str = "") -> Pick:
        """Return the pick of `arm` with its moments; `width`: a factor on σ of the 1/λ scale."""
        belief = self.belief
        return Pick(arm, float(belief.mean[arm]), width, float(belief.variance[arm]), reason=reason)


E = TypeVar("E", bound=ExactState)


class ExactStrategy(ModelOptions, ABC, Generic[E]):
    """A strategy whose state is an `ExactState`. Its dataclass subclasses add options.

    A strategy with more state than pulls and belief defines a state class `E` and overrides `init`.
    """

    warm_start: AnyWarmStart | None = None  # None unless a strategy has this field

    @abstractmethod
    def width_at(self, state: E) -> float:
        """Return the factor on σ (1/λ scale) of the upper bounds at `state`; NaN if there are no
        upper bounds."""

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> ExactState:
        """Return the state before any pull of `arms` (A, d), and draw the arms of the warm start.
        Raises ValueError for invalid arms."""
        return ExactState.begin(self.base_state(arms, rng))

    def base_state(self, arms: Arms | Floats, rng: np.random.Generator) -> SparseState:
        """Return the state before any pull of `arms` (A, d), without the belief, and draw the arms
        of the warm start."""
        return begin_state(arms, (self.kernel, self.regularization), self.model, self.warm_start, rng)

    def tell(self, state: E, observations: Sequence[Observation], rng: np.random.Generator) -> E:
        """Return the state after these pulls; draws nothing. If all failed, the prior decides."""
        return state.observe(observations, self.model)

    def next_pull(
        self, state: E, pending: Sequence[int], limit: int, scores: Callable[[], Floats]
    ) -> Decision:  # fmt: skip
        """Return `verification.next_pull` with the arm of the largest of `scores` (A,), which are −∞ for arms
        that may not be chosen. Ties go to the lowest index."""

        def best(blocked: Indices) -> int:
            return state.best(scores(), blocked)

        width = self.width_at(state)
        return verification.next_pull(state, pending, limit, self.verify, best, width, state.moments)

    def recorded(self, state: E) -> Record:
        """Return the warm start's arms and the fitted values."""
        return state.record()

    def restore(self, state: E, observations: Sequence[Observation], record: Record) -> E:
        """Like `tell`, with the warm start and the fitted values of `record`."""
        return state.restore(observations, self.model, record)

    def recommend(self, state: E) -> int | None:
        """See `Recommends`: the pulled arm with the largest posterior mean if rewards are noisy."""
        return verification.recommendation(state, state.moments)

    def posterior(self, state: E) -> Posterior:
        """Return the belief over all arms at `state`. Its bounds are NaN if there is no width."""
        return state.display(self.width_at(state))


@dataclass(frozen=True)
class Improvement(ExactStrategy[ExactState]):
    """The hyperparameters of EI and PI, with the paper's defaults. The belief is the exact Gaussian
    process.

    f* is the largest posterior mean of the arms that may be chosen, whether pulled or not.
    `is_sequential`: whether no arm is chosen while a reward is missing. Raises ValueError, with the
    field's name, if a value is out of range.
    """

    kernel: KernelOption = defaults.BRANIN
    regularization: ModelNoise = 0.01
    margin: Annotated[
        float,
        Ge(0),
        Doc("ε, the margin over f* of an improvement, ≥ 0; larger values explore more."),
    ] = 0.01
    warm_start: WarmStartOption = ONE_PULL
    is_sequential: ClassVar[Literal[True]] = True

    @abstractmethod
    def improvement(self, mean: Floats, deviation: Floats, target: float) -> Floats:
        """Return an increasing function of the acquisition over `target` = f* + ε, for beliefs (n,)
        on the Bayesian scale."""

    def scores(self, state: ExactState) -> Floats:
        """Return the acquisition of every arm (A,)."""
        mean = state.belief.mean
        deviation = np.sqrt(state.model.regularization * state.belief.variance)
        best = float(mean[state.available].max(initial=-np.inf))
        return self.improvement(mean, deviation, best + self.margin)

    def width_at(self, state: ExactState) -> float:
        """Return NaN: there are no upper bounds."""
        return math.nan

    def ask(self, state: ExactState, pending: Sequence[int], limit: int) -> Decision:
        """Return one arm unless one is pending: first the warm start's arms, then the argmax."""
        return self.next_pull(state, pending, limit, lambda: self.scores(state))


def log_improvement(mean: Floats, deviation: Floats, target: float) -> Floats:
    """Return log(σφ(z) + (μ − y)Φ(z)), z = (μ − y)/σ, σ = `deviation`, y = `target`, of beliefs
    (n,): (n,) (eq. 2.6).

    The logarithm has the same argmax, and stays finite if the improvement is below the smallest
    float.
    """
    deviation = np.maximum(deviation, 1e-100)  # without uncertainty: max(μ − y, 0)
    z = (mean - target) / deviation
    middle = np.clip(z, -1e3, -1.0)
    far = np.minimum(z, -1e3)
    log_density = -0.5 * np.square(z) - 0.5 * math.log(2.0 * math.pi)
    # φ(z) + zΦ(z) = φ(z) (1 + z Φ(z)/φ(z)), whose second factor tends to z⁻² − 3z⁻⁴
    factor = np.log1p(middle * math.sqrt(math.pi / 2.0) * scipy.special.erfcx(-middle / math.sqrt(2.0)))
    tail = np.log1p(-3.0 / np.square(far)) - 2.0 * np.log(-far)
    near = np.maximum(z, -1.0)
    plain = np.log(np.exp(-0.5 * np.square(near)) / math.sqrt(2.0 * math.pi) + near * scipy.special.ndtr(near))
    logarithm = np.where(z > -1.0, plain, log_density + np.where(z > -1e3, factor, tail))
    return np.asarray(np.log(deviation) + logarithm)
