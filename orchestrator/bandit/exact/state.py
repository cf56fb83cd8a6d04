"""The state of strategies with an exact posterior: observations and belief."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices, read_only, same
from orchestrator.bandit.exact.incremental import ExactPosterior
from orchestrator.bandit.model.model import Model
from orchestrator.bandit.observations import arms_and_rewards
from orchestrator.bandit.pulls import Pulls
from orchestrator.bandit.sparse.recalibration import calibrate, calibration_record, restore_calibration
from orchestrator.bandit.sparse.recommendation import recommendation
from orchestrator.bandit.sparse.state import SparseState, recorded_start
from orchestrator.bandit.strategy import Observation, Pick, Posterior, Record

# from this number of first pulls on, one factorization is faster than an update for each pull
_MANY = 64


@dataclass(frozen=True, eq=False)
class ExactState:
    """State of the strategies with an exact posterior: `base`, the observations, and the `belief`
    after them. A strategy with more state adds fields in a subclass; the methods of this class
    preserve them.

    The belief is a function of the rewards and of the order of the `tell`s. It is stored because
    each belief is an update of the previous one. There is no dictionary.
    """

    base: SparseState
    belief: ExactPosterior

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @staticmethod
    def begin(base: SparseState) -> "ExactState":
        """Return the state with the prior belief."""
        return ExactState(base, ExactPosterior.prior(base.model))

    @property
    def arms(self) -> Floats:
        """The candidates (A, d)."""
        return self.base.model.features

    @property
    def pulls(self) -> Pulls:
        """The pulls that have a reward."""
        return self.base.pulls

    @property
    def round(self) -> int:
        """The number of `tell`s."""
        return self.base.round

    @property
    def set_aside(self) -> Indices:
        """The arms that could not be evaluated, ascending."""
        return self.base.set_aside

    @property
    def dictionary(self) -> Indices:
        """Empty, because the posterior is exact."""
        return self.base.dictionary

    def observe(self, observations: Sequence[Observation], model: Model | None = None) -> Self:
        """Return the state of the next round, with these pulls and set-aside arms.

        `model`: the strategy's calibrated model. It is checked against these results, and fitted to
        them if a fit is due.
        """
        base = calibrate(self.base.observe(observations), self.base, observations, model, self.moments)
        arms, rewards = arms_and_rewards(observations)
        return self._with(base, self._pull(arms, rewards) if model is None else self._score(base, arms))

    def restore(self, observations: Sequence[Observation], model: Model | None, record: Record) -> Self:
        """Like `observe`, with the warm start and the fitted values of `record`."""
        if model is None:
            return self.observe(observations).with_start(record.get("initial", self.base.initial))
        base = restore_calibration(self.base.observe(observations), model, record)
        belief = self._score(base, arms_and_rewards(observations)[0])
        return self._with(base, belief).with_start(record["initial"])

    def record(self) -> Record:
        """Return the record that `restore` reads."""
        return {"initial": list(self.base.initial), **calibration_record(self.base)}

    def recommend(self) -> int | None:
        """See `Recommends`."""
        return recommendation(self.base, self.moments)

    def _with(self, base: SparseState, belief: ExactPosterior) -> Self:
        return replace(self, base=base, belief=belief)

    def _pull(self, arms: Sequence[int], rewards: Sequence[float]) -> ExactPosterior:
        """Return the belief after these additional pulls."""
        belief = self.belief
        if len(arms) > _MANY and not len(belief.order):  # existing data
            return ExactPosterior.after(belief.model, arms, rewards)
        for arm, reward in zip(arms, rewards, strict=True):
            belief = belief.pull(arm, reward)
        return belief

    def _score(self, base: SparseState, arms: Sequence[int]) -> ExactPosterior:
        """Return the belief at `base`, which has additional pulls of `arms`, with new scores of all
        arms and, after a fit, a new kernel."""
        belief = self.belief
        if not base.pulls.total:
            return belief
        if base.model is not belief.model or len(arms) > _MANY:
            return ExactPosterior.of(base.model, base.pulls, base.pulls.arms)
        for arm in arms:
            belief = belief.pull_without_reward(arm)
        return belief.rescore(base.pulls) if arms else belief

    def moments(self, arms: Indices) -> tuple[Floats, Floats]:
        """Return mean and variance of `arms` (n,), on the 1/λ scale."""
        return self.belief.mean[arms], self.belief.variance[arms]

    def with_start(self, initial: Sequence[int]) -> Self:
        """Return this state with the recorded arms of the warm start."""
        arms = recorded_start(initial, len(self.base.model.arms))
        return self._with(replace(self.base, initial=arms), self.belief)

    def posterior(self, width: float) -> Posterior:
        """Return the belief over all arms, for display; `width`: factor on σ of the 1/λ scale."""
        belief = self.belief
        ucb = belief.mean + width * np.sqrt(belief.variance)
        return Posterior(
            mean=belief.mean, variance=belief.variance, ucb=read_only(ucb, np.float64), unit=belief.model.regularization
        )

    def without_set_aside(self, scores: Floats) -> Floats:
        """Return `scores` (A,) with −∞ for the arms that may never be chosen."""
        masked = scores.copy()
        masked[self.base.blocked_arms()] = -np.inf
        return masked

    def best(self, scores: Floats, blocked: Indices) -> int:
        """Return the unblocked arm with the largest of `scores` (A,). Ties go to the lowest
        index."""
        masked = scores.copy()
        masked[blocked] = -np.inf
        return int(np.argmax(masked))

    def pick(self, arm: int, width: float, reason: str = "") -> Pick:
        """Return the pick of `arm` with its moments; `width`: a factor on σ of the 1/λ scale."""
        belief = self.belief
        return Pick(arm, float(belief.mean[arm]), width, float(belief.variance[arm]), reason=reason)
