"""The arm to recommend, where it may differ from that of the largest mean reward."""

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.kernels import AnyKernel
from orchestrator.bandit.model.fitting import local_noise
from orchestrator.bandit.model.outputs import is_outlier
from orchestrator.bandit.sparse.calibrated import CHECKED_FROM, NEGLIGIBLE_NOISE, Belief, is_noisy
from orchestrator.bandit.sparse.curve_fit import CurveEvidence, predict
from orchestrator.bandit.sparse.state import SparseState
from orchestrator.bandit.sparse.verification import Estimates

NO_NOISE = 0.01  # variance of a score among the arms around the best one


def recommendation(state: SparseState, belief: Belief | None = None) -> int | None:
    """Return the pulled arm to recommend if it may differ from that of largest mean reward; else
    None. It is the arm of largest estimate (`Estimates`) if the fitted noise is large, unless repeated
    pulls always gave the same reward, or no arm is pulled twice and the arms around the best one
    show no noise (`local_noise`). A mean reward that is implausibly far above all others is left
    out, and so is an arm of which every pull was stopped early. None with several objectives or
    constraints.
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
    """Of the arms of finished trials the one whose prediction is best, where single values are
    noisy; of those whose own final value is not in the worse half, because values at steps may
    contradict the final ones (another quantity was reported)."""
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
    """Return whether the differences of `means` (p,) of the `arms` around the best one are not
    noise, when no arm repeats."""
    if state.layout is None or state.layout.repeats or not isinstance(state.model.kernel, AnyKernel):
        return False
    return local_noise(state.model.all_arms.look_up(arms), means, state.layout, state.model.kernel) <= NO_NOISE
