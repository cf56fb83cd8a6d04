"""The data to which a sparse posterior is fitted, and values derived from them. Each value is
computed once, when it is needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bbkb.orchestrator.bandit.arrays import Indices
from bbkb.orchestrator.bandit.curves import Curves, CurveValues
from bbkb.orchestrator.bandit.goals import Goals
from bbkb.orchestrator.bandit.model.outputs import Scale, mean_rewards
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.calibrated import Calibration, is_noisy
from bbkb.orchestrator.bandit.sparse.curve_fit import (
    CurveEvidence,
    TrialPredictions,
    fit_evidence,
    predict,
    predict_unlearned,
)
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel, SparsePosterior
from bbkb.orchestrator.bandit.strategy import Prospect

# the largest number of learning-curve values in a fit, besides the latest value of each trial
MOST_CURVE_VALUES = 6000
# the number of neighbors of a failed arm; the failure counts if most of them also failed
NEIGHBORS = 5


@dataclass(frozen=True, eq=False, kw_only=True)
class Knowledge:
    """A model, the results to which it is fitted, and its dictionary. See `SparseState`."""

    model: SparseModel
    pulls: Pulls
    dictionary: Indices
    calibration: Calibration | None
    goals: Goals
    failed: Indices
    curves: Curves
    outside: Indices

    @cached_property
    def posterior(self) -> SparsePosterior:
        """The posterior, fitted to `curve_evidence`, or to `evidence` if the model has no steps."""
        if self.curve_evidence is not None:
            return fit_evidence(self.model, self.curve_evidence, self.dictionary)
        return self.model.fit(self.evidence, self.dictionary)

    @cached_property
    def evidence(self) -> Pulls:
        """The pulls to which the model is fitted: `pulls`, and, for each arm that failed like its
        neighbors, one pull with the worst mean rewards so far. The search then leaves a region of
        failures. A single failed arm has no effect on others."""
        pulls = self.pulls
        arms = self._failed_with_neighbors()
        if not len(arms):
            return pulls
        worst, *further = (mean_rewards(output).min(initial=np.inf) for output in pulls.outputs)
        if not np.isfinite(further).all():  # an output without a value so far
            return pulls
        return pulls.add(arms, np.full(len(arms), worst), np.tile(further, (len(arms), 1)))

    @cached_property
    def curve_evidence(self) -> CurveEvidence | None:
        """The values to which the model over steps is fitted; None if the model has no steps."""
        if self.calibration is None or self.calibration.fitted.curve is None:
            return None
        return self.make_curve_evidence()

    def make_curve_evidence(self) -> CurveEvidence:
        """Return the values for a model over steps.

        Results without a curve count as values at the last step. These are existing data, and arms
        that failed like their neighbors, which have the worst value.
        """
        failed = self._failed_with_neighbors()
        with_curve = np.array([curve.arm for curve in self.curves.trials], np.intp)
        arms = np.setdiff1d(self.pulls.arms, with_curve)
        means = self.pulls.reward_sums[arms] / self.pulls.counts[arms]
        learned = self.curves.learned
        latest = np.concatenate(([curve.rewards[-1] for curve in learned.trials], means))
        worst = np.full(len(failed), latest.min(initial=np.inf))
        weights = np.concatenate((self.pulls.counts[arms].astype(np.float64), np.ones(len(failed))))
        arms = np.concatenate((arms, failed))
        rewards = np.concatenate((means, worst))
        values = CurveValues.of(learned.within(MOST_CURVE_VALUES), arms, rewards, weights)
        scale = Scale(latest, self.model.outputs)
        return CurveEvidence(values, self.model.arms[values.arms], scale)

    @cached_property
    def learns_curves(self) -> bool:
        """Whether there is a value before the last step that the model can learn. This requires the
        fitted calibrated model, and a single objective without constraints."""
        return self.calibration is not None and self.goals.is_single and self.curves.is_informative

    def predictions(self, trials: Sequence[int]) -> TrialPredictions | None:
        """Return the predicted final values of those of the given trials that have reported; None
        if the model has no steps."""
        evidence = self.curve_evidence
        if evidence is None:
            return None
        numbers = evidence.values.trials
        at = np.flatnonzero(np.isin(numbers, np.array(trials, np.intp)) & (numbers >= 0))
        predictions = predict(self.posterior, evidence, at)
        by_trial = self.curves.by_trial
        unlearned = (by_trial.keys() - self.curves.learned.by_trial.keys()).intersection(trials)
        if not unlearned:
            return predictions
        curves = [by_trial[trial] for trial in unlearned]
        return predictions.merged(predict_unlearned(self.posterior, evidence, curves))

    @cached_property
    def scale(self) -> Scale:
        """The map from mean rewards to scores."""
        return Scale(mean_rewards(self.evidence), self.model.outputs)

    @cached_property
    def best_score(self) -> float:
        """The score of the best mean reward; if rewards are noisy, the best posterior mean of a
        pulled arm. Arms `outside` count only if there are no others."""
        arms = self.pulls.arms
        counted = ~np.isin(arms, self.outside) if len(self.outside) else np.ones(len(arms), np.bool_)
        counted |= not counted.any()
        if self.calibration is not None and is_noisy(self.calibration.fitted):
            return float(self.posterior.moments(arms[counted])[0].max()) + self.posterior.fit.offset
        return float(self.scale.scores(mean_rewards(self.pulls))[counted].max())

    @property
    def has_prospect(self) -> bool:
        """Whether `prospect` can be computed, which is not the case before the first fit of the
        model, with several objectives or with learning curves."""
        is_fitted = self.calibration is not None and self.calibration.fitted.results > 0
        return is_fitted and self.goals.is_single and self.curve_evidence is None

    def prospect(self, bound: float) -> Prospect:
        """Return the expected benefit of further evaluations, given the largest upper bound on a
        score. Requires `has_prospect`."""
        best = self.best_score
        scores = np.array([best, max(best, bound), best + np.sqrt(self.model.regularization)])
        rewards = self.scale.rewards(scores)
        return Prospect(gain=float(rewards[1] - rewards[0]), noise=float(rewards[2] - rewards[0]))

    def _failed_with_neighbors(self) -> Indices:
        """Return the arms that always failed, like most of their nearest evaluated arms."""
        arms = np.setdiff1d(self.failed, self.pulls.arms, assume_unique=True)
        if not len(arms) or not self.pulls.total:
            return arms[:0]
        evaluated = np.concatenate((arms, self.pulls.arms))
        features = self.model.arms
        likeness = self.model.kernel.cross(features[arms], features[evaluated])
        likeness[np.arange(len(arms)), np.arange(len(arms))] = -np.inf
        nearest = np.argsort(-likeness, axis=1, kind="stable")[:, :NEIGHBORS]
        failed_near = np.count_nonzero(nearest < len(arms), axis=1)
        among_failed: Indices = arms[failed_near > NEIGHBORS // 2]
        return among_failed
