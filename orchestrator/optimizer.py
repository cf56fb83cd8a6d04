"""The ask-and-tell face of the bandit core, for people without a campaign. Needs NumPy and SciPy only."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orchestrator.bandit.arms import Arms
from orchestrator.bandit.model.model import model_of, scores_among
from orchestrator.bandit.strategy import AnyStrategy, Posterior, Recommends, begin
from orchestrator.inputs import (
    checked_existing,
    checked_indices,
    checked_limit,
    checked_results,
)
from orchestrator.learner import Learner, never_waits
from orchestrator.named_strategy import named_strategy
from orchestrator.wording import facts_html

if TYPE_CHECKING:
    from orchestrator.space_optimizer import SpaceOptimizer


class Optimizer:
    """Finds the candidate with the largest expected reward, by asking for evaluations in batches.

    `candidates` (A, d): a row is an arm's feature vector; or `Arms`, which also say which features belong to one
    parameter and whether an arm may be evaluated twice. Rewards are maximised; their scale does not matter. `strategy`
    is a name (`bbkb`, `uniform`) and `options` are its fields: with none the model is fitted, `preset="paper"` gives
    the published algorithm. A kernel or warm start may be given by name, as a mapping, {"name": "rbf", "lengthscale":
    0.5}, or as an object. The same calls with the same `seed` give the same arms. `existing` is a pair of indices (n,)
    and finite rewards (n,): results known before, which take the place of the strategy's warm start. Raises ValueError
    on candidates, options or results that are not allowed.

    `Optimizer(space={"x": Range(0, 1)}, direction="minimize")` asks and tells configurations: see `SpaceOptimizer`.

    >>> import numpy as np
    >>> from bbkb import Optimizer
    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> optimizer = Optimizer(x, seed=1)
    >>> for _ in range(30):
    ...     arms = optimizer.ask()
    ...     optimizer.tell(arms, np.sin(6 * x[arms, 0]))
    >>> arm, reward = optimizer.best()
    >>> print(f"x = {x[arm, 0]:.1f}, reward = {reward:.1f}")
    x = 0.3, reward = 1.0
    """

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """An optimizer of candidates; with `space=`, one of configurations: see `SpaceOptimizer`."""
        if "space" not in options or cls is not Optimizer:
            return super().__new__(cls)
        from orchestrator.space_optimizer import SpaceOptimizer  # here: an array needs numpy and scipy only

        return SpaceOptimizer(*args, **options)

    @staticmethod
    def load(path: str | Path) -> "SpaceOptimizer":
        """The optimizer of a space that its `save` wrote. Raises ValueError when the file is none."""
        from orchestrator.space_optimizer import SpaceOptimizer

        return SpaceOptimizer.load(path)

    def __init__(
        self,
        candidates: ArrayLike | Arms,
        strategy: str = "bbkb",
        seed: int = 0,
        existing: tuple[ArrayLike, ArrayLike] | None = None,
        **options: object,
    ) -> None:
        self._strategy: AnyStrategy = named_strategy(strategy, options, existing is not None)
        arms = candidates if isinstance(candidates, Arms) else Arms.of(candidates)
        self._size = len(arms)
        state = self._strategy.init(arms, np.random.default_rng([seed, 0]))
        if existing is not None:
            known, rng = checked_existing(existing, self._size), np.random.default_rng([seed, 2])
            state = begin(self._strategy, state, known, rng)
        self._learner = Learner(self._strategy, state, seed)

    def ask(self, limit: int | None = None) -> NDArray[np.intp]:
        """Indices of the candidates to evaluate next, (n,); they are pending until `tell`.

        At most `limit`. When it is None: the strategy's own batch, at most A; one, where it never waits for rewards and
        so has no batch of its own. Empty when `tell` must get rewards of pending arms first, or when no candidate is
        left. An index may come up twice: evaluate it twice.

        Args:
            limit: how many at most, >= 1, such as the number of free workers; None: the strategy's own batch.

        Returns:
            Indices (n,) of rows of `candidates`, in the order chosen.

        Raises:
            ValueError: when `limit` is not a whole number >= 1.

        """
        own = 1 if never_waits(self._strategy) else self._size
        return np.array(self._learner.ask(own if limit is None else checked_limit(limit)), np.intp)

    def expect(self, indices: ArrayLike) -> None:
        """These candidates are being evaluated although `ask` did not give them: they are pending until `tell`.

        Raises ValueError when one is out of range.
        """
        self._learner.open.extend(checked_indices(indices, self._size))

    def tell(self, indices: ArrayLike, rewards: Sequence[float | None] | ArrayLike) -> None:
        """Rewards (n,) of the candidates `indices` (n,), in any order and any grouping.

        None means that it could not be evaluated: that candidate is not asked for again. Indices that were never asked
        for are welcome: existing results. A strategy that never waits learns of results together, at the next `ask` at
        which they have grown by `refresh_growth`.

        Args:
            indices: rows of `candidates` (n,).
            rewards: one for each index (n,), to be maximised; None for what could not be evaluated.

        Raises:
            ValueError: when an index is out of range, a reward is NaN or infinite, or their numbers differ. Nothing is
                learned then.

        """
        self._learner.tell(checked_results(indices, rewards, self._size))

    def best(self) -> tuple[int, float]:
        """The candidate to recommend, and the mean of its rewards. Raises ValueError before any reward.

        The one with the largest mean reward; where the fitted model says that rewards are noisy, the evaluated one with
        the largest posterior mean.
        """
        pulls = self._state.pulls
        if pulls.total == 0:
            raise ValueError("best needs at least one reward; ask, evaluate and tell first")
        means = pulls.reward_sums[pulls.arms] / pulls.counts[pulls.arms]
        arm = self._strategy.recommend(self._state) if isinstance(self._strategy, Recommends) else None
        position = int(np.argmax(means)) if arm is None else int(np.searchsorted(pulls.arms, arm))
        return int(pulls.arms[position]), float(means[position])

    @property
    def mean(self) -> NDArray[np.float64]:
        """Posterior mean of every candidate (A,), of the rewards so far: of the rewards' scores under a calibrated
        model."""
        return self.posterior.mean

    @property
    def variance(self) -> NDArray[np.float64]:
        """Posterior variance of every candidate (A,), in units of λ, the noise variance: σ² = λ · variance."""
        return self.posterior.variance

    @property
    def ucb(self) -> NDArray[np.float64]:
        """Upper confidence bound of every candidate (A,)."""
        return self.posterior.ucb

    @property
    def dictionary(self) -> NDArray[np.intp]:
        """Indices (m,) of the inducing points; empty where the strategy has none."""
        dictionary: NDArray[np.intp] = self._state.dictionary
        return dictionary

    @property
    def _state(self) -> Any:
        """What the strategy knows with all results."""
        return self._learner.view

    @property
    def _pending(self) -> list[int]:
        return self._learner.pending

    def __repr__(self) -> str:
        told, pending = self._state.pulls.total, len(self._pending)
        return f"<Optimizer of {self._size} candidates: {told} rewards, {pending} pending>"

    def _repr_html_(self) -> str:
        """A small table, for notebooks."""
        facts = [("rewards", str(self._state.pulls.total)), ("pending", str(len(self._pending)))]
        if self._state.pulls.total:
            arm, reward = self.best()
            facts += [("best mean reward", f"{reward:.6g}"), ("best candidate", str(arm))]
        return facts_html(f"Optimizer of {self._size} candidates", facts)

    @property
    def posterior(self) -> Posterior:
        """Mean, variance and upper confidence bound of every candidate, and the unit of the variance."""
        return self._strategy.posterior(self._state)

    def scores(self, rewards: ArrayLike) -> NDArray[np.float64]:
        """What the model takes `rewards` (n,) for, (n,): their scores among the results so far under a calibrated
        model, else the rewards."""
        return scores_among(self._state.pulls, model_of(self._strategy), rewards)
