"""Compressed Gaussian-process bandits: the exact posterior, given only the informative pulls.

Bedi, Peddireddy, Aggarwal, Koppel 2020, "Efficient large-scale Gaussian process bandits by
believing only informative actions", Algorithm 1: the absolute test, for which every action is
evaluated. The long version, with Sadler, "Regret and belief complexity trade-off in Gaussian
process bandits via information thresholding", has the relative test, which precedes the evaluation.
The numbers of equations are those of the long version.

The papers' variances σ²_D are Bayesian: the prior variance is k(x, x). The belief, `Pick` and
`Posterior` are on the 1/λ scale as for all strategies, with σ² in the role of λ, so their variances
are σ²_D/σ².

An acquisition chooses x_t; the pair (x_t, y_t) enters the dictionary D only if its conditional
entropy H = ½ log(2πe(σ² + σ²_D(x_t))) passes a test. H does not depend on y_t, so the test can also
precede the evaluation, and the evaluation be avoided.

With a calibrated model, σ² is the fitted noise variance of a score, and the prior variance of a
score is 1. Scores, kernel and noise are derived from *all* results, as for every other strategy,
and the posterior from the stored pairs. A stored arm has the score of its mean reward over all its
pulls, weighted by the number of its stored pulls. A refit that changes the kernel or the noise does
not change the stored pairs; the posterior given them is recomputed. Later pairs are tested with the
new variances.

The acquisitions are those of the long version: compressed GP-UCB, "CUB" (Algorithm 1 with eq. 2.5),
compressed EI, "CEI" (with eq. 2.6), and compressed "most probable improvement" (Section 4).
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from annotated_types import Ge, Gt
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, first_largest, read_only
from bbkb.orchestrator.bandit.exact.posterior import ExactPosterior
from bbkb.orchestrator.bandit.exact.strategy import ExactState, log_improvement
from bbkb.orchestrator.bandit.kernels import KernelOption
from bbkb.orchestrator.bandit.model import defaults
from bbkb.orchestrator.bandit.model.model import Model, ModelOption
from bbkb.orchestrator.bandit.model.outputs import score_pulls
from bbkb.orchestrator.bandit.options import AnyNumber, FailureProbability, VerifiedShare, Width, check_options
from bbkb.orchestrator.bandit.sparse.state import SparseState, no_arm_left
from bbkb.orchestrator.bandit.sparse.strategy import calibrate, restore_calibration
from bbkb.orchestrator.bandit.sparse.verification import Estimates, OpenArms, recommendation, repeat_due
from bbkb.orchestrator.bandit.start.warm_start import RandomStart, SpreadStart, begin_state
from bbkb.orchestrator.bandit.strategy import (
    Choose,
    Decision,
    Observation,
    Pick,
    Posterior,
    Record,
    Wait,
    check_arms,
    require,
    sequential_refusal,
)

EntropyTest = Literal["absolute", "relative"]


@dataclass(frozen=True, eq=False, kw_only=True)
class CompressedState(ExactState):
    """The state of a compressed bandit. `pulls` has all pulls, stored or not; the arms in `initial`
    are distinct. `belief` is a function of the stored pairs and their order; `dictionary` has the
    distinct stored arms."""

    # the largest stored reward (score, with a calibrated model); −∞ if nothing is stored
    largest: float
    stored: tuple[int, ...]  # positions of new pairs in the last `tell`'s observations
    skipped: int  # the number of skipped steps so far

    @property
    def model_order(self) -> int:
        """M: the number of stored pairs, including repeated arms."""
        return int(self.belief.counts.sum())

    @property
    def step(self) -> int:
        """t of β_t: one more than the rewards so far, with initial points and skipped steps."""
        return 1 + self.pulls.total + self.skipped

    @property
    def noise(self) -> float:
        """σ², the variance of the noise in the belief."""
        return self.belief.model.regularization

    def store(self, observation: Observation, model: Model | None) -> Self:
        """Return the state after storing this pair, which has a reward, in its belief.

        With a calibrated `model`, the mean is updated by `learn`, which recomputes all scores.
        """
        if observation.reward is None:
            raise ValueError(f"a stored pull must have a reward, got none for arm {observation.arm}: not its record")
        reward = float(observation.reward)
        if model is None:
            belief = self.belief.pull(observation.arm, reward)
        else:
            belief = self.belief.pull_without_reward(observation.arm)
        largest = max(self.largest, reward) if model is None else self.largest
        dictionary = read_only(np.sort(belief.order), np.intp)
        return replace(self, belief=belief, largest=largest, dictionary=dictionary)

    def learn(self, before: "CompressedState", observations: Sequence[Observation], model: Model | None) -> Self:
        """Return the state of the next round, with all `observations` in its pulls and, with a
        calibrated `model`, a fit to them.

        This state is `before` with the stored pairs in its belief.
        """
        after = SparseState.observe(self, observations)
        return calibrate(after, before, observations, model, before.moments).with_scores(model)

    def with_scores(self, model: Model | None) -> Self:
        """Return the state with the present scores and fit in its belief if there is a `model`."""
        if model is None:
            return self
        belief = self.belief
        if not len(belief.order):
            return replace(self, belief=ExactPosterior.prior(self.model))
        if self.model is belief.model:
            belief = belief.rescore(self.pulls)
        else:
            belief = ExactPosterior.of(self.model, self.pulls, belief.order, belief.counts)
        sums = score_pulls(self.pulls, model.outputs).reward_sums
        scores = sums[belief.order] / self.pulls.counts[belief.order]
        return replace(self, belief=belief, largest=float(scores.max()))


@dataclass(frozen=True)
class Compressed(ABC):
    """The hyperparameters of the compressed strategies. The defaults are the papers' settings,
    except for the kernel's lengthscale: 1 suits the papers' domains, which are several units wide.
    For features in [0, 1], it leaves so little variance that the absolute test, which ignores
    values with a standard deviation below 0.24, stores few pairs besides the initial points.

    Arms are pulled one at a time; `ask` returns `Wait` while a reward is missing. Failed pulls do
    not affect the belief. Raises ValueError, with the field's name, if a value is out of range.

    The test, solved for the variance: `relative` stores a pair if σ²_D > σ² (e^{2ε} − 1), which has
    no scale. After n stored pulls of one arm, σ²_D is about σ²/n, so an arm is stored about
    1/(e^{2ε} − 1) times, counting stored pulls of its neighbors. `absolute` stores one if σ²_D >
    e^{2ε}/(2πe) − σ², in squared units of the rewards, or of the scores, whose prior variance is 1.

    Skipping. A skipped step only increments t, which changes β_t. The wider the bound, the
    larger the variance of the selected arm, so the first step that is not skipped is found by
    bisection. EI, MPI, and UCB with a fixed `width` do not depend on t, so after their first
    uninformative step all further steps are uninformative, too. If every step up to `max_skipped`
    would be skipped, `ask` reports that the run is exhausted.
    """

    kernel: KernelOption = defaults.COMPRESSED
    noise_variance: Annotated[float, Gt(0), Doc("σ², the variance of the reward's noise, > 0.")] = 1e-3
    epsilon: Annotated[
        float, AnyNumber(), Doc("ε, the compression budget; −∞ (`absolute`) or 0 (`relative`) compresses nothing.")
    ] = 1e-4
    entropy_test: Annotated[
        EntropyTest, Doc("`absolute`: store a pull if H > ε; `relative`: if H > log √(2πeσ²) + ε, which needs ε ≥ 0.")
    ] = "absolute"
    evaluate_uninformative: Annotated[
        bool, Doc("True: evaluate every step; False: skip the steps that are not informative.")
    ] = True
    initial_points: Annotated[
        Annotated[int, Ge(1)] | None,
        Doc(
            "Distinct arms that are pulled and stored first, untested, ≥ 1; None: 2^d random ones, or all arms; with a"
            " calibrated model 16 that cover the space."
        ),
    ] = None
    max_skipped: Annotated[
        int,
        Ge(0),
        Doc("With `evaluate_uninformative` False: how many steps in a row may be skipped before the run ends, ≥ 0."),
    ] = 1_000_000
    model: ModelOption = None
    verify: VerifiedShare = 0.0
    is_sequential: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        check_options(self)
        if self.entropy_test == "relative":
            require(self, "epsilon", ">= 0 with the relative test", 0 <= self.epsilon < math.inf)
        require(self, "epsilon", "a number below infinity", self.epsilon < math.inf)

    def deviation(self, state: CompressedState) -> Floats:
        """Return σ_D of the available arms on the Bayesian scale."""
        return np.sqrt(state.noise * state.belief.variance[state.available])

    @abstractmethod
    def scores(self, state: CompressedState, step: int) -> Floats:
        """Return the acquisition of the available arms, ascending, at step t = `step`."""

    def width_at(self, state: CompressedState, step: int) -> float:
        """Return the factor on σ_D/σ in the bound at step t = `step`; NaN without a bound."""
        return math.nan

    def informative_variance(self, noise: float) -> float:
        """Return the σ²_D above which a pair is stored: the entropy test with σ² = `noise`."""
        doubled = math.exp(min(2.0 * self.epsilon, 700.0))  # finite, and above any variance
        if self.entropy_test == "absolute":  # H > ε
            return doubled / (2.0 * math.pi * math.e) - noise
        # H > log √(2πeσ²) + ε (eq. 2.12); at ε = 0 it is σ²_D > 0, which always holds
        return noise * (doubled - 1.0) if self.epsilon > 0 else -math.inf

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> CompressedState:
        """Return the state before any pull of `arms` (A, d); draws the initial points."""
        count, d = check_arms(arms).shape
        start: RandomStart | SpreadStart
        if self.model is None:
            start = RandomStart(min(2**d if self.initial_points is None else self.initial_points, count))
        else:
            start = SpreadStart() if self.initial_points is None else SpreadStart(self.initial_points)
        base = begin_state(arms, (self.kernel, self.noise_variance), self.model, start, rng)
        return CompressedState.begin(base, largest=-math.inf, stored=(), skipped=0)

    def ask(self, state: CompressedState, pending: Sequence[int], limit: int) -> Decision:
        """Return one arm: an initial point, or the next step of the acquisition to evaluate."""
        refused = sequential_refusal(state, pending, limit) or no_arm_left(state, pending)
        if refused is not None:
            return refused
        start = state.remaining_start()
        if start:
            return Choose((Pick(start[0]),), "initial point")
        arms = OpenArms.of(state, (), self.verify)
        repeat = repeat_due(state, (), self.verify, lambda: Estimates.of(state, state.moments)) if arms.left else None
        if repeat is not None:
            repeated, reason = repeat
            return Choose((state.pick(repeated, self.width_at(state, state.step), reason),), "one pull at a time")
        step = self._next_step(state)
        if step is None:
            rule = (
                f"the next {self.max_skipped + 1} steps all fail the entropy test: nothing informative is left to pull"
            )
            return Wait(rule)
        arm, skipped = step
        width = self.width_at(state, state.step + skipped)
        pick = state.pick(arm, width, arms.reason)
        return Choose(
            (pick,), f"one pull at a time, after {skipped} skipped steps" if skipped else "one pull at a time"
        )

    def _next_step(self, state: CompressedState) -> tuple[int, int] | None:
        """Return the next arm to evaluate and the number of steps skipped before it; None if too
        many would be skipped."""

        blocked = OpenArms.of(state, (), self.verify).blocked
        is_blocked = np.isin(state.available, blocked)

        def winner(skipped: int) -> int:
            scores = self.scores(state, state.step + skipped)
            scores[is_blocked] = -np.inf
            return int(state.available[first_largest(scores)])

        if self.evaluate_uninformative:
            return winner(0), 0
        skipped = bisect_left(
            range(self.max_skipped + 1), True, key=lambda skipped: self._is_informative(state, winner(skipped))
        )
        return None if skipped > self.max_skipped else (winner(skipped), skipped)

    def _is_informative(self, state: CompressedState, arm: int) -> bool:
        return bool(state.noise * state.belief.variance[arm] > self.informative_variance(state.noise))

    def tell(
        self, state: CompressedState, observations: Sequence[Observation], rng: np.random.Generator
    ) -> CompressedState:
        """Return the state after these newly finished pulls, tested one by one in their order.

        Steps skipped before a pull are counted when `tell` receives its arm. If all initial points
        failed, another random arm is added.
        """
        after = state
        stored = list[int]()
        start = set(state.remaining_start())
        for position, result in enumerate(observations):
            is_given = result.arm in start or after.model_order == 0
            if result.reward is not None and (is_given or self._is_informative(after, result.arm)):
                after = after.store(result, self.model)
                stored.append(position)
                start.discard(result.arm)
        after = after.learn(state, observations, self.model)
        if after.pulls.total == 0 and not after.remaining_start() and len(after.available):
            after = after.with_start((*after.initial, int(rng.choice(after.available))))
        skipped = state.skipped
        if not self.evaluate_uninformative and len(state.available) and not state.remaining_start():
            step = self._next_step(state) if observations else None
            if step is not None and any(result.arm == step[0] for result in observations):
                skipped += step[1]  # not counted if `ask` chose another arm
        return replace(after, stored=tuple(stored), skipped=skipped)

    def recorded(self, state: CompressedState) -> Record:
        """Return the stored positions, the skipped steps, the initial points and the fit."""
        return {"stored": list(state.stored), "skipped": state.skipped, **state.record()}

    def restore(self, state: CompressedState, observations: Sequence[Observation], record: Record) -> CompressedState:
        """Like `tell`, with the drawn, decided and fitted values of `record`."""
        after = state
        stored = tuple(int(position) for position in record["stored"])
        for position in stored:
            after = after.store(observations[position], self.model)
        after = restore_calibration(SparseState.observe(after, observations), self.model, record)
        after = replace(after, stored=stored, skipped=int(record["skipped"]))
        return after.with_scores(self.model).with_start(record["initial"])

    def recommend(self, state: CompressedState) -> int | None:
        """See `Recommends`: the pulled arm with the largest posterior mean if rewards are noisy."""
        return recommendation(state, state.moments)

    def posterior(self, state: CompressedState) -> Posterior:
        """Return the belief over all arms at `state`; upper bounds are NaN if there is no width."""
        return state.display(self.width_at(state, state.step))


@dataclass(frozen=True)
class CompressedUCB(Compressed):
    """CUB: the arm with the largest μ_D + √β_t σ_D, β_t = 2 log(A t² π² / (6δ)) (Corollary 3.3), or
    β_t = 2 log(2t²π² / (3δ)) + 2d log(t² d b r √log(4da/δ)) (Theorem 3.2, ii).

    Arms are pulled one at a time. Ties go to the lowest index.

    Options: those of `Compressed`, and:
    """

    delta: Annotated[
        FailureProbability,
        Doc('δ, the failure probability, in (0, 1); the papers\' "hold with probability at least 0.9" is 0.1.'),
    ] = 0.1
    width: Width = None
    decision_set: Annotated[
        Literal["finite", "box"],
        Doc("β_t of Theorem 3.2: of the `finite` set of arms, or of the `box` [0, r]^d that they cover."),
    ] = "finite"
    gradient_constants: Annotated[
        tuple[Annotated[float, Gt(0)], Annotated[float, Gt(0)]],
        Doc("a and b of a `box`: P(sup |∂f/∂x_j| > L) ≤ a exp(−L²/b²), both > 0."),
    ] = (1.0, 1.0)

    def scores(self, state: CompressedState, step: int) -> Floats:
        """Return μ_D + √β_t σ_D of the available arms."""
        mean = state.belief.mean[state.available]
        variance = state.belief.variance[state.available]
        scores: Floats = mean + self.width_at(state, step) * np.sqrt(variance)
        return scores

    def width_at(self, state: CompressedState, step: int) -> float:
        """Return √(β_t σ²), or the fixed width times σ: the factor on σ_D/σ."""
        if self.width is not None:
            return self.width * math.sqrt(state.noise)
        if self.decision_set == "finite":
            beta = 2.0 * math.log(len(state.model.arms) * step**2 * math.pi**2 / (6.0 * self.delta))
        else:  # the paper prints X for Srinivas' 2 (2010, Theorem 2)
            features = state.model.arms
            d = features.shape[1]
            a, b = self.gradient_constants
            r = float(np.ptp(features, axis=0).max())
            smooth = step**2 * d * b * r * math.sqrt(max(math.log(4.0 * d * a / self.delta), 0.0))
            beta = 2.0 * math.log(2.0 * step**2 * math.pi**2 / (3.0 * self.delta))
            beta += 2.0 * d * math.log(max(smooth, 1.0))
        return math.sqrt(beta * state.noise)


@dataclass(frozen=True)
class CompressedEI(Compressed):
    """CEI: the arm with the largest σ_D φ(z) + (μ_D − y_max)Φ(z), z = (μ_D − y_max)/σ_D.

    y_max is the largest *stored* reward: pairs that are not stored do not influence the belief.
    Arms are pulled one at a time. Ties go to the lowest index.

    Options: those of `Compressed`.
    """

    def scores(self, state: CompressedState, step: int) -> Floats:
        """Return the logarithm of the available arms' expected improvement, for any `step`."""
        return log_improvement(state.belief.mean[state.available], self.deviation(state), state.largest)


@dataclass(frozen=True)
class CompressedMPI(Compressed):
    """CMPI: the arm with the largest σ_D φ(z) + (μ_D − ξ)Φ(z), z = (μ_D − ξ)/σ_D.

    ξ is the largest posterior mean of the arms that may be chosen. The acquisition is therefore an
    expected improvement over the best belief, while CEI uses the best reward. Arms are pulled one
    at a time. Ties go to the lowest index.

    Options: those of `Compressed`.
    """

    def scores(self, state: CompressedState, step: int) -> Floats:
        """Return the logarithm of the acquisition of the available arms, for any `step`."""
        mean = state.belief.mean[state.available]
        return log_improvement(mean, self.deviation(state), float(mean.max()))
