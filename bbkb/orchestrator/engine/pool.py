"""A set of candidates that grows during a search: the space and the appended candidates.

`Pool.growth` draws new candidates around the arms that the strategy proposes. `Pool.append` appends
them, during a search or when a log is read again. An `Appended` contains values instead of
features, so that it can be stored and read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives.coding import central_log_density
from bbkb.objectives.objective import Candidates
from bbkb.objectives.parameters import Ordered, Range, Scalar
from bbkb.objectives.sampling import grow, join, perturb
from bbkb.objectives.space import LARGEST_WHOLE_SET, SearchSpace
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.model.model import model_of
from bbkb.orchestrator.bandit.start.warm_start import begins_at_center
from bbkb.orchestrator.bandit.strategy import Grows, Growth, Informed, Perturbation, StrategyState

GROWTH = 256  # the largest number of candidates to append at once
FEW_NUMBERS = 10  # see `Pool.arms`
MOST_LIVE = 20_000  # the largest number of candidates that are neither retired nor set aside, once they grow


@dataclass(frozen=True, slots=True)
class Appended:
    """One growth: the values (n,) of each parameter, None if inactive, and the retired arms."""

    columns: Mapping[str, Sequence[Scalar]]
    retired: tuple[int, ...]


def grows_in(strategy: object, space: SearchSpace) -> bool:
    """Return whether the strategy appends candidates of the space: if it is infinite, or finite and too
    large for all its configurations to be candidates."""
    if not (isinstance(strategy, Grows) and strategy.grows):
        return False
    return not space.is_finite or space.count(LARGEST_WHOLE_SET) is None


@dataclass(frozen=True)
class Pool:
    """Candidates, and their `space`; None if they are not those of a space.

    `grows`: whether the strategy may request new ones.
    """

    candidates: Candidates
    space: SearchSpace | None = None
    grows: bool = True
    rows: Arms | None = None  # the candidates as arms if they are the rows of an array

    @staticmethod
    def of_rows(arms: Arms) -> "Pool":
        """Return the rows of an array as candidates with one parameter, their index."""
        columns = {"candidate": np.arange(len(arms))}
        candidates = Candidates(arms.features, columns, arms.layout.parameters, arms.layout.repeats)
        return Pool(candidates, grows=False, rows=arms)

    def __len__(self) -> int:
        return len(self.candidates)

    def arms(self, strategy: object, is_deterministic: bool | None) -> Arms:
        """Return the candidates in the format of strategies.

        While candidates are appended, an arm of a continuous space is not pulled again for a better
        estimate, because a neighbor provides as much information. In a fixed set, it may be pulled again: otherwise
        noisy rewards would drive the search away from the best arms, and the published algorithms
        also allow it.

        If the user expects nothing, a strategy that begins at the center of a continuous space of more than
        `FEW_NUMBERS` numbers prefers it at first. With fewer, or with few values of each, this costs regret.
        """
        if self.rows is not None:
            return self.rows
        candidates = self.candidates
        is_fixed = self.space is None or not self.grows
        may_repeat = candidates.repeats or is_fixed or model_of(strategy) is None
        log_prior, prefers_center = candidates.log_prior, False
        is_informed = isinstance(strategy, Informed) and strategy.takes_prior and begins_at_center(strategy)
        if is_informed and not may_repeat and log_prior is None:
            log_prior = self._central_log_density(candidates)
            prefers_center = log_prior is not None
        return Arms.of(
            candidates.features,
            candidates.parameter_of,
            repeats=may_repeat,
            is_deterministic=is_deterministic,
            is_sequence=candidates.is_sequence,
            log_prior=log_prior,
            prefers_center=prefers_center,
        )

    def _central_log_density(self, candidates: Candidates) -> NDArray[np.float64] | None:
        if self.space is None:
            return None
        parameters = self.space.parameters
        if sum(isinstance(parameter, Range | Ordered) for parameter in parameters.values()) <= FEW_NUMBERS:
            return None
        return central_log_density(parameters, self.space.encode(candidates.columns))

    def demand(self, strategy: object, state: StrategyState) -> Growth | Perturbation | None:
        """Return the strategy's current request for growth; None if there is none."""
        may_grow = self.grows and self.space is not None
        return strategy.growth(state) if may_grow and isinstance(strategy, Grows) else None

    def growth(
        self, strategy: object, state: StrategyState, pending: Sequence[int], rng: np.random.Generator
    ) -> Appended | None:
        """Return new candidates and the arms that they replace; None if the strategy requests none.
        Empty if every drawn configuration is a candidate already.

        `pending` are arms whose results are not yet in `state`; they are not retired.
        """
        request = self.demand(strategy, state)
        if self.space is None or request is None or not isinstance(strategy, Grows):
            return None
        if isinstance(request, Perturbation):
            return Appended(plain_columns(perturb(self.space, self.candidates, *request, rng)), ())
        appended = grow(self.space, self.candidates, request.around, request.lengthscales, count=GROWTH, rng=rng)
        if appended is None:
            return Appended({}, ())
        retired = strategy.arms_to_retire(state, pending, MOST_LIVE - len(appended))
        return Appended(plain_columns(appended), retired)

    def append(self, appended: Appended) -> tuple["Pool", NDArray[np.float64], NDArray[np.float64] | None]:
        """Append candidates. Return the pool, their features (n, d) and their log prior (n,), see `arms`."""
        nothing = np.empty((0, self.candidates.features.shape[1]))
        if self.space is None or not appended.columns:
            return self, nothing, None
        rebuilt = self.space.rebuild(appended.columns)
        log_prior = self._central_log_density(rebuilt) if rebuilt.log_prior is None else rebuilt.log_prior
        return replace(self, candidates=join(self.space, self.candidates, rebuilt)), rebuilt.features, log_prior


def plain_columns(candidates: Candidates) -> dict[str, tuple[Scalar, ...]]:
    """Return the values of each parameter as plain Python values."""
    return {name: tuple(column.tolist()) for name, column in candidates.columns.items()}
