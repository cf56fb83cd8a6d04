"""Repeated evaluations of the best arms, and the recommended arm.

A model over the parameters does not include an arm's difference from its neighbors. With much
noise, an arm that was already evaluated has the largest upper bound, and a single arm would get
half of the evaluations. Instead, picks explore: most of them are new arms, and a share (`verify`)
repeats the best arms until their bounds no longer overlap. If arms repeat, the estimate of an arm
includes an individual effect ~ N(0, τ²). With the model's μ̃ and σ̃, the score t of the mean reward
of the arm's n pulls, and the noise ν of a single value, the estimate is

    m = μ̃ + w (t − μ̃),        s² = ν/(n + N) + (1 − w)² σ̃²,        w = n/(n + N),        N = ν/τ².

The fitted noise v is the variance of noise and individual effects; repeats show ν. τ² is v − ν, and
at least ν/4.

Two rules end the exploration, so that it is O(log T) (docs/guarantees.md). Their picks repeat the arm
with the largest m, the *best* one (`EXPLOITATION`):

* `Peak.explorations`: with k picks since the best mean reward rose, exploring picks become rare.
* `Estimates.exceeds`: a new arm is not expected to be better, m − 1.75 √(ν/(n + N)) ≥ μ̃ + 1.75 √(σ̃² + τ²).

The displayed estimate of the recommended arm (`estimate`) has three corrections, because the best
of many estimates is too optimistic:

* Each arm has an individual effect even if arms do not repeat, because a deviation from the model
  is not only noise. N is twice as large, because the arm was also selected for its luck.
* v is the noise shown by repeated evaluations if it exceeds the fitted noise, and μ̃ and σ̃² are
  computed with this noise. The fit uses a single mean for each arm, so in a space with few
  configurations it mistakes noise for differences between them.
* s is increased by the model's leave-one-out errors at the best values: with h = n σ̃²/v, it is
  multiplied by the root mean of n (t − μ̃)²/(v (1 − h)) over the best quarter, if above 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.kernels import AnyKernel
from bbkb.orchestrator.bandit.model.fitting import local_noise
from bbkb.orchestrator.bandit.model.outputs import Scale, is_outlier
from bbkb.orchestrator.bandit.sparse.curve_fit import CurveEvidence, curve_kernel, predict
from bbkb.orchestrator.bandit.sparse.forecasts import without_new_arms
from bbkb.orchestrator.bandit.sparse.state import (
    CHECKED_FROM,
    NEGLIGIBLE_NOISE,
    Belief,
    SparseState,
    has_known_noise,
    has_plateau,
    is_noisy,
    no_arm_left,
    sparse_belief,
)
from bbkb.orchestrator.bandit.strategy import Choose, Decision, Pick, sequential_refusal

VERIFICATION = "verification"  # the reason of a pick that repeats one of the best arms
EXPLOITATION = "exploitation"  # the reason of a pick that repeats the best arm because exploration ends
EXHAUSTED = "exhausted"  # the reason of a pick that repeats an arm because all arms were chosen
# the largest N, the number of pulls from which on an arm's rewards outweigh the model's mean
OWN_PULLS = 4.0
WIDTH = 2.0  # standard deviations
EXCEEDS_WIDTH = 1.75  # standard deviations of both bounds of `Estimates.exceeds`
RECOMMENDED_OWN_PULLS = 8.0  # N for the recommended arm
FITTED_PULLS = 4.0  # the fitted noise has the weight of this number of repeated evaluations
MOST_CHECKED = 400  # the largest number of arms whose errors are computed
LEAST_BEST, BEST_PART = 8, 4  # the best arms are one in four of them, and at least 8
LEAST_LEFT = 1e-3  # a lower bound on 1 − h, because of rounding
# in a space in which no arm repeats, one in eight arms can be recommended, and at least 4
LEAST_PLAUSIBLE, PLAUSIBLE_PART = 4, 8
NO_NOISE = 0.01  # the variance of a score among the arms around the best one


@dataclass(frozen=True)
class Estimates:
    """The estimates of the pulled arms, which include their own rewards."""

    arms: Indices  # (p,), the arms with a finished pull, ascending
    weights: Floats | Indices  # (p,), the numbers of pulls of the arms, or their weights if deviations are known
    means: Floats  # (p,), the estimates m of the arms' scores
    # ν and τ², the variances of a score's noise and of an individual effect; 0 if arms do not
    # repeat and have no individual effects
    noise: float
    own: float

    @staticmethod
    def of(state: SparseState, belief: Belief | None = None) -> "Estimates":
        """Return the estimates at `state`. `belief`: the model's belief; None for that of the
        sparse posterior."""
        arms = state.pulls.finished_arms
        pulls = state.model.weights(state.pulls)[arms]
        model_means, _ = (sparse_belief(state) if belief is None else belief)(arms)
        own_scores = state.knowledge.scale.scores(state.pulls.reward_sums[arms] / state.pulls.counts[arms])
        if state.layout is None or not state.layout.repeats:
            return Estimates(arms, pulls, model_means, 0.0, 0.0)
        noise = _pooled_noise(state, weight=1.0)
        own = max(noise / OWN_PULLS, state.model.regularization - noise)
        shares = pulls / (pulls + noise / own)
        return Estimates(arms, pulls, model_means + shares * (own_scores - model_means), noise, own)

    def best(self, blocked: Indices) -> int | None:
        """Return the arm with the largest estimate that is not in `blocked`; None if there is none."""
        is_allowed = ~np.isin(self.arms, blocked)
        return int(self.arms[np.argmax(np.where(is_allowed, self.means, -np.inf))]) if is_allowed.any() else None

    @property
    def shows_own_effects(self) -> bool:
        """Whether repeats have shown that individual effects are a part of the fitted noise."""
        return self.noise < OWN_PULLS * self.own

    def exceeds(self, arm: int, mean: float, variance: float) -> bool:
        """Return whether the lower bound of the evaluated `arm` is at least the upper bound of a new
        arm whose score has this mean and variance without its individual effect."""
        at = np.searchsorted(self.arms, arm)
        lower = self.means[at] - EXCEEDS_WIDTH * math.sqrt(self.noise / (self.weights[at] + self.noise / self.own))
        return bool(lower >= mean + EXCEEDS_WIDTH * math.sqrt(variance + self.own))

    def contender(self, open_pulls: Sequence[int], blocked: Indices) -> int | None:
        """Return the arm with the largest upper bound, computed from individual effects only, given
        `open_pulls`. Arms in `blocked` are excluded. None if the bounds of the best arm and of all
        others do not overlap, or if fewer than two arms are left."""
        opened = np.array(open_pulls, np.intp)
        pulls = self.weights.copy()
        np.add.at(pulls, np.searchsorted(self.arms, opened[np.isin(opened, self.arms)]), 1)
        is_allowed = ~np.isin(self.arms, blocked)
        arms = self.arms[is_allowed]
        means = self.means[is_allowed]
        if len(arms) < 2:
            return None
        widths = WIDTH * np.sqrt(self.noise / (pulls[is_allowed] + self.noise / self.own))
        best = int(np.argmax(means))
        upper = means + widths
        return int(arms[np.argmax(upper)]) if np.delete(upper, best).max() >= means[best] - widths[best] else None


def recommendation(state: SparseState, belief: Belief | None = None) -> int | None:
    """Return the pulled arm to recommend if it may differ from the arm with the largest mean
    reward; otherwise None. It is the arm with the largest estimate (`Estimates`) if the fitted
    noise is large; without individual effects, among the arms with the best rewards, because the
    model may mistake a narrow optimum for noise. Two exceptions: rewards are deterministic, or arms do not
    repeat and those around the best one show no noise (`local_noise`). Unless rewards are deterministic, arms
    whose mean reward is implausibly far above all others are ignored. So are arms whose pulls were all stopped
    early, and arms outside the space.
    Return None if there are several objectives or constraints.
    """
    is_single = state.goals.is_single
    arms = state.pulls.finished_arms
    is_outside = np.isin(arms, state.outside)
    if state.calibration is None or not is_single or is_outside.all():
        return None
    means = state.pulls.reward_sums[arms] / state.pulls.counts[arms]
    if state.is_deterministic:
        return int(arms[np.argmax(np.where(is_outside, -np.inf, means))]) if is_outside.any() else None
    if state.curve_evidence is not None:
        return _recommendation_by_curves(state, state.curve_evidence)
    outlier = is_outlier(means) | is_outside
    if has_known_noise(state.pulls):  # the posterior weighs each result by its deviation
        expected, _ = (sparse_belief(state) if belief is None else belief)(arms)
        return int(arms[np.argmax(np.where(outlier, -np.inf, expected))])
    is_fitted = state.pulls.total >= CHECKED_FROM
    is_luck = is_fitted and is_noisy(state.calibration.fitted)
    plausible = means[~outlier]
    layout = state.layout
    kernel = state.model.kernel
    if is_luck and layout is not None and not layout.repeats and isinstance(kernel, AnyKernel):
        # without repeats, the differences around the best arm show whether they are noise
        is_luck = local_noise(state.model.arms[arms[~outlier]], plausible, layout, kernel) > NO_NOISE
    if not is_luck:
        return int(arms[np.argmax(np.where(outlier, -np.inf, means))]) if outlier.any() else None
    is_allowed = ~outlier
    if layout is None or not layout.repeats:  # else estimates include the arms' own rewards
        is_allowed &= means >= np.sort(plausible)[-max(LEAST_PLAUSIBLE, len(plausible) // PLAUSIBLE_PART) :][0]
    return int(arms[np.argmax(np.where(is_allowed, Estimates.of(state, belief).means, -np.inf))])


def _recommendation_by_curves(state: SparseState, evidence: CurveEvidence) -> int | None:
    """Return the arm of the finished trial with the best prediction, if single values are noisy.
    Trials whose final value is in the worse half are ignored, because values at steps may
    contradict the final ones (if a different quantity was reported)."""
    finished = np.flatnonzero(evidence.values.is_finished & (evidence.values.trials >= 0))
    if not len(finished):
        return None
    final = evidence.values.rewards[evidence.values.last[finished]]
    finished = finished[final >= np.median(final)]
    predictions = predict(state.posterior, evidence, finished)
    if predictions.noise <= NEGLIGIBLE_NOISE:
        return None
    return int(predictions.arms[np.argmax(predictions.means)])


def estimate(state: SparseState, arm: int) -> tuple[float, float] | None:
    """Return the estimated reward of the recommended arm, which has a finished pull, and its
    standard deviation; see the module's docstring. None before the first fit, with several
    objectives, and if fewer than three means differ, because a scale needs three."""
    if (evidence := state.curve_evidence) is not None:
        return _estimate_by_curves(state, evidence, arm) if evidence.scale.slope > 0.0 else None
    is_known = state.knowledge.has_fit and state.goals.is_single
    if not is_known or state.knowledge.scale.slope <= 0.0:
        return None
    pulls = float(state.model.weights(state.pulls)[arm])
    noise = _measured_noise(state)
    posterior = state.posterior
    if noise > state.model.regularization:
        posterior = state.model.with_regularization(noise).fit(state.evidence, state.dictionary)
    (centered,), (variance,), _ = posterior.moments(np.array([arm], np.intp))
    mean = centered + posterior.fit.offset
    weight = pulls / (pulls + RECOMMENDED_OWN_PULLS)
    own_reward = state.pulls.reward_sums[[arm]] / state.pulls.counts[arm]
    mean += weight * (state.knowledge.scale.scores(own_reward)[0] - mean)
    own = noise / (pulls + RECOMMENDED_OWN_PULLS)
    deviation = _error_ratio(state) * math.sqrt(own + (1.0 - weight) ** 2 * noise * variance)
    return _in_rewards(state.knowledge.scale, mean, deviation)


def _estimate_by_curves(state: SparseState, evidence: CurveEvidence, arm: int) -> tuple[float, float]:
    """Return the estimated final reward of `arm`, which has a finished trial, and its standard
    deviation.

    One trial does not show which part of its effect is due to its seed. The estimate takes half of
    it, and the deviation includes the other half.
    """
    (at, *_) = np.flatnonzero(evidence.values.is_finished & (evidence.values.arms == arm))
    own = curve_kernel(state.model).numbers.own
    (centred,), (variance,), _ = state.posterior.moments(np.array([arm], np.intp))
    quality = centred + state.posterior.fit.offset
    final = float(predict(state.posterior, evidence, np.array([at])).means[0])
    deviation = math.sqrt(state.model.regularization * variance + own / 4.0)
    return _in_rewards(evidence.scale, (quality + final) / 2.0, deviation)


def _in_rewards(scale: Scale, mean: float, deviation: float) -> tuple[float, float]:
    """Convert the mean and the standard deviation of a score to those of a reward."""
    low, middle, high = scale.rewards(mean + deviation * np.array([-1.0, 0.0, 1.0])).tolist()
    return middle, (high - low) / 2.0


def _measured_noise(state: SparseState) -> float:
    """Return the variance of a score's noise: the fitted variance, or a larger one that is shown by
    repeated evaluations of the better half of the arms, whose scores are linear in their
    rewards."""
    return max(state.model.regularization, _pooled_noise(state, FITTED_PULLS))


def _pooled_noise(state: SparseState, weight: float) -> float:
    """Return the variance of a score's noise: the mean of the fitted variance, with the weight of
    `weight` repeated evaluations, and of the squared deviations between repeated evaluations of the
    better half of the arms."""
    fitted = state.model.regularization
    if has_known_noise(state.pulls):
        return fitted
    finished = state.pulls.finished
    arms = state.pulls.finished_arms
    means = finished.sums[arms] / finished.counts[arms]
    better = arms[means >= np.median(means)]
    freedom = float(np.sum(finished.counts[better] - 1))
    slope = state.knowledge.scale.slope
    measured = slope * slope * float(finished.squares[better].sum())
    noise = (weight * fitted + measured) / (weight + freedom)
    return noise if math.isfinite(noise) else fitted


def _error_ratio(state: SparseState) -> float:
    """Return the size of the model's leave-one-out errors at the best arms, relative to their
    expected size; at least 1."""
    arms = state.pulls.finished_arms
    arms = arms[:: -(-len(arms) // MOST_CHECKED)]
    means, variances = sparse_belief(state)(arms)
    pulls = state.model.weights(state.pulls)[arms]
    errors = state.knowledge.scale.scores(state.pulls.reward_sums[arms] / state.pulls.counts[arms]) - means
    unexplained = np.maximum(1.0 - pulls * variances, LEAST_LEFT)
    squared = pulls * errors * errors / (state.model.regularization * unexplained)
    best = np.argsort(-means, kind="stable")[: max(LEAST_BEST, len(arms) // BEST_PART)]
    return math.sqrt(max(1.0, float(squared[best].mean())))


@dataclass(frozen=True)
class OpenArms:
    """The arms that the strategy may choose for the next pick.

    An arm that was chosen before, pending or not, is not chosen again until all arms were chosen,
    except by verification and exploitation. The papers' presets and `verify: 0` leave repeats to
    the strategy.
    """

    blocked: Indices  # arms that may not be chosen, ascending
    # the number of arms not chosen yet; 0 if the strategy decides about repeats
    left: int
    reason: str = ""  # the reason of the picks of other arms

    @staticmethod
    def of(state: SparseState, pending: Sequence[int], verify: float) -> "OpenArms":
        """Return the arms that may be chosen at `state`; `verify`: the share of repeats."""
        blocked = state.blocked_arms(pending)
        if not verify or state.calibration is None or not state.repeats:
            return OpenArms(blocked, 0)
        chosen = np.union1d(np.union1d(blocked, state.pulls.arms), np.array(pending, np.intp))
        left = len(state.model.arms) - len(chosen)
        return OpenArms(chosen, left) if left else OpenArms(blocked, 0, EXHAUSTED)


def has_best(state: SparseState) -> bool:
    """Return whether there is a best arm to repeat. False with several objectives, and with learning
    curves, whose model lacks individual effects of arms."""
    return state.knowledge.has_fit and state.goals.is_single and not state.curve_state.known.trials


def may_verify(state: SparseState) -> bool:
    """Return whether single values are noisy enough that the best arms deserve further evaluations.

    Both the fitted noise and the repeats so far must indicate it.
    """
    if state.calibration is None or not has_best(state) or state.is_deterministic:
        return False
    return is_noisy(state.calibration.fitted) and _pooled_noise(state, weight=1.0) > NEGLIGIBLE_NOISE


def next_arm(
    state: SparseState,
    open_pulls: Sequence[int],
    verify: float,
    best: Callable[[Indices], int],
    belief: Belief | None = None,
) -> tuple[int, str]:
    """Return the arm and the reason of the next pick.

    Args:
        state: the state of the search.
        open_pulls: the pending pulls, and the picks before this one.
        verify: the share of the picks that repeat the best arms; see `OpenArms`.
        best: returns the strategy's choice if the given arms, ascending, may not be chosen.
        belief: returns mean and variance of arms; None for those of the sparse posterior.
    """
    arms = OpenArms.of(state, open_pulls, verify)
    if arms.left:
        repeat = repeat_due(state, open_pulls, verify, lambda: Estimates.of(state, belief))
    else:
        repeat = check_due(state, open_pulls, verify)
    if repeat is not None:
        return repeat
    return best(arms.blocked), arms.reason


def next_pull(
    state: SparseState,
    pending: Sequence[int],
    limit: int,
    verify: float,
    best: Callable[[Indices], int],
    width: float,
    belief: Belief | None = None,
) -> Decision:
    """Return the next arm of the warm start, then `next_arm`; no arm while a reward is missing.

    `width`: the pick's width, a factor on σ of the 1/λ scale, NaN if none. Raises ValueError if
    `limit` is below 1.
    """
    refused: Decision | None = sequential_refusal(state, pending, limit) or no_arm_left(state, pending)
    if len(state.curve_state.paused) and not pending:
        refused = without_new_arms(state, pending, limit, WIDTH)
    if refused is not None:
        return refused
    start = state.remaining_start()
    if start:
        return Choose((Pick(start[0]),), "warm start")
    arm, reason = next_arm(state, pending, verify, best, belief)
    moments = sparse_belief(state) if belief is None else belief
    (mean,), (variance,) = moments(np.array([arm], np.intp))
    pick = Pick(arm, float(mean), width, float(variance), reason=reason)
    return Choose((pick,), "one pull at a time")


def repeat_due(
    state: SparseState, open_pulls: Sequence[int], verify: float, estimates: Callable[[], Estimates]
) -> tuple[int, str] | None:
    """Return the arm that the next pick repeats, and the reason, while other arms are left; None if
    it does not repeat one. See `next_arm`."""
    picks = state.picks_before(len(open_pulls))
    peak = state.peak
    explores = peak.explorations(picks + 1) > peak.explorations(picks)
    if not explores and has_best(state) and not has_plateau(state):
        best = estimates().best(state.blocked_arms())
        return None if best is None else (best, EXPLOITATION)
    if not is_verification_due(state, open_pulls, verify) or not may_verify(state):
        return None
    contender = estimates().contender(open_pulls, state.blocked_arms())
    return None if contender is None else (contender, VERIFICATION)


def check_due(state: SparseState, open_pulls: Sequence[int], share: float) -> tuple[int, str] | None:
    """Return the arm that the next pick repeats, and the reason, in a space whose arms are not repeated for an
    estimate; None if it repeats none.

    If a fit, perhaps the last one, shows noise, the recommended arm may not be the one with the best mean reward.
    Thus that arm is pulled again, once and early. While the fit shows noise, it is pulled until its rewards
    differ, or are shown to be deterministic.
    """
    layout = state.layout
    if layout is None or layout.repeats or layout.is_deterministic is not None or not has_best(state):
        return None
    if state.pulls.total < CHECKED_FROM or state.pulls.varies or state.pulls.noise is not None:
        return None
    may_be_noisy = state.calibration is not None and is_noisy(state.calibration.fitted) and not state.is_deterministic
    if (state.pulls.repeats and not may_be_noisy) or not is_verification_due(state, open_pulls, share):
        return None
    arms = np.setdiff1d(state.pulls.finished_arms, np.union1d(state.set_aside, state.outside), assume_unique=True)
    if not len(arms):
        return None
    return int(arms[np.argmax(state.pulls.reward_sums[arms] / state.pulls.counts[arms])]), VERIFICATION


def is_verification_due(state: SparseState, open_pulls: Sequence[int], share: float) -> bool:
    """Return whether the next exploring pick repeats one of the best arms. With the default shares,
    `is_coverage_due` never selects the same picks. Until two values of one arm have differed, at
    most one repeat is pending."""
    if not state.pulls.varies and np.isin(np.array(open_pulls, np.intp), state.pulls.arms).any():
        return False
    number = state.peak.explorations(state.picks_before(len(open_pulls)) + 1)
    return math.floor((number + 1) * share) > math.floor(number * share)
