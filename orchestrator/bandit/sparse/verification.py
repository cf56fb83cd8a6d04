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

* Each arm has an own effect, also where arms do not repeat: what differs from the model is not all
  noise. N is twice as large, because the arm was selected for its luck, too.
* v is the noise that repeated evaluations show, where that is more than the fitted one, and μ̃ and
  σ̃² are those of the model with that noise. The fit sees one mean for each arm, so in a space with
  few configurations it takes noise for differences between them.
* s is widened by the model's errors where it predicts the best values, each arm left out of its own
  prediction: with h = n σ̃²/v, the root of the mean of n (t − μ̃)²/(v (1 − h)) over the best quarter
  of the arms, if that is above 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.sparse.calibrated import Belief, is_noisy
from orchestrator.bandit.sparse.state import SparseState, sparse_belief

VERIFICATION = "verification"  # the reason of such a pick
OWN_PULLS = 4.0  # N: pulls of an arm after which its own rewards count as much as the model's mean
WIDTH = 2.0  # standard deviations
RESULTS = 50  # for each parameter: after so many the model alone chooses
RECOMMENDED_OWN_PULLS = 8.0  # N of the recommended arm
FITTED_PULLS = 4.0  # repeated evaluations that count as much as the fitted noise beside the measured one
MOST_CHECKED = 400  # arms whose errors are looked at
LEAST_BEST, BEST_PART = 8, 4  # of them, the best ones: one in four, and at least 8
LEAST_LEFT = 1e-3  # of 1 − h, for rounding


@dataclass(frozen=True)
class Estimates:
    """What the pulled arms are worth, their own rewards included."""

    arms: Indices  # (p,), those with a finished pull, ascending
    counts: Indices  # (p,), their pulls
    means: Floats  # (p,), estimates m of their scores
    model_variances: Floats  # (p,), (1 − w)² σ̃²
    noise: float  # v, the variance of a score; 0 where arms do not repeat, as if they had no own effect

    @staticmethod
    def of(state: SparseState, belief: Belief | None = None, arms: Indices | None = None) -> "Estimates":
        """Return the estimates at `state`; `belief`: of the model, None: the sparse posterior's;
        `arms`: of these alone, which have a finished pull, ascending."""
        arms = state.pulls.finished_arms if arms is None else arms
        counts, noise = state.pulls.counts[arms], state.model.regularization
        model_means, variances = (sparse_belief(state) if belief is None else belief)(arms)
        own_scores = state.scale.scores(state.pulls.reward_sums[arms] / counts)
        has_own_effects = state.layout is not None and state.layout.repeats
        weights = counts / (counts + OWN_PULLS) if has_own_effects else np.zeros(len(arms))
        means = model_means + weights * (own_scores - model_means)
        return Estimates(arms, counts, means, (1.0 - weights) ** 2 * noise * variances, noise * has_own_effects)

    def contender(self, open_pulls: Sequence[int], blocked: Indices) -> int | None:
        """Return the arm with the largest upper bound when `open_pulls` are pending, by its own
        effect alone, of those not `blocked`; None where the bounds of the best of them and of all
        others are separate, or fewer than two are left."""
        opened = np.array(open_pulls, np.intp)
        pulls = self.counts.copy()
        np.add.at(pulls, np.searchsorted(self.arms, opened[np.isin(opened, self.arms)]), 1)
        is_allowed = ~np.isin(self.arms, blocked)
        arms, means = self.arms[is_allowed], self.means[is_allowed]
        if len(arms) < 2:
            return None
        widths = WIDTH * np.sqrt(self.noise / (pulls[is_allowed] + OWN_PULLS))
        best, upper = int(np.argmax(means)), means + widths
        return int(arms[np.argmax(upper)]) if np.delete(upper, best).max() >= means[best] - widths[best] else None


def estimate(state: SparseState, arm: int) -> tuple[float, float] | None:
    """Return the estimate of the reward of the recommended arm, which has a finished pull, and its
    standard deviation; see the module's text. None before the first fit, with several objectives,
    with learning curves, and where fewer than three means differ: two are too few for a scale."""
    is_known = state.calibration is not None and state.calibration.fitted.results and state.goals.is_single
    if not is_known or state.curve_evidence is not None or state.scale.slope <= 0.0:
        return None
    count, noise = int(state.pulls.counts[arm]), _measured_noise(state)
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
    fitted, finished = state.model.regularization, state.pulls.finished
    arms = state.pulls.finished_arms
    means = finished.sums[arms] / finished.counts[arms]
    better = arms[means >= np.median(means)]
    freedom = float(np.sum(finished.counts[better] - 1))
    slope = state.scale.slope
    measured = slope * slope * float(finished.squares[better].sum())
    noise = (FITTED_PULLS * fitted + measured) / (FITTED_PULLS + freedom)
    return max(fitted, noise) if math.isfinite(noise) else fitted


def _error_ratio(state: SparseState) -> float:
    """Return the size of the model's errors at the best arms, each left out of its own prediction,
    relative to what it expects; 1 where they are smaller."""
    arms = state.pulls.finished_arms
    arms = arms[:: -(-len(arms) // MOST_CHECKED)]
    means, variances = sparse_belief(state)(arms)
    counts = state.pulls.counts[arms]
    errors = state.scale.scores(state.pulls.reward_sums[arms] / counts) - means
    unexplained = np.maximum(1.0 - counts * variances, LEAST_LEFT)
    squared = counts * errors * errors / (state.model.regularization * unexplained)
    best = np.argsort(-means, kind="stable")[: max(LEAST_BEST, len(arms) // BEST_PART)]
    return math.sqrt(max(1.0, float(squared[best].mean())))


def places_left(state: SparseState, pending: Sequence[int]) -> int:
    """Return how many picks of arms that were not chosen yet are made before the model alone
    decides about repeats; 0 where it does: where values are exact, the search is long, or half of
    the arms that were not retired were chosen."""
    if state.calibration is None or state.layout is None or not state.repeats or not state.goals.is_single:
        return 0
    is_short = state.pulls.total < RESULTS * state.layout.parameter_count
    if not is_short or not is_noisy(state.calibration.fitted) or state.curves.trials:
        return 0
    excluded = np.union1d(np.union1d(state.pulls.arms, state.failed), np.array(pending, np.intp))
    retired = np.setdiff1d(state.set_aside, excluded, assume_unique=True)
    return max((len(state.model.arms) - len(retired)) // 2 - len(excluded), 0)


def is_verification_due(state: SparseState, open_pulls: int, share: float) -> bool:
    """Return whether the next pick with so many pulls open repeats one of the best arms; never the
    same ones as `is_coverage_due` with the default shares."""
    number = state.pulls.total + len(state.failed) + open_pulls + 1
    return math.floor((number + 1) * share) > math.floor(number * share)
