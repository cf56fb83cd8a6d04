"""The state of strategies with an exact posterior: observations and belief."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices, first_largest, read_only
from bbkb.orchestrator.bandit.exact.incremental import ExactPosterior
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.observations import arms_and_rewards
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.recalibration import calibrate, calibration_record, restore_calibration
from bbkb.orchestrator.bandit.sparse.state import SparseState, recorded_start
from bbkb.orchestrator.bandit.strategy import Observation, Pick, Posterior, Record

# from this number of first pulls on, one factorization is faster than an update for each pull
_MANY = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactState(SparseState):
    """The state of strategies with an exact posterior: the observations, without a dictionary, and
    the `belief` after them. A strategy with more state adds fields in a subclass; the methods of
    this class preserve them.

    The belief is a function of the rewards and of the order of the `tell`s. It is stored because
    each belief is an update of the previous one. The inherited `posterior` is not used.
    """

    belief: ExactPosterior

    @classmethod
    def begin(cls, base: SparseState, **further: Any) -> Self:
        """Return the state before any pull, with the prior belief and the `further` fields of a
        subclass."""
        values = {field.name: getattr(base, field.name) for field in fields(base)}
        return cls(**values, belief=ExactPosterior.prior(base.model), **further)

    def observe(self, observations: Sequence[Observation], model: Model | None = None) -> Self:
        """Return the state of the next round, with these pulls and set-aside arms.

        `model`: the strategy's calibrated model. It is checked against these results, and fitted to
        them if a fit is due.
        """
        after = calibrate(super().observe(observations), self, observations, model, self.moments)
        arms, rewards = arms_and_rewards(observations)
        belief = self._pull(arms, rewards) if model is None else after._score(arms)
        return replace(after, belief=belief)

    def restore(self, observations: Sequence[Observation], model: Model | None, record: Record) -> Self:
        """Like `observe`, with the warm start and the fitted values of `record`."""
        if model is None:
            return self.observe(observations).with_start(record.get("initial", self.initial))
        after = restore_calibration(super().observe(observations), model, record)
        belief = after._score(arms_and_rewards(observations)[0])
        return replace(after, belief=belief).with_start(record["initial"])

    def record(self) -> Record:
        """Return the record that `restore` reads."""
        return {"initial": list(self.initial), **calibration_record(self)}

    def _pull(self, arms: Sequence[int], rewards: Sequence[float]) -> ExactPosterior:
        """Return the belief after these additional pulls."""
        belief = self.belief
        if len(arms) > _MANY and not len(belief.order):  # existing data
            pulls = Pulls.none(len(belief.model.arms)).add(arms, rewards)
            order = np.array(list(dict.fromkeys(arms)), np.intp)
            return ExactPosterior.of(belief.model, pulls, order)
        for arm, reward in zip(arms, rewards, strict=True):
            belief = belief.pull(arm, reward)
        return belief

    def _score(self, arms: Sequence[int]) -> ExactPosterior:
        """Return the belief after additional pulls of `arms`, with new scores of all arms and,
        after a fit, a new kernel."""
        belief = self.belief
        if not self.pulls.total:
            return belief
        if self.model is not belief.model or len(arms) > _MANY:
            return ExactPosterior.of(self.model, self.pulls, self.pulls.arms)
        for arm in arms:
            belief = belief.pull_without_reward(arm)
        return belief.rescore(self.pulls) if arms else belief

    def moments(self, arms: Indices) -> tuple[Floats, Floats]:
        """Return mean and variance of `arms` (n,), on the 1/λ scale."""
        return self.belief.mean[arms], self.belief.variance[arms]

    def with_start(self, initial: Sequence[int]) -> Self:
        """Return this state with the recorded arms of the warm start."""
        return replace(self, initial=recorded_start(initial, len(self.model.arms)))

    def display(self, width: float) -> Posterior:
        """Return the belief over all arms, for display; `width`: factor on σ of the 1/λ scale."""
        belief = self.belief
        ucb = belief.mean + width * np.sqrt(belief.variance)
        return Posterior(
            mean=belief.mean, variance=belief.variance, ucb=read_only(ucb, np.float64), unit=belief.model.regularization
        )

    def best(self, scores: Floats, blocked: Indices) -> int:
        """Return the unblocked arm with the largest of `scores` (A,). Ties go to the lowest
        index."""
        masked = scores.copy()
        masked[blocked] = -np.inf
        return first_largest(masked)

    def pick(self, arm: int, width: float, reason: str = "") -> Pick:
        """Return the pick of `arm` with its moments; `width`: a factor on σ of the 1/λ scale."""
        belief = self.belief
        return Pick(arm, float(belief.mean[arm]), width, float(belief.variance[arm]), reason=reason)
