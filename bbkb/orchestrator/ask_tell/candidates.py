"""`CandidateOptimizer`: ask and tell for the rows of an array, without a campaign. It needs only
NumPy and SciPy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bbkb.objectives.keywords import checks_arguments
from bbkb.orchestrator.ask_tell.base import AskTell, Entry, Kind, build_arms, dump_arms, dump_named, exclusive
from bbkb.orchestrator.ask_tell.checks import (
    StrategyChoice,
    check_existing,
    check_indices,
    check_limit,
    check_numbers,
    check_results,
    check_seed,
    named_strategy,
)
from bbkb.orchestrator.ask_tell.search import ArmResult, Search
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.strategy import AnyStrategy, never_waits
from bbkb.orchestrator.campaign.settings import UNLIMITED, Budget, Settings
from bbkb.orchestrator.engine.pool import Pool

_SETTINGS = Settings(name="", budget=Budget(evaluations=UNLIMITED))  # rewards are maximized


@dataclass(frozen=True)
class _Setup:
    """The arguments of a search over the rows of an array. They never change."""

    arms: Arms
    strategy: AnyStrategy
    seed: int

    @property
    def title(self) -> str:
        """The number of candidates."""
        return f"{len(self.arms)} candidates"

    def dump(self) -> Entry:
        """Return the arguments as plain values."""
        return {"arms": dump_arms(self.arms), "strategy": dump_named(self.strategy), "seed": self.seed}

    @staticmethod
    def build(dumped: Mapping[str, Any]) -> "_Setup":
        """Return the arguments that `dump` wrote."""
        # imported here, because only saving needs pydantic
        from bbkb.orchestrator.settings.strategies import build_strategy

        return _Setup(build_arms(dumped["arms"]), build_strategy(dumped["strategy"]), int(dumped["seed"]))

    def search(self) -> Search:
        """Return the search before any event."""
        return Search(self.strategy, self.seed, Pool.of_rows(self.arms), _SETTINGS)


class CandidateOptimizer(AskTell):
    """Finds the candidate with the largest expected reward: `ask` proposes candidates, `tell`
    receives rewards.

    `Optimizer` does the same for the configurations of a search space.

    Args:
        candidates: an array (A, d) whose rows are the features of the candidates; or `Arms`, which
            also specify the features of each parameter and whether a candidate may be evaluated
            more than once.
        strategy: an object with options, such as `BBKB(coverage=0.1)` from `bbkb.strategies`; or a
            name: bbkb, uniform, gp_ucb, …, which `bbkb strategies` lists; or `module:Name` or a
            class of your own. Without options, the model is fitted to the rewards.
        seed: a whole number, >= 0; the same calls with the same seed return the same candidates.
        existing: a pair of indices (n,) and finite rewards (n,): previously known results, which
            replace the strategy's warm start.

    Rewards are maximized; their scale does not matter. Several threads may use one optimizer.

    Raises:
        ValueError: if the candidates, options or results are invalid.

    >>> import numpy as np
    >>> from bbkb import CandidateOptimizer
    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> optimizer = CandidateOptimizer(x, seed=1)
    >>> for _ in range(30):
    ...     arms = optimizer.ask()
    ...     optimizer.tell(arms, np.sin(6 * x[arms, 0]))
    >>> best = optimizer.best
    >>> print(f"x = {x[best.parameters['candidate'], 0]:.1f}, reward = {best.value:.1f}")
    x = 0.3, reward = 1.0
    """

    KIND: ClassVar[Kind] = "arms"
    NOUN: ClassVar[str] = "reward"
    SETUP = _Setup
    _setup: _Setup

    @checks_arguments
    def __init__(
        self,
        candidates: ArrayLike | Arms,
        strategy: StrategyChoice = "bbkb",
        seed: int = 0,
        existing: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> None:
        instance = named_strategy(strategy, has_existing=existing is not None)
        arms = candidates if isinstance(candidates, Arms) else Arms.of(candidates)
        setup = _Setup(arms, instance, check_seed(seed))
        super().__init__(setup, setup.search())
        if existing is not None:
            self._search.know(check_existing(existing, len(arms)))

    @exclusive
    def ask(self, limit: int | None = None) -> NDArray[np.intp]:
        """Choose the candidates to evaluate next, at most `limit`. They are pending until `tell`.

        The array is empty if `tell` must first receive rewards of pending candidates, or if no
        candidate is left. If an index appears twice, evaluate the candidate twice.

        Args:
            limit: the largest number of indices, >= 1, such as the number of free workers; None:
                the strategy's own batch, at most A, and 1 for strategies without batches.

        Returns:
            The indices (n,) of rows of `candidates`, in the order of choice.

        Raises:
            ValueError: if `limit` is not a whole number >= 1.
        """
        if limit is None:
            limit = 1 if never_waits(self._search.strategy) else len(self._setup.arms)
        return np.array(self._search.ask(check_limit(limit)), np.intp)

    @exclusive
    def mark_pending(self, indices: ArrayLike) -> None:
        """Mark candidates that `ask` did not return as pending until `tell` receives their rewards.

        Args:
            indices: rows of `candidates` (n,).

        Raises:
            ValueError: if one is out of range.
        """
        self._search.mark_pending(check_indices(indices, len(self._setup.arms)))

    @exclusive
    def tell(self, indices: ArrayLike, rewards: ArrayLike) -> None:
        """Report rewards (n,) of the candidates `indices` (n,). Order and batching do not matter.

        Indices that `ask` did not return are existing results. A strategy that never waits learns
        results together, at the next `ask` after their number has grown by `refresh_growth`.

        Args:
            indices: rows of `candidates` (n,).
            rewards: one for each index (n,), to be maximized.

        Raises:
            ValueError: if an index is out of range, a reward is not finite, or the numbers of
                indices and rewards differ. No result is then recorded.
        """
        self._search.tell(check_results(indices, rewards, len(self._setup.arms)))

    @exclusive
    def fail(self, indices: ArrayLike) -> None:
        """Report that evaluations failed. `ask` does not return these candidates again.

        Args:
            indices: rows of `candidates` (n,).

        Raises:
            ValueError: if one is out of range.
        """
        self._search.tell([ArmResult(arm, None) for arm in check_indices(indices, len(self._setup.arms))])

    @property
    @exclusive
    def pending(self) -> NDArray[np.intp]:
        """Indices (n,), returned by `ask`, that have no reward yet, in order."""
        return np.array(self._search.pending, np.intp)

    @property
    def mean(self) -> NDArray[np.float64]:
        """The posterior mean of each candidate (A,): of its reward, or of the reward's score under
        a calibrated model."""
        return self.posterior.mean

    @property
    def variance(self) -> NDArray[np.float64]:
        """The posterior variance of each candidate (A,), in units of the noise variance λ: σ² = λ ·
        variance."""
        return self.posterior.variance

    @property
    def ucb(self) -> NDArray[np.float64]:
        """The upper confidence bound of each candidate (A,)."""
        return self.posterior.ucb

    @property
    @exclusive
    def dictionary(self) -> NDArray[np.intp]:
        """Indices (m,) of the inducing points; empty if the strategy has none."""
        return self._search.view.dictionary

    @exclusive
    def scores(self, rewards: ArrayLike) -> NDArray[np.float64]:
        """Transform rewards (n,) as for the model: to scores relative to the results so far under a
        calibrated model; otherwise unchanged.

        Args:
            rewards: numbers (n,).

        Raises:
            ValueError: before the first reward, and if they are not numbers.
        """
        return self._results.scores(check_numbers(rewards, "rewards"))
