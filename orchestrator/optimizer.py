"""The ask-and-tell face of the bandit core, for people without a campaign. Needs NumPy and SciPy only."""

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orchestrator.bandit.kernels import KERNELS
from orchestrator.bandit.start.warm_start import WARM_STARTS, DataStart
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.bandit.strategy import Choose, Observation, Posterior, Strategy, begin

_PARTS: Mapping[str, Mapping[str, type[Any]]] = {"kernel": KERNELS, "warm_start": WARM_STARTS}


class Optimizer:
    """Finds the candidate with the largest expected reward, by asking for evaluations in batches.

    `candidates` (A, d): a row is an arm's feature vector, best scaled so that each feature matters about as much;
    rewards are maximised. `strategy` is a name (`bbkb`, `uniform`) and `options` are its fields; a kernel or warm start
    may be given as an object or as a mapping, {"name": "rbf", "lengthscale": 0.5}. The same calls with the same `seed`
    give the same arms. `existing` is a pair of indices (n,) and finite rewards (n,): results known before, which take
    the place of the strategy's warm start. Raises ValueError on candidates, options or results that are not allowed.

    >>> import numpy as np
    >>> from bbkb import Optimizer
    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> optimizer = Optimizer(x, seed=1, kernel={"name": "rbf", "lengthscale": 0.2})
    >>> for _ in range(12):
    ...     arms = optimizer.ask()
    ...     optimizer.tell(arms, np.sin(6 * x[arms, 0]))
    >>> arm, reward = optimizer.best()
    >>> print(f"x = {x[arm, 0]:.1f}, reward = {reward:.1f}")
    x = 0.3, reward = 1.0
    """

    def __init__(
        self,
        candidates: ArrayLike,
        strategy: str = "bbkb",
        seed: int = 0,
        existing: tuple[ArrayLike, ArrayLike] | None = None,
        **options: Any,
    ) -> None:
        chosen = _look_up(STRATEGIES, strategy, "strategy")
        for part, table in _PARTS.items():
            if isinstance(options.get(part), Mapping):
                options[part] = _build(table, options[part], part)
        if isinstance(options.get("warm_start"), DataStart):
            raise ValueError(
                "the warm start data is for campaign files, which are read; give existing=(indices, rewards)"
            )
        if existing is not None and any(field.name == "warm_start" for field in fields(chosen)):
            options["warm_start"] = DataStart("existing results")
        self._strategy: Strategy[Any] = _construct(chosen, options, f"the strategy {strategy}")
        self._seed = seed
        features = np.asarray(candidates, np.float64)
        self._size = len(features) if features.ndim else 0
        self._state = self._strategy.init(features, np.random.default_rng([seed, 0]))
        self._pending: list[int] = []
        if existing is not None:
            self._begin(*existing)

    def ask(self, limit: int | None = None) -> NDArray[np.intp]:
        """Indices of the candidates to evaluate next, (n,); they are pending until they are told.

        At most `limit`; the strategy's own batch, and at most A, when it is None. Empty when rewards of pending arms
        must be told first, or when every candidate was told to be impossible. An index may come up twice:
        evaluate it twice.
        """
        decision = self._strategy.ask(self._state, tuple(self._pending), self._size if limit is None else limit)
        arms = [pick.arm for pick in decision.picks] if isinstance(decision, Choose) else []
        self._pending.extend(arms)
        return np.array(arms, np.intp)

    def tell(self, indices: ArrayLike, rewards: Sequence[float | None] | ArrayLike) -> None:
        """Rewards (n,) of the candidates `indices` (n,), in any order and any grouping.

        None means that it could not be evaluated: that candidate is not asked for again. Indices that were never asked
        for are welcome: existing results. Raises ValueError, and learns nothing, when one is out of range or a reward
        is NaN or infinite.
        """
        observations = self._observations(indices, rewards)
        rng = np.random.default_rng([self._seed, 1, self._state.round])
        self._state = self._strategy.tell(self._state, observations, rng)
        told = Counter(seen.arm for seen in observations)
        waiting = []
        for arm in self._pending:
            if told[arm]:
                told[arm] -= 1
            else:
                waiting.append(arm)
        self._pending = waiting

    def best(self) -> tuple[int, float]:
        """The candidate with the largest mean of its rewards, and that mean. Raises ValueError before any reward."""
        pulls = self._state.pulls
        if pulls.total == 0:
            raise ValueError("best needs at least one reward; ask, evaluate and tell first")
        means = pulls.reward_sums[pulls.arms] / pulls.counts[pulls.arms]
        return int(pulls.arms[np.argmax(means)]), float(means.max())

    @property
    def mean(self) -> NDArray[np.float64]:
        """Posterior mean of every candidate (A,), of what was told."""
        return self._posterior.mean

    @property
    def variance(self) -> NDArray[np.float64]:
        """Posterior variance of every candidate (A,), in units of `regularization`: σ² = regularization · variance."""
        return self._posterior.variance

    @property
    def ucb(self) -> NDArray[np.float64]:
        """Upper confidence bound of every candidate (A,)."""
        return self._posterior.ucb

    @property
    def dictionary(self) -> NDArray[np.intp]:
        """Indices (m,) of the inducing points; empty where the strategy has none."""
        dictionary: NDArray[np.intp] = self._state.dictionary
        return dictionary

    @property
    def _posterior(self) -> Posterior:
        return self._strategy.posterior(self._state)

    def _begin(self, indices: ArrayLike, rewards: ArrayLike) -> None:
        existing = self._observations(indices, rewards)
        if not existing or any(seen.reward is None for seen in existing):
            rule = "existing results must be at least one, and each must have a reward"
            raise ValueError(f"{rule}; leave out what could not be evaluated, or all of `existing`")
        self._state = begin(self._strategy, self._state, existing, np.random.default_rng([self._seed, 2]))

    def _observations(self, indices: ArrayLike, rewards: Sequence[float | None] | ArrayLike) -> list[Observation]:
        arms = self._checked_indices(indices)
        values = [None if reward is None else float(reward) for reward in np.atleast_1d(np.asarray(rewards, object))]
        if len(values) != len(arms):
            raise ValueError(
                f"there must be one reward for each index, got {len(values)} rewards for {len(arms)} indices"
            )
        return [Observation(arm, value) for arm, value in zip(arms, values, strict=True)]

    def _checked_indices(self, indices: ArrayLike) -> list[int]:
        array = np.atleast_1d(np.asarray(indices))
        if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
            raise ValueError(f"indices must be integers (n,), got shape {array.shape} of {array.dtype}")
        for arm in array.tolist():
            if not 0 <= arm < self._size:
                raise ValueError(f"an index must be >= 0 and < {self._size}, the number of candidates; got {arm}")
        return [int(arm) for arm in array]


def _build(table: Mapping[str, type[Any]], mapping: Mapping[str, Any], part: str) -> Any:
    """The part a mapping such as {"name": "rbf", "lengthscale": 0.5} stands for."""
    options = dict(mapping)
    chosen = _look_up(table, options.pop("name", None), f"{part}.name")
    return _construct(chosen, options, f"the {part} {mapping['name']}")


def _look_up(table: Mapping[str, type[Any]], name: Any, what: str) -> type[Any]:
    if name not in table:
        raise ValueError(f"{what} must be one of {', '.join(table)}, got {name!r}{_suggestion(name, table)}")
    return table[name]


def _construct(chosen: type[Any], options: Mapping[str, Any], what: str) -> Any:
    known = [field.name for field in fields(chosen) if field.name != "name"]
    for option in options:
        if option not in known:
            remedy = _suggestion(option, known) or f"; it has {', '.join(known) or 'none'}"
            raise ValueError(f"{what} has no option {option!r}{remedy}")
    return chosen(**options)


def _suggestion(name: Any, known: Mapping[str, Any] | Sequence[str]) -> str:
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
