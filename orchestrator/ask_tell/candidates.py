"""`CandidateOptimizer`: ask and tell rows of an array, without a campaign. It needs only NumPy and
SciPy."""

import copy
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orchestrator.ask_tell.checks import (
    check_existing,
    check_indices,
    check_limit,
    check_numbers,
    check_results,
    check_seed,
)
from orchestrator.ask_tell.locking import exclusive
from orchestrator.ask_tell.logs import dump_log, repeat_calls, repeat_log
from orchestrator.ask_tell.memory import ArmResult
from orchestrator.ask_tell.saving import Entry, build_arms, dump_arms, dump_named, read_saved, write_saved
from orchestrator.ask_tell.search import Search
from orchestrator.ask_tell.strategy import StrategyChoice, named_strategy
from orchestrator.bandit.arms import Arms
from orchestrator.bandit.strategy import AnyStrategy, Posterior, StrategyState, never_waits
from orchestrator.campaign.rules import Rules
from orchestrator.version import __version__
from orchestrator.wording import facts_html

_PICKLED_BY = "pickled by"  # key of the version in a pickle
_WITH_CALLS = "0.2.0"  # the version whose pickles have a log of calls


class CandidateOptimizer:
    """Finds the candidate with the largest expected reward, by asking for evaluations in batches.

    `Optimizer` is the same for a search space, whose configurations are asked for and told.

    Args:
        candidates: an array (A, d), a row is the feature vector of a candidate; or `Arms`, which
            also say which features belong to one parameter and whether a candidate may be evaluated
            twice.
        strategy: its name: bbkb, uniform, gp_ucb, …, which `bbkb strategies` lists; `module:Name`
            or a class of your own; or an object with all its options.
        seed: a whole number, >= 0; the same calls with the same seed give the same candidates.
        existing: a pair of indices (n,) and finite rewards (n,): results known before, which take
            the place of the strategy's warm start.
        **options: fields of the strategy. With none the model is fitted; `preset="paper"` gives the
            published algorithm. A kernel or warm start is given by its name, as a mapping such as
            {"name": "rbf", "lengthscale": 0.5}, or as an object.

    Rewards are maximised; their scale does not matter. Several threads may use one optimizer.

    Raises:
        ValueError: when candidates, options or results are not allowed.

    >>> import numpy as np
    >>> from bbkb import CandidateOptimizer
    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> optimizer = CandidateOptimizer(x, seed=1)
    >>> for _ in range(30):
    ...     arms = optimizer.ask()
    ...     optimizer.tell(arms, np.sin(6 * x[arms, 0]))
    >>> arm, reward = optimizer.best()
    >>> print(f"x = {x[arm, 0]:.1f}, reward = {reward:.1f}")
    x = 0.3, reward = 1.0
    """

    @classmethod
    def load(cls, path: str | Path, *, run_code: bool = False) -> Self:
        """Read the optimizer that `save` wrote; it continues exactly as the saved one would.

        Args:
            path: the file that was written.
            run_code: whether the module of a strategy of your own may be imported, which runs its
                code. Without it, such a strategy must be imported already.

        Raises:
            ValueError: when it cannot be read, or was not written by a `CandidateOptimizer`.
        """
        return read_saved(path, cls._from_saved, "arms", run_code)

    def __init__(
        self,
        candidates: ArrayLike | Arms,
        strategy: StrategyChoice = "bbkb",
        seed: int = 0,
        existing: tuple[ArrayLike, ArrayLike] | None = None,
        **options: object,
    ) -> None:
        instance: AnyStrategy = named_strategy(strategy, options, existing is not None)
        self._lock = threading.RLock()
        self._arms = candidates if isinstance(candidates, Arms) else Arms.of(candidates)
        self._search = Search.begin(instance, check_seed(seed), self._arms, Rules(evaluations=0))
        if existing is not None:
            self._search.know(check_existing(existing, len(self._arms)))

    @exclusive
    def ask(self, limit: int | None = None) -> NDArray[np.intp]:
        """Choose the candidates to evaluate next, at most `limit`; they are pending until `tell`.

        The array is empty when `tell` must get rewards of pending candidates first, or when no
        candidate is left. An index may come up twice: evaluate it twice.

        Args:
            limit: the largest number of indices, >= 1, such as the number of free workers; None:
                the strategy's own batch, at most A, and 1 for strategies without batches.

        Returns:
            Indices (n,) of rows of `candidates`, in the order chosen.

        Raises:
            ValueError: when `limit` is not a whole number >= 1.
        """
        if limit is None:
            limit = 1 if never_waits(self._search.strategy) else len(self._arms)
        return np.array(self._search.ask(check_limit(limit)), np.intp)

    @exclusive
    def expect(self, indices: ArrayLike) -> None:
        """Mark candidates that `ask` did not return as pending, until `tell` gets their rewards.

        Args:
            indices: rows of `candidates` (n,).

        Raises:
            ValueError: when one is out of range.
        """
        self._search.mark_pending(check_indices(indices, len(self._arms)))

    @exclusive
    def tell(self, indices: ArrayLike, rewards: Sequence[float | None] | ArrayLike) -> None:
        """Report rewards (n,) of the candidates `indices` (n,). Order and batching do not matter.

        None means that the candidate could not be evaluated; it is not asked for again. Indices
        that `ask` did not return are accepted as existing results. A strategy that never waits
        learns of results together, at the next `ask` at which they have grown by `refresh_growth`.

        Args:
            indices: rows of `candidates` (n,).
            rewards: one for each index (n,), to be maximised; None for what could not be evaluated.

        Raises:
            ValueError: when an index is out of range, a reward is NaN or infinite, or their numbers
                differ. Nothing is learned then.
        """
        told = check_results(indices, rewards, len(self._arms))
        self._search.tell([ArmResult(observation.arm, observation.reward) for observation in told])

    @property
    @exclusive
    def trials(self) -> list[Entry]:
        """The results, in the order of `tell`: `candidate`, a row's index, and `reward`, None for a
        failure."""
        return [{"candidate": result.arm, "reward": result.value} for result in self._search.campaign.results]

    @property
    @exclusive
    def pending(self) -> NDArray[np.intp]:
        """Indices (n,) that `ask` returned and whose rewards are not known yet, in order."""
        return np.array(self._search.campaign.pending, np.intp)

    @exclusive
    def save(self, path: str | Path) -> None:
        """Write everything to `path` as JSON, whole or not at all; `load` reads it.

        Args:
            path: the file to write.

        Raises:
            ValueError: when the strategy has parts that were given as objects of classes of your
                own.
            OSError: when the file cannot be written.
        """
        search = self._search
        saved = {"arms": dump_arms(self._arms), "strategy": dump_named(search.strategy), "seed": search.learner.seed}
        write_saved(path, {**saved, "log": dump_log(search.campaign.events)})

    @exclusive
    def best(self) -> tuple[int, float]:
        """Return the candidate to recommend, and the mean of its rewards. Raises ValueError before
        any reward.

        The one with the largest mean reward; where the fitted model says that rewards are noisy,
        the evaluated one with the largest estimate.
        """
        if self._state.pulls.total == 0:
            raise ValueError("best needs at least one reward; call ask, evaluate, and call tell first")
        return self._search.learner.best()

    @property
    def mean(self) -> NDArray[np.float64]:
        """Posterior mean of every candidate (A,), of the rewards so far: of the rewards' scores
        under a calibrated model."""
        return self.posterior.mean

    @property
    def variance(self) -> NDArray[np.float64]:
        """Posterior variance of every candidate (A,), in units of λ, the noise variance: σ² = λ ·
        variance."""
        return self.posterior.variance

    @property
    def ucb(self) -> NDArray[np.float64]:
        """Upper confidence bound of every candidate (A,)."""
        return self.posterior.ucb

    @property
    @exclusive
    def dictionary(self) -> NDArray[np.intp]:
        """Indices (m,) of the inducing points; empty where the strategy has none."""
        dictionary: NDArray[np.intp] = self._state.dictionary
        return dictionary

    @exclusive
    def __getstate__(self) -> dict[str, object]:
        """Return the values that are pickled and copied. Pickling reads them later, when another
        thread may be in `ask` or `tell`; so the values that these change are copied here."""
        learner = self._search.learner
        shared = {id(part): part for part in (self._arms, learner.strategy)}  # these never change
        return {
            "arms": self._arms,
            "strategy": learner.strategy,
            "seed": learner.seed,
            "model": copy.deepcopy(learner.model, shared),
            "events": tuple(self._search.campaign.events),
            _PICKLED_BY: __version__,
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore a pickled optimizer. Raises ValueError if another version than this one or 0.2.0
        pickled it."""
        version = state.get(_PICKLED_BY, "an older version")
        if version not in (__version__, _WITH_CALLS):
            raise ValueError(
                f"a pickled optimizer must be of this version of bbkb, {__version__}, got one of {version}; files that "
                "`save` wrote are read by later versions"
            )
        self._lock = threading.RLock()
        if version == _WITH_CALLS:
            self._arms = state["_arms"]
            self._search = Search.begin(state["_strategy"], state["_seed"], self._arms, Rules(evaluations=0))
            repeat_calls(self._search, state["_log"])
        else:
            self._arms, rules = state["arms"], Rules(evaluations=0)
            self._search = Search.of(state["strategy"], state["seed"], state["model"], rules, state["events"])

    _record: None = None  # pickles of version 0.2.0 refer to a method of this name

    @classmethod
    def _from_saved(cls, saved: Mapping[str, Any]) -> Self:
        from orchestrator.settings.strategies import build_strategy

        optimizer = cls.__new__(cls)
        optimizer._lock = threading.RLock()
        optimizer._arms = build_arms(saved["arms"])
        strategy, seed = build_strategy(saved["strategy"]), int(saved["seed"])
        optimizer._search = Search.begin(strategy, seed, optimizer._arms, Rules(evaluations=0))
        repeat_log(optimizer._search, saved)
        return optimizer

    @property
    def _state(self) -> StrategyState:
        """The strategy's state, in which all results are learned."""
        state: StrategyState = self._search.learner.view
        return state

    @exclusive
    def __repr__(self) -> str:
        rewards, pending = self._state.pulls.total, len(self.pending)
        return f"<CandidateOptimizer of {len(self._arms)} candidates: {rewards} rewards, {pending} pending>"

    @exclusive
    def _repr_html_(self) -> str:
        """Return a small table, for notebooks."""
        facts = [("rewards", str(self._state.pulls.total)), ("pending", str(len(self.pending)))]
        if self._state.pulls.total:
            arm, reward = self.best()
            facts += [("best mean reward", f"{reward:.6g}"), ("best candidate", str(arm))]
        return facts_html(f"CandidateOptimizer of {len(self._arms)} candidates", facts)

    @property
    @exclusive
    def posterior(self) -> Posterior:
        """Mean, variance and upper bound of every candidate, and the unit of the variance."""
        return self._search.learner.posterior

    @exclusive
    def scores(self, rewards: ArrayLike) -> NDArray[np.float64]:
        """Transform rewards (n,) as the model sees them: to scores among the results so far under a
        calibrated model; unchanged otherwise.

        Args:
            rewards: numbers (n,).

        Raises:
            ValueError: before any reward, and when they are no numbers.
        """
        return self._search.learner.scores(check_numbers(rewards, "rewards"))
