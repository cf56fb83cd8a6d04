"""BKB: budgeted kernel bandits (Calandriello, Carratino, Lazaric, Valko, Rosasco 2019, Algorithm
1).

Arms are pulled one at a time, and each pull is followed by a new dictionary. BKB is BBKB with
batches of one arm and a different width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices, first_largest
from bbkb.orchestrator.bandit.exact.strategy import log_improvement
from bbkb.orchestrator.bandit.model.outputs import score_pulls
from bbkb.orchestrator.bandit.options import Width
from bbkb.orchestrator.bandit.sparse.picking import Picking
from bbkb.orchestrator.bandit.sparse.state import SparseState
from bbkb.orchestrator.bandit.sparse.strategy import SparseStrategy
from bbkb.orchestrator.bandit.sparse.verification import next_pull
from bbkb.orchestrator.bandit.start.warm_start import ONE_PULL, WarmStartOption, begin_sparse, begin_state
from bbkb.orchestrator.bandit.strategy import Decision, Observation

Acquisition = Literal["ucb", "ei", "mpi"]
ACCURACY = 0.5  # ε: a dictionary keeps all variances within (1 ± ε) of the exact ones


@dataclass(frozen=True)
class BKB(SparseStrategy[SparseState]):
    """The hyperparameters of BKB (Calandriello et al. 2019, Algorithm 1). Raises ValueError if one
    is out of range.

    Each pull is the argmax of μ̃ + β̃ σ̃ with the width of Theorem 2. `is_sequential`: no arm is
    chosen while a reward is missing, so a second worker would be idle.

    `acquisition`: with `ei` and `mpi`, which have no regret bound, each pull has the largest
    expected improvement over the largest mean reward or over the largest posterior mean, as in the
    comparison of Bedi, Sadler et al. (section 4).
    """

    warm_start: WarmStartOption = ONE_PULL
    width: Width = None
    acquisition: Annotated[
        Acquisition,
        Doc("`ucb`: the largest upper bound; `ei`, `mpi`: the expected improvement over the best reward or mean."),
    ] = "ucb"
    is_sequential: ClassVar[Literal[True]] = True

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> SparseState:
        """Return the state before any pull of `arms` (A, d); draws the warm start."""
        return begin_state(arms, (self.kernel, self.regularization), self.model, self.warm_start, rng)

    def ask(self, state: SparseState, pending: Sequence[int], limit: int) -> Decision:
        """Return one arm unless one is pending: first those of the warm start, then argmax u."""
        width = self.width_at(state)

        def best(blocked: Indices) -> int:
            if self.acquisition == "ucb":
                return Picking.begin(state, width, blocked).queue(blocked).top()
            scores = self._improvement(state, blocked)
            scores[blocked] = -np.inf
            return first_largest(scores)

        return next_pull(state, pending, limit, self.verify, best, width)

    def _improvement(self, state: SparseState, blocked: Indices) -> Floats:
        """Return the logarithm of the expected improvement of every arm (A,), on the Bayesian
        scale."""
        mean = state.posterior.mean
        deviation = np.sqrt(state.model.regularization * state.posterior.variance)
        if self.acquisition == "mpi":
            return log_improvement(mean, deviation, float(np.delete(mean, blocked).max()))
        pulls = score_pulls(state.pulls, state.model.outputs)
        rewards = pulls.reward_sums[pulls.arms] / pulls.counts[pulls.arms]
        return log_improvement(mean, deviation, float(rewards.max(initial=mean.min())))

    def width_at(self, state: SparseState) -> float:
        """Return β̃ at `state` (Theorem 2): 2ξ √(a log(κ²t) Σσ̃² + log 1/δ) + (1 + 1/√(1 − ε)) √λ
        F, a = (1 + ε)/(1 − ε).

        The sum over the t pulls, with the variances at `state`, estimates the effective dimension.
        """
        if self.width is not None:
            return self.width * math.sqrt(state.model.regularization)
        pulls = state.pulls
        a = (1.0 + ACCURACY) / (1.0 - ACCURACY)
        dimension = float(pulls.counts[pulls.arms] @ state.posterior.moments(pulls.arms)[1])
        # log(κ²t) d_eff estimates log det(I + K/λ), which is not negative
        logarithm = math.log(max(1.0, float(state.model.diagonal.max()) * pulls.total))
        noise = math.sqrt(self.noise_variance)
        log_delta = math.log(1.0 / self.delta)
        bias = (1.0 + 1.0 / math.sqrt(1.0 - ACCURACY)) * math.sqrt(self.regularization) * self.norm_bound
        return 2.0 * noise * math.sqrt(a * logarithm * dimension + log_delta) + bias

    def gain(self, variance: Floats) -> float:
        """Return 0, because this width does not depend on G."""
        return 0.0

    def begin(self, state: SparseState, existing: Sequence[Observation], rng: np.random.Generator) -> SparseState:
        """Return the state with these existing pulls; see `begin_sparse`."""
        return replace(begin_sparse(state, existing, rng, self.model), information_gain=0.0)
