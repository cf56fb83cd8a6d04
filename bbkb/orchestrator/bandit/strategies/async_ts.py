"""Asynchronous Thompson sampling (Kandasamy, Krishnamurthy, Schneider, Póczos 2018, Algorithm 2), a
method that BBKB is compared with.

Draws are made in the Nyström embedding, so a draw over all arms costs O(mA) and does not need the
arms' covariance matrix.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated

import numpy as np
from annotated_types import Gt
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.options import MostPending
from bbkb.orchestrator.bandit.scheduling import PendingOptions
from bbkb.orchestrator.bandit.sparse.forecasts import without_new_arms
from bbkb.orchestrator.bandit.sparse.state import SparseState
from bbkb.orchestrator.bandit.sparse.strategy import SparseStrategy
from bbkb.orchestrator.bandit.sparse.verification import WIDTH, next_arm
from bbkb.orchestrator.bandit.start.warm_start import begin_state
from bbkb.orchestrator.bandit.strategy import Decision, Observation, Pick, Record, refusal


@dataclass(frozen=True, eq=False, kw_only=True)
class AsyncTSState(SparseState):
    """`seed` is drawn by `init`. `over` counts the pulls that have ended, including failures."""

    seed: int
    over: int

    @cached_property
    def residual_deviation(self) -> Floats:
        """√((k(x, x) − ‖z(x)‖²)/λ) of every arm (A,), outside the embedding: σ̃² minus zᵀV⁻¹z."""
        posterior = self.posterior
        embedded = np.empty(len(posterior.variance))
        for block in posterior.model.parts():
            whitened = posterior.model.columns.rows(block, posterior.fit.basis) @ posterior.fit.transform.T
            embedded[block] = np.einsum("ij,ij->i", whitened, whitened)
        # rounding can make the value of a dictionary's arm negative
        deviation: Floats = np.sqrt(np.maximum(posterior.variance - embedded, 0.0))
        return deviation


@dataclass(frozen=True)
class AsyncTS(PendingOptions, SparseStrategy[AsyncTSState]):
    """The hyperparameters of async-TS (Kandasamy et al. 2018, Algorithm 2). Raises ValueError if
    one is out of range.

    Each pick is the argmax of one draw μ̃ + β (zᵀV^{−1/2} g + √((k − ‖z‖²)/λ) h), where g and h are
    independent standard normal and h has one component per arm: its variance is β² σ̃². The
    posterior does not include pending pulls; picks differ because they are drawn (Kandasamy et al.
    2018). The method has no rule for batches, so at most `batch_size` pulls are pending. In mode
    `async`, an idle worker immediately receives a draw, as published. The draw of the i-th pull is
    a function of the posterior, the seed and i, so `ask` is pure.

    β = `scale` · [ξ √(G + log 1/δ) + √λ F] with BBKB's G; the dictionary is drawn as in BBKB.
    BBKB's experiments (Appendix D) use `batch_size` 30 and `scale` 0.1.
    """

    batch_size: MostPending = 30
    scale: Annotated[float, Gt(0), Doc("The factor on β, > 0.")] = 0.1
    width: Annotated[
        Annotated[float, Gt(0)] | None,
        Doc("The standard deviation of a draw, in posterior standard deviations, > 0; None: β."),
    ] = None

    @property
    def draws_as_proven(self) -> bool:
        """False: its batches have no drift budget."""
        return False

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> AsyncTSState:
        """Return the state before any pull of `arms` (A, d). Raises ValueError for bad arms."""
        base = begin_state(arms, (self.kernel, self.regularization), self.model, None, rng)
        return AsyncTSState.of(base, seed=int(rng.integers(2**32)), over=0)

    def ask(self, state: AsyncTSState, pending: Sequence[int], limit: int) -> Decision:
        """Return one draw for each pick, at most as many as `limit` and `batch_size` allow. The
        first draws are from the prior."""
        refused = refusal(state, limit) or without_new_arms(state, pending, limit, WIDTH)
        if refused is not None:
            return refused
        pick = partial(self._pick, state, self.width_at(state))
        return self.choose(pending, limit, state.picks_left, pick)

    def _pick(self, state: AsyncTSState, width: float, pending: Sequence[int]) -> Pick:
        """Return the argmax of the draw of the next pull. Ties go to the lowest index."""
        posterior = state.posterior
        sample = posterior.mean + width * self._deviation(state, state.over + len(pending))

        def best(blocked: Indices) -> int:
            sample[blocked] = -np.inf
            return int(np.argmax(sample))

        arm, reason = next_arm(state, pending, self.verify, best)
        mean = float(posterior.mean[arm])
        variance = float(posterior.variance[arm])
        return Pick(arm, mean, width, variance, reason=reason)

    def _deviation(self, state: AsyncTSState, pull: int) -> Floats:
        """Return a draw (A,) with mean 0 and variance σ̃²."""
        rng = np.random.default_rng([state.seed, pull])
        posterior = state.posterior
        deviation = state.residual_deviation * rng.standard_normal(len(posterior.variance))
        # y(x) = T k_𝒮(x) equals V^{−1/2}z(x) up to a rotation, which does not change the
        # distribution of the draw
        weights = rng.standard_normal(len(posterior.basis)) @ posterior.fit.transform
        for block in posterior.model.parts():
            deviation[block] += posterior.model.columns.rows(block, posterior.fit.basis) @ weights
        return deviation

    def width_at(self, state: AsyncTSState) -> float:
        """Return β at `state`, a factor on σ̃ of the 1/λ scale."""
        if self.width is not None:
            return self.width * math.sqrt(state.model.regularization)
        variances = (self.noise_variance, self.regularization)
        return self.scale * self.sparse_width("practical", 1.0, variances, state.information_gain)

    def tell(self, state: AsyncTSState, observations: Sequence[Observation], rng: np.random.Generator) -> AsyncTSState:
        """See `SparseStrategy.tell`."""
        return replace(super().tell(state, observations, rng), over=state.over + len(observations))

    def recorded(self, state: AsyncTSState) -> Record:
        """Return the seed and the record that every sparse strategy has."""
        return {"seed": state.seed, **super().recorded(state)}

    def restore(self, state: AsyncTSState, observations: Sequence[Observation], record: Record) -> AsyncTSState:
        """Like `tell`, with the drawn values of `record`; fits nothing."""
        after = super().restore(state, observations, record)
        over = state.over + len(observations)
        return replace(after, seed=int(record["seed"]), over=over)
