"""ε-greedy on the exact Gaussian process (Sutton and Barto 2018, §2.2, with a posterior mean for the sample means)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from orchestrator.bandit.arms import Arms
from orchestrator.bandit.arrays import Floats, Indices, read_only, same
from orchestrator.bandit.checks import refusal, require, require_positive
from orchestrator.bandit.exact.incremental import ExactState
from orchestrator.bandit.kernels import RBF, AnyKernel
from orchestrator.bandit.model.model import Model
from orchestrator.bandit.pulls import Pulls
from orchestrator.bandit.sparse.state import exhausted
from orchestrator.bandit.start.beginning import begin_state
from orchestrator.bandit.strategy import Choose, Decision, Observation, Pick, Posterior, Record, Wait

_DEFAULT_KERNEL = RBF(0.7)


@dataclass(frozen=True, eq=False)
class EpsilonGreedyState:
    """`exact`: pulls and belief. `seed` is drawn by `init`; `told` counts the pulls that are over, failed ones too."""

    exact: ExactState
    seed: int
    told: int

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @property
    def pulls(self) -> Pulls:
        """The pulls with a reward."""
        return self.exact.pulls

    @property
    def round(self) -> int:
        """How many `tell`s made this state."""
        return self.exact.round

    @property
    def dictionary(self) -> Indices:
        """Empty: the posterior is exact."""
        return self.exact.dictionary


@dataclass(frozen=True)
class EpsilonGreedy:
    """Hyper-parameters of ε-greedy. Raises ValueError, naming the field, when one is out of range.

    The i-th pull is a uniform arm with probability ε, and argmax μ otherwise: a function of the belief, the seed and i,
    so `ask` is pure. Before any reward is in, all arms are alike and every pull is uniform. Pending pulls do not move
    the mean, so greedy pulls of one batch are all of one arm; the method has no rule for its batch, so at most
    `batch_size` pulls are pending: one, unless more are asked for.

    | field | symbol | meaning |
    | --- | --- | --- |
    | `kernel` | k | covariance function |
    | `regularization` | λ | ridge parameter, > 0 |
    | `exploration` | ε | probability of a uniform arm, in [0, 1] |
    | `batch_size` | | how many pulls may be pending, ≥ 1 |
    | `model` | | the calibrated model, in place of the kernel and λ; None: rewards as they come, nothing fitted |
    """

    kernel: AnyKernel = _DEFAULT_KERNEL
    regularization: float = 0.3
    exploration: float = 0.1
    batch_size: int = 1
    model: Model | None = None
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        require_positive(self, "regularization")
        require(self, "exploration", ">= 0 and <= 1", 0 <= self.exploration <= 1)
        require(self, "batch_size", ">= 1", self.batch_size >= 1)

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> EpsilonGreedyState:
        """State before any pull of `arms` (A, d). Raises ValueError on bad arms."""
        ground = begin_state(arms, (self.kernel, self.regularization), self.model, None, rng)
        return EpsilonGreedyState(ExactState.begin(ground), int(rng.integers(2**32)), 0)

    def ask(self, state: EpsilonGreedyState, pending: Sequence[int], limit: int) -> Decision:
        """As many arms as `limit` and `batch_size` allow."""
        wait = refusal(state.exact, limit) or exhausted(state.exact.ground, pending)
        if wait:
            return wait
        free = self.batch_size - len(pending)
        if free <= 0:
            return Wait("a whole batch is pending")
        first, chosen = state.told + len(pending), list(pending)
        for pull in range(first, first + state.exact.ground.left(pending, min(limit, free))):
            chosen.append(self._draw(state, pull, chosen))
        belief = state.exact.belief
        picks = (
            Pick(arm, mean=float(belief.mean[arm]), variance=float(belief.variance[arm]))
            for arm in chosen[len(pending) :]
        )
        return Choose(tuple(picks), "limit" if limit < free else "batch size")

    def _draw(self, state: EpsilonGreedyState, pull: int, pending: Sequence[int]) -> int:
        """The arm of the pull number `pull`."""
        rng, ground = np.random.default_rng([state.seed, pull]), state.exact.ground
        exploration = self.exploration if state.pulls.total else 1.0
        available = np.setdiff1d(np.arange(len(ground.model.arms)), ground.blocked(pending), assume_unique=True)
        if rng.random() < exploration:
            return int(rng.choice(available))
        return int(np.argmax(state.exact.without_set_aside(state.exact.belief.mean, pending)))  # ties: lowest index

    def tell(
        self, state: EpsilonGreedyState, observations: Sequence[Observation], rng: np.random.Generator
    ) -> EpsilonGreedyState:
        """State after these newly finished pulls; draws nothing."""
        return EpsilonGreedyState(
            state.exact.observe(observations, self.model), state.seed, state.told + len(observations)
        )

    def recorded(self, state: EpsilonGreedyState) -> Record:
        """The seed, and what was fitted."""
        return {"seed": state.seed, **state.exact.recorded()}

    def restore(
        self, state: EpsilonGreedyState, observations: Sequence[Observation], record: Record
    ) -> EpsilonGreedyState:
        """`tell` with the seed of `record`."""
        seed, told = int(record["seed"]), state.told + len(observations)
        return EpsilonGreedyState(state.exact.restored(observations, self.model, record), seed, told)

    def recommend(self, state: EpsilonGreedyState) -> int | None:
        """See `Recommends`: the pulled arm of largest posterior mean where rewards are noisy."""
        return state.exact.recommend()

    def posterior(self, state: EpsilonGreedyState) -> Posterior:
        """The belief over all arms at `state`; the upper bound is NaN: there is no width."""
        belief = state.exact.belief
        unknown = read_only(np.full(len(belief.mean), np.nan), np.float64)
        return Posterior(mean=belief.mean, variance=belief.variance, ucb=unknown, unit=belief.model.regularization)
