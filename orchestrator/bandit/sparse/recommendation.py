"""The recommended arm, if it may differ from the arm with the largest mean reward."""

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.kernels import AnyKernel
from orchestrator.bandit.model.fitting import local_noise
from orchestrator.bandit.model.outputs import is_outlier
from orchestrator.bandit.sparse.calibrated import CHECKED_FROM, NEGLIGIBLE_NOISE, Belief, is_noisy
from orchestrator.bandit.sparse.curve_fit import CurveEvidence, predict
from orchestrator.bandit.sparse.state import SparseState
from orchestrator.bandit.sparse.verification import Estimates

NO_NOISE = 0.01  # the variance of a score among the arms around the best one


def recommendation(state: SparseState, belief: Belief | None = None) -> int | None:
    """Return the pulled arm to recommend if it may differ from the arm with the largest mean
    reward; otherwise None. It is the arm with the largest estimate (`Estimates`) if the fitted
    noise is large. Two exceptions: repeated pulls always had the same reward, or no arm was pulled
    twice and the arms around the best one show no noise (`local_noise`). Arms whose mean reward is
    implausibly far above all others are ignored, as are arms whose pulls were all stopped early.
    Return None if there are several objectives or constraints.
    """
    is_single = state.goals.is_single
    if state.calibration is None or not is_single or not len(arms := state.pulls.finished_arms):
        return None
    if state.curve_evidence is not None:
        return _recommendation_by_curves(state, state.curve_evidence)
    means = state.pulls.reward_sums[arms] / state.pulls.counts[arms]
    outlier = is_outlier(means)
    is_fitted = state.pulls.total >= CHECKED_FROM
    is_luck = is_fitted and is_noisy(state.calibration.fitted) and not state.pulls.looks_deterministic
    is_luck = is_luck and not _is_smooth_around_the_best(state, arms[~outlier], means[~outlier])
    if not is_luck and not outlier.any():
        return None
    recommended_by = Estimates.of(state, belief).means if is_luck else means
    return int(arms[np.argmax(np.where(outlier, -np.inf, recommended_by))])


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


def _is_smooth_around_the_best(state: SparseState, arms: Indices, means: Floats) -> bool:
    """Return whether the differences between the `means` (p,) of the `arms` around the best one are
    not noise, judged without repeated pulls."""
    if state.layout is None or state.layout.repeats or not isinstance(state.model.kernel, AnyKernel):
        return False
    return local_noise(state.model.all_arms.look_up(arms), means, state.layout, state.model.kernel) <= NO_NOISE
