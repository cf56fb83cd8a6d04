"""`CandidateOptimizer`: ask and tell for the rows of an array, without a campaign. It needs only
NumPy and SciPy."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bbkb.objectives.conditions import Scalar
from bbkb.objectives.keywords import checks_arguments
from bbkb.orchestrator.ask_tell.base import AskTell, exclusive
from bbkb.orchestrator.ask_tell.checks import (
    check_existing,
    check_indices,
    check_limit,
    check_numbers,
    check_results,
    check_seed,
)
from bbkb.orchestrator.ask_tell.learner import first_model
from bbkb.orchestrator.ask_tell.memory import ArmResult
from bbkb.orchestrator.ask_tell.old_files import find_old_names, repeat_calls
from bbkb.orchestrator.ask_tell.saving import Entry, Kind, build_arms, dump_arms, dump_named
from bbkb.orchestrator.ask_tell.search import Search
from bbkb.orchestrator.ask_tell.strategy import StrategyChoice, named_strategy
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.strategy import AnyStrategy, never_waits
from bbkb.orchestrator.campaign.rules import Rules
from bbkb.orchestrator.version import __version__

find_old_names()  # a pickle imports this module before it refers to a strategy

_PICKLED_BY = "pickled by"  # the key of the version in a pickle
_WITH_CALLS = "0.2.0"  # the version whose pickles contain a log of calls
_RULES = Rules(evaluations=0)  # rewards are maximized


@dataclass(frozen=True)
class _Setup:
    """The arguments of a search over the rows of an array. They never change."""

    arms: Arms
    strategy: AnyStrategy
    seed: int
    enqueue: ClassVar[Sequence[Mapping[str, Scalar]]] = ()

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
        return Search(self.strategy, self.seed, first_model(self.strategy, self.arms, self.seed), _RULES)


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
        return np.array(self._search.campaign.pending, np.intp)

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
        return self._search.learner.view.dictionary

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

    @exclusive
    def __getstate__(self) -> dict[str, object]:
        """Return the values to pickle and copy. Pickling reads the values later, when another
        thread may be in `ask` or `tell`, so mutable values are copied here."""
        setup = self._setup
        shared = {id(part): part for part in (setup.arms, setup.strategy)}  # never changed
        return {
            "arms": setup.arms,
            "strategy": setup.strategy,
            "seed": setup.seed,
            "model": copy.deepcopy(self._search.learner.model, shared),
            "events": tuple(self._search.campaign.events),
            _PICKLED_BY: __version__,
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore a pickled optimizer. Raises ValueError if a version other than this one or 0.2.0
        pickled it."""
        version = state.get(_PICKLED_BY)
        if version == __version__:
            setup = _Setup(state["arms"], state["strategy"], state["seed"])
            search = Search(setup.strategy, setup.seed, state["model"], _RULES, events=state["events"])
            super().__init__(setup, search)
        elif version == _WITH_CALLS:
            strategy = replace(state["_strategy"])  # without its caches
            setup = _Setup(state["_arms"], strategy, state["_seed"])
            super().__init__(setup, setup.search())
            repeat_calls(self._search, state["_log"])
        else:
            raise ValueError(
                f"a pickled optimizer must be of this version of bbkb, {__version__}, got one of "
                f"{version or 'an older version'}; files that `save` wrote are read by later versions"
            )

    _record: ClassVar[None] = None  # pickles of version 0.2.0 refer to a method of this name
