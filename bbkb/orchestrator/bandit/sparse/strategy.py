"""The common part of strategies with a sparse posterior: learning and recording, but not
choosing.

Resparsification: draws the inducing points by ridge leverage scores (BBKB Algorithm 1, lines
10–14).

Checks the calibrated model of a state against its predictions, refits it, and records and
restores it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Generic, Literal, TypeVar

import numpy as np
from annotated_types import Ge
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arrays import Floats, Indices, freeze, read_only
from bbkb.orchestrator.bandit.model.model import Model, ModelOptions
from bbkb.orchestrator.bandit.model.reliability import reliability_and_cautious
from bbkb.orchestrator.bandit.options import Options, Oversampling
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.results import CurveUpdate
from bbkb.orchestrator.bandit.scheduling import WidthOptions, information_gain
from bbkb.orchestrator.bandit.sparse.curve_fit import pair_variances
from bbkb.orchestrator.bandit.sparse.forecasts import forecasts
from bbkb.orchestrator.bandit.sparse.posterior import SparsePosterior
from bbkb.orchestrator.bandit.sparse.state import (
    CHECKED_FROM,
    CHECKED_WIDTH,
    Belief,
    Calibration,
    SparseState,
    recorded_start,
    sparse_belief,
)
from bbkb.orchestrator.bandit.sparse.verification import estimate, recommendation
from bbkb.orchestrator.bandit.strategy import (
    Observation,
    Posterior,
    Record,
    TrialForecast,
    arms_and_rewards,
    with_set_aside,
)

Resampling = Literal["pulls", "arms", "stable"]
ResamplingOption = Annotated[
    Resampling,
    Doc("The draw of the dictionary takes `pulls` one by one, or `arms` as a whole; `stable`: changing few of them."),
]
DictionaryLimit = Annotated[
    Annotated[int, Ge(1)] | None,
    Doc("The expected size of a dictionary at most, ≥ 1: a larger draw takes a smaller q̄; None: any size."),
]
HALVINGS = 30


@dataclass(frozen=True)
class DictionaryOptions(Options):
    """The draw of the dictionary."""

    oversampling: Oversampling = 2.0
    resampling: ResamplingOption = "arms"
    dictionary_limit: DictionaryLimit = None


def inclusion_probabilities(
    pulls: Pulls, variance: Floats, oversampling: float, resampling: Resampling, limit: int | None = None
) -> Floats:
    """Return the probability (p,) that each pulled arm, in the order of `pulls.arms`, enters the
    dictionary.

    `variance` (p,): the arms' variances σ̃²_fb at the start of the batch (see the proof of Theorem
    1). `limit`: the largest expected size; if q̄ would exceed it, the largest possible q̄ is used.

    * `pulls`: each pull enters with probability p = min(1, q̄ σ̃²_fb), and duplicates count once, so
      an arm with n pulls enters with probability 1 − (1 − p)ⁿ.
    * `arms`: an arm enters with probability min(1, q̄ n σ̃²_fb), where n σ̃² is its leverage score
      if its n pulls are one row √n φ(x). The probability is at least that of `pulls`, and the bound
      on the expected size of the dictionary, q̄ Σ σ̃² over the pulls, is the same. The
      authors' released code uses this rule.
    * `stable`: like `arms`. With a `variance` from `without_own_pulls`, no probability is
      smaller, it is 1 for an arm with many pulls, and it hardly depends on whether the arm is an atom.
    """
    counts = pulls.counts[pulls.arms]

    def probabilities(factor: float) -> Floats:
        if resampling != "pulls":
            return np.minimum(1.0, factor * counts * variance)
        single = np.minimum(1.0, factor * variance)
        with np.errstate(divide="ignore"):  # log1p(−1) = −∞ is correct: the arm enters with certainty
            return -np.expm1(counts * np.log1p(-single))

    if limit is None:
        return probabilities(oversampling)
    return probabilities(_largest_factor(lambda factor: float(probabilities(factor).sum()), oversampling, limit))


def without_own_pulls(counts: Indices | Floats, variance: Floats, embedded: Floats) -> Floats:
    """Return the variance (p,) that each arm would have without its own pulls, whether it is an
    atom or not.

    `counts` (p,): the number of the arm's pulls that the posterior includes. `embedded` (p,):
    zᵀV⁻¹z, the part of `variance` (p,) in the dictionary's span. The arm's n pulls have reduced
    this part from e₀ to e₀/(1 + n e₀), and have not changed the remaining part, which is 0 for an
    atom. The result is exact if all other pulls are of atoms.
    """
    before: Floats = embedded / np.maximum(1.0 - counts * embedded, np.finfo(np.float64).eps)
    return before + np.maximum(variance - embedded, 0.0)


def resparsify(
    pulls: Pulls,
    variance: Floats,
    oversampling: float,
    resampling: Resampling,
    rng: np.random.Generator,
    limit: int | None = None,
) -> Indices:
    """Draw a dictionary (m,), ascending, of pulled arms. If nothing was drawn, it has the arm with
    the largest probability.

    With `stable`, an arm has the same random number in every draw: an atom leaves only if its
    probability decreases. So the posterior changes little from one draw to the next, and
    `UpperBounds` stay tight. Raises ValueError if nothing was pulled.
    """
    if pulls.total == 0:
        raise ValueError("resparsify needs at least one pull with a reward, got none")
    probabilities = inclusion_probabilities(pulls, variance, oversampling, resampling, limit)
    numbers = _numbers_of(pulls.arms) if resampling == "stable" else rng.random(len(probabilities))
    atoms = pulls.arms[numbers < probabilities]
    atoms_or_best = atoms if len(atoms) else pulls.arms[[np.argmax(probabilities)]]
    return read_only(atoms_or_best, np.intp)


def draw_pairs(numbers: Indices, variance: Floats, oversampling: float, limit: int) -> Indices:
    """Return a dictionary (m,), ascending, of pairs of a trial and a step, as with `stable`.
    `numbers` (N,) are the codes of the pairs, and `variance` (N,) their σ̃². A pair enters with
    probability min(1, q̄ σ̃²). `limit` bounds the expected size. If no pair is drawn, the result is
    the pair with the largest variance. Raises ValueError if there are no pairs."""
    if not len(numbers):
        raise ValueError("a dictionary needs at least one value of a learning curve, got none")

    def size(factor: float) -> float:
        return float(np.minimum(1.0, factor * variance).sum())

    factor = _largest_factor(size, oversampling, limit)
    atoms = numbers[_numbers_of(numbers) < np.minimum(1.0, factor * variance)]
    return read_only(np.sort(atoms) if len(atoms) else numbers[[np.argmax(variance)]], np.intp)


def _numbers_of(arms: Indices) -> Floats:
    """Return a number in [0, 1) for each of `arms` (n,), the same in every call: SplitMix64
    (Steele, Lea, Flood 2014)."""
    bits = (arms.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits = (bits ^ (bits >> np.uint64(31))) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def _largest_factor(size: Callable[[float], float], most: float, limit: int) -> float:
    """Return the largest factor from 0 to `most` for which the expected `size`, an increasing
    function, is at most `limit`. Uses bisection."""
    if size(most) <= limit:
        return most
    low = 0.0
    high = most
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if size(middle) <= limit else (low, middle)
    return low


S = TypeVar("S", bound=SparseState)


def calibrate(
    after: S,
    before: SparseState,
    observations: Sequence[Observation],
    model: Model | None,
    belief: Belief | None = None,
) -> S:
    """Return `after` with its calibrated `model` checked against its predictions, and fitted to all
    pulls if a fit is due.

    Args:
        after: the state with `observations`; returned unchanged if there is no model.
        before: the state without them.
        observations: the newly finished pulls, some of which `belief` predicted.
        model: the strategy's calibrated model, or None.
        belief: returns mean and variance of arms at `before`; None for those of the sparse
            posterior.
    """
    if model is None:
        return after
    calibration = after.calibration
    curves = before.curve_evidence
    counts_stopped = curves is None and before.goals.is_single
    told = [
        (observation.arm, observation.reward)
        for observation in observations
        if observation.reward is not None and (counts_stopped or not observation.is_stopped)
    ]
    if calibration is not None and before.pulls.total >= CHECKED_FROM and told:
        scale = before.knowledge.scale if curves is None else curves.scale
        scores = scale.scores(np.array([reward for _, reward in told]))
        predicted = sparse_belief(before) if belief is None else belief
        mean, variance = predicted(np.array([arm for arm, _ in told], np.intp))
        deviation = np.sqrt(before.model.regularization * (variance + 1.0))
        inside = calibration.inside + int(np.count_nonzero(np.abs(scores - mean) <= CHECKED_WIDTH * deviation))
        calibration = replace(calibration, inside=inside, predicted=calibration.predicted + len(told))
        after = replace(after, calibration=calibration)
    return refit(after, model)


def posterior_before(before: SparseState, after: SparseState) -> SparsePosterior:
    """Return the posterior whose variances determine a new dictionary. It is the posterior of
    `before`. If the kernel was refitted, it is computed from the same evidence with the kernel and
    the curves of `after`."""
    if after.model is before.model:
        return before.posterior
    curves = after.curve_state.known
    knowledge = replace(before.knowledge, model=after.model, calibration=after.calibration, curves=curves)
    return knowledge.posterior


def refit(state: S, model: Model) -> S:
    """Return `state` with the model fitted to its evidence, if a fit is due."""
    if state.calibration is None or state.layout is None:
        return state
    if state.knowledge.learns_curves and model.is_fitted:
        evidence = state.knowledge.make_curve_evidence()
        curves = state.knowledge.curves
        span = float(curves.first), float(curves.end)
        fitted = state.calibration.fitted
        if curves.learned is not curves and len(evidence.values.sizes) < fitted.curve_trials:
            # the fit is to values that are no longer learned
            fitted = replace(fitted, curve_trials=0)
        fitted = model.refit_curves(fitted, evidence, state.layout, span)
    else:
        fitted = model.refit(state.calibration.fitted, state.evidence, state.layout, state.model.arms)
    return _with_calibration(state, model, replace(state.calibration, fitted=fitted))


def calibration_record(state: SparseState) -> Record:
    """Return the record for `restore_calibration`, and the number of equal repeats if these have shown that
    rewards are deterministic; empty if there is no calibrated model."""
    if state.calibration is None:
        return {}
    is_declared = state.layout is not None and state.layout.is_deterministic is not None
    equal = {"equal_repeats": state.pulls.repeats} if state.is_deterministic and not is_declared else {}
    return {"model": {**state.calibration.recorded(), **equal}}


def restore_calibration(state: S, model: Model | None, record: Record) -> S:
    """Return `state` with the fitted values and the counts of predictions in `record`."""
    return state if model is None else _with_calibration(state, model, Calibration.from_record(record["model"]))


def _with_calibration(state: S, model: Model, calibration: Calibration) -> S:
    if state.layout is None:
        return state
    sparse = state.model  # with its caches if nothing has changed
    kernel = model.kernel_of(calibration.fitted, state.layout)
    noise = calibration.fitted.noise
    if kernel != sparse.kernel:
        sparse = replace(sparse, kernel=kernel, regularization=noise)
    elif noise != sparse.regularization:
        sparse = sparse.with_regularization(noise)
    return replace(state, model=sparse, calibration=calibration)


# the largest number of atoms of a model over steps, unless the strategy has a smaller limit
MOST_PAIRS = 400


class SparseStrategy(DictionaryOptions, WidthOptions, ModelOptions, ABC, Generic[S]):
    """A strategy with a `SparseState`. Its dataclass subclasses add options."""

    @abstractmethod
    def width_at(self, state: S) -> float:
        """Return the factor on σ̃ of the 1/λ scale in the upper bounds at `state`."""

    def gain(self, variance: Floats) -> float:
        """Return the information gain of pulls of arms with these old variances σ̃² (n,), on the
        1/λ scale."""
        return information_gain(variance)

    def tell(self, state: S, observations: Sequence[Observation], rng: np.random.Generator) -> S:
        """Return the state after these newly finished pulls: the old variances update G and
        determine the draw of a new dictionary.

        If the kernel has changed, the old variances are those of the old pulls under the new
        kernel. Without new pulls, the dictionary and G do not change. After a failed warm start,
        the prior decides. A calibrated model also learns from failures.
        """
        after = self._observe(state, observations)
        oversampling = self.oversampling_after(after.pulls.total)
        arms = np.array(arms_and_rewards(observations)[0], np.intp)
        has_learned = len(arms) > 0 or len(after.failed) > len(state.failed)
        over_steps = after.knowledge.learns_curves and self.model is not None and self.model.is_fitted
        if not over_steps and (not has_learned or not after.pulls.total):
            return after
        after = calibrate(after, state, observations, self.model)
        if (evidence := after.curve_evidence) is not None:
            variances = pair_variances(posterior_before(state, after), evidence)
            most = min(MOST_PAIRS, self.dictionary_limit or MOST_PAIRS)
            return replace(after, dictionary=draw_pairs(evidence.values.numbers, variances, oversampling, most))
        pulled = after.evidence.arms
        before = posterior_before(state, after)
        _, old, rows = before.moments(pulled, is_joint=self.model is not None)
        counts = after.model.weights(state.evidence)[pulled]
        embedded = np.vecdot(rows, rows)
        drawn_by = without_own_pulls(counts, old, embedded) if self.resampling == "stable" else old
        if after.evidence.noise is not None:
            drawn_by = drawn_by * after.model.weights(after.evidence)[pulled] / after.evidence.counts[pulled]
        dictionary = resparsify(
            after.evidence, drawn_by, oversampling, self.resampling, rng, limit=self.dictionary_limit
        )
        gain = state.information_gain + self.gain(old[np.searchsorted(pulled, arms[np.isin(arms, pulled)])])
        return replace(after, dictionary=dictionary, information_gain=gain)

    @property
    def drift_factor(self) -> float:
        """C̃: the factor by which variances may fall between two draws of the dictionary."""
        return 1.0

    def oversampling_after(self, pulls: int) -> float:
        """Return q̄ of the draw after this number of pulls."""
        return self.proven_oversampling(pulls) if isinstance(self.oversampling, str) else self.oversampling

    def proven_oversampling(self, pulls: int) -> float:
        """Return q̄_t = 72 C̃ log(4t/δ) after t = `pulls` (BBKB, Theorem 2). With C̃ = 1 it is 6α
        log(4t/δ)/ε² with ε = 1/2 and α = (1 + ε)/(1 − ε) = 3 (BKB, Theorem 2)."""
        return 72.0 * self.drift_factor * math.log(4.0 * max(pulls, 1) / self.delta)

    @property
    def draws_as_proven(self) -> bool:
        """Whether Theorem 1 covers the draw of the dictionary, if q̄ is large enough."""
        return self.model is None and self.resampling == "pulls" and self.dictionary_limit is None

    def _sizes(self, state: S) -> Record:
        """Return the effective dimension, and the largest dictionary that Theorem 1 promises where its conditions
        hold, 9 C̃ (1 + κ²/λ) q̄ d_eff. Four digits: the last ones of a double depend on the machine."""
        if state.curve_evidence is not None or not state.evidence.total:
            return {}
        dimension = state.posterior.effective_dimension(state.evidence)
        sizes = {"effective_dimension": dimension}
        oversampling = self.oversampling_after(state.pulls.total)
        if self.draws_as_proven and oversampling >= self.proven_oversampling(state.pulls.total):
            largest_prior = state.model.all_arms.largest_prior / state.model.regularization
            sizes["dictionary_bound"] = 9.0 * self.drift_factor * (1.0 + largest_prior) * oversampling * dimension
        return {name: float(f"{size:.4g}") for name, size in sizes.items()}

    @property
    def takes_deviations(self) -> bool:
        """See `WeighsResults`. Requires the calibrated model."""
        return self.model is not None

    def with_curves(self, state: S, update: CurveUpdate) -> S:
        """See `LearnsCurves`."""
        return state.with_curves(update)

    def predict_trials(self, state: S, trials: Sequence[int]) -> tuple[TrialForecast, ...]:
        """See `LearnsCurves`."""
        return forecasts(state, trials)

    def _observe(self, state: S, observations: Sequence[Observation]) -> S:
        after = state.observe(observations)
        return after if self.model is None else replace(after, failed=with_set_aside(state.failed, observations))

    def recorded(self, state: S) -> Record:
        """Return the dictionary with its sizes, the information gain, the warm start's arms, the fitted values,
        and the reliability of steps if there are learning curves."""
        record = {
            "dictionary": state.dictionary.tolist(),
            **self._sizes(state),
            "information_gain": state.information_gain,
            "initial": list(state.initial),
            **calibration_record(state),
        }
        if not state.knowledge.learns_curves:
            return record
        likely, cautious = reliability_and_cautious(state.knowledge.curves)
        return {**record, "reliability": likely, "cautious_reliability": cautious}

    def restore(self, state: S, observations: Sequence[Observation], record: Record) -> S:
        """Like `tell`, with the drawn and fitted values of `record`; fits nothing."""
        dictionary: Indices = read_only(record["dictionary"], np.intp)
        after = restore_calibration(self._observe(state, observations), self.model, record)
        initial = recorded_start(record["initial"], len(after.model.arms))
        return replace(
            after, dictionary=dictionary, information_gain=float(record["information_gain"]), initial=initial
        )

    def recommend(self, state: S) -> int | None:
        """See `Recommends`: the pulled arm with the largest estimate if rewards are noisy."""
        return recommendation(state)

    def estimate(self, state: S, arm: int) -> tuple[float, float] | None:
        """See `EstimatesRewards`."""
        return estimate(state, arm)

    def posterior(self, state: S) -> Posterior:
        """Return the belief over all arms at `state`, with no pull pending."""
        mean = state.posterior.mean
        variance = state.posterior.variance
        ucb = mean + self.width_at(state) * np.sqrt(variance)
        return Posterior(mean=mean, variance=variance, ucb=freeze(ucb), unit=state.model.regularization)
