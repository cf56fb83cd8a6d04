"""The common part of strategies with a sparse posterior: learning and recording, but not
choosing."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices, freeze, read_only
from bbkb.orchestrator.bandit.confidence import WidthOptions, information_gain
from bbkb.orchestrator.bandit.curves import Curves
from bbkb.orchestrator.bandit.model.model import ModelOptions
from bbkb.orchestrator.bandit.model.reliability import reliability_and_cautious
from bbkb.orchestrator.bandit.observations import arms_and_rewards, with_set_aside
from bbkb.orchestrator.bandit.results import CurveUpdate
from bbkb.orchestrator.bandit.sparse.curve_fit import CurveEvidence, pair_variances
from bbkb.orchestrator.bandit.sparse.dictionary import (
    DictionaryOptions,
    draw_pairs,
    resparsify,
    without_own_pulls,
)
from bbkb.orchestrator.bandit.sparse.forecasts import forecasts
from bbkb.orchestrator.bandit.sparse.posterior import SparsePosterior
from bbkb.orchestrator.bandit.sparse.recalibration import (
    calibrate,
    calibration_record,
    posterior_before,
    restore_calibration,
)
from bbkb.orchestrator.bandit.sparse.state import SparseState, recorded_start
from bbkb.orchestrator.bandit.sparse.verification import estimate, recommendation
from bbkb.orchestrator.bandit.strategy import Observation, Posterior, Record, TrialForecast

# the largest number of atoms of a model over steps, unless the strategy has a smaller limit
MOST_PAIRS = 400

S = TypeVar("S", bound=SparseState)


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
        arms = arms_and_rewards(observations)[0]
        has_learned = bool(arms) or len(after.failed) > len(state.failed)
        over_steps = after.knowledge.learns_curves and self.model is not None and self.model.is_fitted
        if not over_steps and (not has_learned or not after.pulls.total):
            return after
        after = calibrate(after, state, observations, self.model)
        if after.curve_evidence is not None:
            return self._draw_pairs(after, after.curve_evidence, posterior_before(state, after), oversampling)
        pulled = after.evidence.arms
        before = posterior_before(state, after)
        _, old, rows = (before.moments if self.model is None else before.joint_moments)(pulled)
        counts = state.evidence.counts[pulled]
        embedded = np.vecdot(rows, rows)
        drawn_by = without_own_pulls(counts, old, embedded) if self.resampling == "stable" else old
        dictionary = resparsify(
            after.evidence, drawn_by, oversampling, self.resampling, rng, limit=self.dictionary_limit
        )
        gain = state.information_gain + self.gain(old[np.searchsorted(pulled, arms)])
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
    def _pair_limit(self) -> int:
        """The largest number of atoms of a model over steps."""
        return min(MOST_PAIRS, self.dictionary_limit or MOST_PAIRS)

    def _draw_pairs(self, after: S, evidence: CurveEvidence, before: SparsePosterior, oversampling: float) -> S:
        """Return `after` with a dictionary of pairs, drawn by their variances under `before`."""
        variances = pair_variances(before, evidence)
        dictionary = draw_pairs(evidence.values.numbers, variances, oversampling, self._pair_limit)
        return replace(after, dictionary=dictionary)

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
        """Return the dictionary, the information gain, the warm start's arms, the fitted values,
        and the reliability of steps if there are learning curves."""
        knowledge = state.knowledge
        return {
            "dictionary": state.dictionary.tolist(),
            "information_gain": state.information_gain,
            "initial": list(state.initial),
            **calibration_record(state),
            **(_reliability(knowledge.curves) if knowledge.learns_curves else {}),
        }

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


def _reliability(curves: Curves) -> Record:
    """Return the estimated correlations between values at steps and final ones, and cautious ones,
    which are at most as large."""
    likely, cautious = reliability_and_cautious(curves)
    return {"reliability": likely, "cautious_reliability": cautious}
