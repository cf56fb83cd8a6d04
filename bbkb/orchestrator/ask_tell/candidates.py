"""`CandidateOptimizer`: ask and tell for the rows of an array, without a campaign. It needs only
NumPy and SciPy."""

import base64
import io
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bbkb.objectives.errors import checks_arguments
from bbkb.orchestrator.ask_tell.base import AskTell, Entry, Kind, exclusive
from bbkb.orchestrator.ask_tell.checks import (
    check_existing,
    check_indices,
    check_limit,
    check_numbers,
    check_results,
    check_seed,
    named_strategy,
)
from bbkb.orchestrator.ask_tell.search import ArmResult, Search
from bbkb.orchestrator.bandit.arms import Arms, Layout, check_features
from bbkb.orchestrator.bandit.strategies.presets import StrategyChoice
from bbkb.orchestrator.bandit.strategy import AnyStrategy, never_waits
from bbkb.orchestrator.campaign.settings import UNLIMITED, Budget, Settings
from bbkb.orchestrator.engine.pool import Pool


def _search(arms: Arms, strategy: AnyStrategy, seed: int) -> Search:
    """Return the search before any event. Rewards are maximized."""
    settings = Settings(name="optimizer", seed=seed, budget=Budget(evaluations=UNLIMITED))
    return Search(strategy, Pool.of_rows(arms), settings)


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
        super().__init__(_search(arms, instance, check_seed(seed)))
        if existing is not None:
            self._search.know(check_existing(existing, len(arms)))

    @property
    def _size(self) -> int:
        return len(self._search.engine.pool)

    @property
    def _title(self) -> str:
        return f"{self._size} candidates"

    def _arguments(self) -> Entry:
        # imported here, because only saving needs pydantic
        from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy

        arms = self._search.engine.pool.rows
        assert arms is not None
        if not isinstance(arms.features, np.ndarray):
            raise ValueError(f"candidates must be one array to be saved, got {type(arms.features).__name__}")
        strategy = self._search.strategy
        try:
            dumped = dict(dump_strategy(strategy))
            problem = "" if build_strategy(dumped) == strategy else "it would be loaded as another one"
        except (ValueError, TypeError) as error:  # includes pydantic's errors
            problem = str(error).splitlines()[0]
        if problem:
            raise ValueError(
                f"the strategy {strategy!r} cannot be written into a file: {problem}; its options must be plain values "
                "or parts of bbkb"
            )
        features = io.BytesIO()  # in NumPy's format, so that no digit is lost
        np.save(features, arms.features, allow_pickle=False)
        return {
            "arms": {
                "features": base64.b64encode(features.getvalue()).decode("ascii"),
                "parameters": arms.layout.parameters.tolist(),
                "extents": arms.layout.extents.tolist(),
                "repeats": arms.layout.repeats,
                "is_deterministic": arms.layout.is_deterministic,
                "is_sequence": arms.layout.is_sequence,
            },
            "strategy": dumped,
            "seed": self._search.state.settings.seed,
        }

    @staticmethod
    def _begun(saved: Mapping[str, Any]) -> Search:
        from bbkb.orchestrator.settings.strategies import build_strategy

        arms = saved["arms"]
        content = base64.b64decode(arms["features"], validate=True)
        features = check_features(np.load(io.BytesIO(content), allow_pickle=False))
        layout = Layout(
            parameters=np.array(arms["parameters"], np.intp),
            extents=np.array(arms["extents"], np.float64),
            repeats=bool(arms["repeats"]),
            is_deterministic=None if arms["is_deterministic"] is None else bool(arms["is_deterministic"]),
            is_sequence=bool(arms["is_sequence"]),
        )
        return _search(Arms(features, layout), build_strategy(saved["strategy"]), int(saved["seed"]))

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
            limit = 1 if never_waits(self._search.strategy) else self._size
        return np.array(self._search.ask(check_limit(limit)), np.intp)

    @exclusive
    def mark_pending(self, indices: ArrayLike) -> None:
        """Mark candidates that `ask` did not return as pending until `tell` receives their rewards.

        Args:
            indices: rows of `candidates` (n,).

        Raises:
            ValueError: if one is out of range.
        """
        self._search.mark_pending(check_indices(indices, self._size))

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
        self._search.tell(check_results(indices, rewards, self._size))

    @exclusive
    def fail(self, indices: ArrayLike) -> None:
        """Report that evaluations failed. `ask` does not return these candidates again.

        Args:
            indices: rows of `candidates` (n,).

        Raises:
            ValueError: if one is out of range.
        """
        self._search.tell([ArmResult(arm, None) for arm in check_indices(indices, self._size)])

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
        return self._scores(check_numbers(rewards, "rewards"))
