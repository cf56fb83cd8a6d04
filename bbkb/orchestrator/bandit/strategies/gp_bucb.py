"""GP-BUCB: batches with the exact Gaussian process (Desautels, Krause, Burdick 2014)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from bbkb.orchestrator.bandit.exact.posterior import ExactPosterior
from bbkb.orchestrator.bandit.exact.strategy import ExactState, ExactStrategy
from bbkb.orchestrator.bandit.options import Width
from bbkb.orchestrator.bandit.scheduling import DriftOptions, WidthOptions
from bbkb.orchestrator.bandit.sparse.state import no_arm_left
from bbkb.orchestrator.bandit.sparse.termination import Drift, NoDrift, ProductDrift
from bbkb.orchestrator.bandit.sparse.verification import next_arm
from bbkb.orchestrator.bandit.start.warm_start import ONE_PULL, WarmStartOption, extend_failed_start, next_start
from bbkb.orchestrator.bandit.strategy import Choose, Decision, Observation, Pick, Wait, refusal


@dataclass(frozen=True)
class GPBUCB(DriftOptions, WidthOptions, ExactStrategy[ExactState]):
    """The hyperparameters of GP-BUCB (Desautels et al. 2014, Algorithm 1). Raises ValueError if one
    is out of range.

    The picks of a batch are chosen one by one as argmax μ_fb + α σ_t: the mean is frozen, and every
    pick shrinks the exact variance. The batch ends when Π (1 + σ²_{s−1}(x_s)) > C over the picks,
    including pending pulls (BBKB Proposition 2). α = C β with GP-UCB's β = ξ √(G + 2 log 1/δ) + √λ
    F. A pick costs O(p² + pA) with p distinct arms that were pulled or picked.
    """

    warm_start: WarmStartOption = ONE_PULL
    width: Width = None

    def ask(self, state: ExactState, pending: Sequence[int], limit: int) -> Decision:
        """Return the arms of the warm start first, then a batch of at most `limit` picks. `pending`
        pulls are included in the variance and in the product."""
        wait = refusal(state, limit) or no_arm_left(state, pending)
        if wait:
            return wait
        start = next_start(state, pending, limit, never_waits=self.never_waits)
        picks = [Pick(arm) for arm in start]
        if picks and (len(picks) == limit or not self.never_waits or not state.pulls.total):
            return Choose(tuple(picks), "warm start")
        drift: Drift = NoDrift() if self.never_waits else ProductDrift(self.ratio_threshold)
        belief = state.belief
        width = self.width_at(state)
        pulls = [*pending, *start]
        left = state.picks_left(pulls, limit - len(start))
        for arm in pulls:
            belief = _append(belief, arm, drift)
        if drift.is_spent():
            return Wait("the drift budget is spent on pulls whose rewards have not arrived")
        while left and not drift.is_spent():
            left -= 1
            # x = argmax u, the lowest index among equals; the arm that crosses the threshold
            # belongs to the batch
            ucb = belief.mean + width * np.sqrt(belief.variance)
            best = partial(state.best, ucb)
            arm, reason = next_arm(state, pulls, self.verify, best, state.moments)
            pulls.append(arm)
            mean = float(belief.mean[arm])
            variance = float(belief.variance[arm])
            picks.append(Pick(arm, mean, width, variance, reason=reason))
            belief = _append(belief, arm, drift)
        return Choose(tuple(picks), "drift budget" if drift.is_spent() else "limit")

    def tell(self, state: ExactState, observations: Sequence[Observation], rng: np.random.Generator) -> ExactState:
        """See `ExactStrategy.tell`; a warm start without any result is extended
        (`extend_failed_start`).

        The prior variance is 1/λ times k, so a single pick from the prior may spend the drift
        budget, no matter how many workers are free.
        """
        after = super().tell(state, observations, rng)
        return extend_failed_start(after, rng)

    def width_at(self, state: ExactState) -> float:
        """Return α = C β at `state`, a factor on σ of the 1/λ scale."""
        if self.width is not None:
            return self.width * math.sqrt(state.model.regularization)
        return self.ratio_threshold * self.exact_width(self.regularization, state.belief.information_gain)


def _append(belief: ExactPosterior, arm: int, drift: Drift) -> ExactPosterior:
    """Return the belief with a pull of `arm` without its reward. The pull is added to `drift`."""
    drift.append(arm, float(belief.variance[arm]))
    return belief.pull_without_reward(arm)
