"""Repeated evaluations of the best arms, where single values are noisy.

A model over the parameters does not know how an arm differs from its neighbours. With much noise
the largest upper bound is then that of an arm that was evaluated before, and one arm would get half
of the evaluations. Instead, most picks are of arms that were not evaluated yet, and a share of them
repeats the best ones until their bounds separate. Where arms repeat, the estimate of an arm has a
part of its own: with μ̃ and σ̃ the model's, t the score of the mean reward of its n pulls and v the
noise, an own effect ~ N(0, v/N) gives

    m = μ̃ + w (t − μ̃),        s² = v/(n + N) + (1 − w)² σ̃²,        w = n/(n + N).

The estimate that is shown of the recommended arm (`estimate`) has three corrections, as the best of
many estimates is too good:

* Each arm has an own effect, also if arms do not repeat: a deviation from the model is not all
  noise. N is twice as large, because the arm was selected for its luck, too.
* v is the noise that repeated evaluations show, where that is more than the fitted one, and μ̃ and
  σ̃² are those of the model with that noise. The fit sees one mean for each arm, so in a space with
  few configurations it takes noise for differences between them.
* s is widened by the model's errors where it predicts the best values, each arm left out of its own
  prediction: with h = n σ̃²/v, the root of the mean of n (t − μ̃)²/(v (1 − h)) over the best quarter
  of the arms, if that is above 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.model.outputs import mean_rewards
from orchestrator.bandit.sparse.calibrated import NEGLIGIBLE_NOISE, Belief, is_noisy
from orchestrator.bandit.sparse.state import SparseState, sparse_belief

VERIFICATION = "verification"  # the reason of a pick that repeats one of the best arms
EXHAUSTED = "exhausted"  # the reason of a pick that repeats an arm because all were chosen
OWN_PULLS = 4.0  # N: pulls of an arm after which its own rewards count as much as the model's mean
WIDTH = 2.0  # standard deviations
RECOMMENDED_OWN_PULLS = 8.0  # N of the recommended arm
FITTED_PULLS = 4.0  # repeated evaluations that count as much as the fitted noise beside the measured one
MOST_CHECKED = 400  # arms whose errors are looked at
LEAST_BEST, BEST_PART = 8, 4  # of them, the best ones: one in four, and at least 8
LEAST_LEFT = 1e-3  # of 1 − h, for rounding


@dataclass(frozen=True)
class Estimates:
    """The estimates of the pulled arms, which include their own rewards."""

    arms: Indices  # (p,), those with a finished pull, ascending
    counts: Indices  # (p,), their pulls
    means: Floats  # (p,), estimates m of their scores
    model_variances: Floats  # (p,), (1 − w)² σ̃²
    noise: float  # v, the variance of a score; 0 if arms do not repeat, as if they had no own effect

    @staticmethod
    def of(state: SparseState, belief: Belief | None = None, arms: Indices | None = None) -> "Estimates":
        """Return the estimates at `state`; `belief`: of the model, None: the sparse posterior's;
        `arms`: of these alone, which have a finished pull, ascending."""
        arms = state.pulls.finished_arms if arms is None else arms
        counts = state.pulls.counts[arms]
        fitted = state.model.regularization
        model_means, variances = (sparse_belief(state) if belief is None else belief)(arms)
        own_scores = state.scale.scores(state.pulls.reward_sums[arms] / counts)
        has_own_effects = state.layout is not None and state.layout.repeats
        weights = counts / (counts + OWN_PULLS) if has_own_effects else np.zeros(len(arms))
        means = model_means + weights * (own_scores - model_means)
        noise = _pooled_noise(state, weight=1.0) if has_own_effects else 0.0
        return Estimates(arms, counts, means, (1.0 - weights) ** 2 * fitted * variances, noise)

    def contender(self, open_pulls: Sequence[int], blocked: Indices) -> int | None:
        """Return the arm with the largest upper bound when `open_pulls` are pending, by its own
        effect alone, of those not `blocked`; None where the bounds of the best of them and of all
        others are separate, or fewer than two are left."""
        opened = np.array(open_pulls, np.intp)
        pulls = self.counts.copy()
        np.add.at(pulls, np.searchsorted(self.arms, opened[np.isin(opened, self.arms)]), 1)
        is_allowed = ~np.isin(self.arms, blocked)
        arms = self.arms[is_allowed]
        means = self.means[is_allowed]
        if len(arms) < 2:
            return None
        widths = WIDTH * np.sqrt(self.noise / (pulls[is_allowed] + OWN_PULLS))
        best = int(np.argmax(means))
        upper = means + widths
        return int(arms[np.argmax(upper)]) if np.delete(upper, best).max() >= means[best] - widths[best] else None


def estimate(state: SparseState, arm: int) -> tuple[float, float] | None:
    """Return the estimate of the reward of the recommended arm, which has a finished pull, and its
    standard deviation; see the module's text. None before the first fit, with several objectives,
    with learning curves, and where fewer than three means differ: two are too few for a scale."""
    is_known = state.calibration is not None and state.calibration.fitted.results and state.goals.is_single
    if not is_known or state.curve_evidence is not None or state.scale.slope <= 0.0:
        return None
    count = int(state.pulls.counts[arm])
    noise = _measured_noise(state)
    posterior = state.posterior
    if noise > state.model.regularization:
        posterior = state.model.with_regularization(noise).fit(state.evidence, state.dictionary)
    (centred,), (variance,), _ = posterior.moments(np.array([arm], np.intp))
    mean = centred + posterior.fit.offset
    weight = count / (count + RECOMMENDED_OWN_PULLS)
    mean += weight * (state.scale.scores(state.pulls.reward_sums[[arm]] / count)[0] - mean)
    own = noise / (count + RECOMMENDED_OWN_PULLS)
    deviation = _error_ratio(state) * math.sqrt(own + (1.0 - weight) ** 2 * noise * variance)
    low, middle, high = state.scale.rewards(mean + deviation * np.array([-1.0, 0.0, 1.0])).tolist()
    return middle, (high - low) / 2.0


def _measured_noise(state: SparseState) -> float:
    """Return the variance of a score's noise: the fitted one, or more where repeated evaluations of
    the better half of the arms, whose scores are linear in their rewards, show it."""
    return max(state.model.regularization, _pooled_noise(state, FITTED_PULLS))


def _pooled_noise(state: SparseState, weight: float) -> float:
    """Return the variance of a score's noise: the mean of the fitted one, which counts as much as
    `weight` repeated evaluations, and of the squares of those of the better half of the arms."""
    fitted = state.model.regularization
    finished = state.pulls.finished
    arms = state.pulls.finished_arms
    means = finished.sums[arms] / finished.counts[arms]
    better = arms[means >= np.median(means)]
    freedom = float(np.sum(finished.counts[better] - 1))
    slope = state.scale.slope
    measured = slope * slope * float(finished.squares[better].sum())
    noise = (weight * fitted + measured) / (weight + freedom)
    return noise if math.isfinite(noise) else fitted


def _error_ratio(state: SparseState) -> float:
    """Return the size of the model's errors at the best arms, each left out of its own prediction,
    relative to the expected size; at least 1."""
    arms = state.pulls.finished_arms
    arms = arms[:: -(-len(arms) // MOST_CHECKED)]
    means, variances = sparse_belief(state)(arms)
    counts = state.pulls.counts[arms]
    errors = state.scale.scores(state.pulls.reward_sums[arms] / counts) - means
    unexplained = np.maximum(1.0 - counts * variances, LEAST_LEFT)
    squared = counts * errors * errors / (state.model.regularization * unexplained)
    best = np.argsort(-means, kind="stable")[: max(LEAST_BEST, len(arms) // BEST_PART)]
    return math.sqrt(max(1.0, float(squared[best].mean())))


@dataclass(frozen=True)
class OpenArms:
    """The arms that the next pick may choose.

    An arm that was chosen before, pending ones included, is not chosen again until all were; only
    `contender` repeats one. The papers' presets and `verify: 0` leave repeats to the strategy.
    """

    blocked: Indices  # arms that may not be chosen, ascending
    left: int  # how many arms were not chosen yet; 0 if the strategy decides about repeats
    reason: str = ""  # of the picks of other arms than those

    @staticmethod
    def of(state: SparseState, pending: Sequence[int], verify: float) -> "OpenArms":
        """Return the arms that may be chosen at `state`; `verify`: the share of repeats."""
        blocked = state.blocked_arms(pending)
        if not verify or state.calibration is None or not state.repeats:
            return OpenArms(blocked, 0)
        chosen = np.union1d(np.union1d(blocked, state.pulls.arms), np.array(pending, np.intp))
        left = len(state.model.arms) - len(chosen)
        return OpenArms(chosen, left) if left else OpenArms(blocked, 0, EXHAUSTED)


def may_verify(state: SparseState) -> bool:
    """Return whether single values are so noisy that the best arms are worth further evaluations.

    Both the fitted noise and the repeats so far must show it. A repeat that gave the same value as
    before shows that values are exact, unless different arms share values (counts, accuracies).
    Never with several objectives, and not with learning curves, whose model has no effect of an
    arm's own.
    """
    pulls = state.pulls
    if state.calibration is None or not state.goals.is_single or state.curves.trials:
        return False
    if not is_noisy(state.calibration.fitted) or _pooled_noise(state, weight=1.0) <= NEGLIGIBLE_NOISE:
        return False
    if pulls.varies or not pulls.repeats:
        return True
    means = mean_rewards(pulls)
    return len(np.unique(means)) < len(means)


def next_arm(
    state: SparseState,
    open_pulls: Sequence[int],
    verify: float,
    best: Callable[[Indices], int],
    belief: Belief | None = None,
) -> tuple[int, str]:
    """Return the arm of the next pick and the reason of the pick.

    Args:
        state: the state of the search.
        open_pulls: the pending pulls, and the picks before this one.
        verify: the share of the picks that repeat the best arms; see `OpenArms`.
        best: the strategy's choice if the given arms, ascending, may not be chosen.
        belief: the mean and variance of arms; None: those of the sparse posterior.
    """
    contender = contender_due(state, open_pulls, verify, belief)
    if contender is not None:
        return contender, VERIFICATION
    arms = OpenArms.of(state, open_pulls, verify)
    return best(arms.blocked), arms.reason


def contender_due(
    state: SparseState,
    open_pulls: Sequence[int],
    verify: float,
    belief: Belief | None = None,
) -> int | None:
    """Return the arm that the next pick repeats; None if it repeats none. See `next_arm`."""
    if not is_verification_due(state, open_pulls, verify) or not may_verify(state):
        return None
    if not OpenArms.of(state, open_pulls, verify).left:
        return None
    return Estimates.of(state, belief).contender(open_pulls, state.blocked_arms())


def is_verification_due(state: SparseState, open_pulls: Sequence[int], share: float) -> bool:
    """Return whether the next pick repeats one of the best arms; never the same picks as those of
    `is_coverage_due` with the default shares. Until two values of one arm have differed, only one
    repeat is pending at a time."""
    if not state.pulls.varies and np.isin(np.array(open_pulls, np.intp), state.pulls.arms).any():
        return False
    number = state.pulls.total + len(state.failed) + len(open_pulls) + 1
    return math.floor((number + 1) * share) > math.floor(number * share)
