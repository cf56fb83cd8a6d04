"""Which arms are pulled before the first batch; drawn once, before any reward is known."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.linalg import solve_triangular

from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.lazy import LazyQueue
from orchestrator.bandit.posterior import SparseModel


@dataclass(frozen=True)
class RandomStart:
    """`pulls` uniform arms, different ones as long as there are that many."""

    pulls: int = 1
    name: Literal["random"] = "random"
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.pulls < 1:
            raise ValueError(f"strategy.warm_start.pulls must be >= 1, got {self.pulls!r}")

    def draw(self, model: SparseModel, rng: np.random.Generator) -> tuple[int, ...]:
        """The arms in the order in which they are to be pulled."""
        count = len(model.arms)
        return tuple(rng.choice(count, size=self.pulls, replace=self.pulls > count).tolist())


@dataclass(frozen=True)
class UncertaintyStart:
    """Uncertainty sampling (BBKB Algorithm 3): the arm of largest exact σ² again and again, until max σ² ≤ 1/`workers`.

    After it every batch holds at least workers · (C̃ − 1)/3 arms. It ends at `max_pulls` at the latest; with no
    `workers` only then (a campaign fills in its number of workers). An arm may come up twice.
    """

    workers: int | None = None
    max_pulls: int = 64
    name: Literal["uncertainty"] = "uncertainty"
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"strategy.warm_start.workers must be >= 1, got {self.workers!r}")
        if self.max_pulls < 1:
            raise ValueError(f"strategy.warm_start.max_pulls must be >= 1, got {self.max_pulls!r}")

    def draw(self, model: SparseModel, rng: np.random.Generator) -> tuple[int, ...]:
        """The arms in the order in which they are to be pulled; at least one. Draws nothing from `rng`."""
        target = 0.0 if self.workers is None else 1.0 / self.workers
        exact = _NoisyCholesky(model)
        queue = LazyQueue(model.diagonal / model.regularization)
        while len(exact.picks) < self.max_pulls:
            arm = queue.top(exact.variance)
            if exact.picks and float(exact.variance(np.array([arm]))[0]) <= target:  # σ², not σ
                break
            exact.append(arm)
        return tuple(exact.picks)


AnyWarmStart = RandomStart | UncertaintyStart

WARM_STARTS: Mapping[str, type[AnyWarmStart]] = {"random": RandomStart, "uncertainty": UncertaintyStart}


class _NoisyCholesky:
    """Exact variances after pulls of `picks`: L Lᵀ = K + λI over the picks, one row added a pick."""

    def __init__(self, model: SparseModel) -> None:
        self._model = model
        self._factor = np.empty((0, 0))
        self.picks: list[int] = []

    def _solve(self, arms: Indices) -> Floats:
        """L⁻¹ k(picks, x) for `arms` (n,): (picks, n)."""
        cross = self._model.kernel.cross(self._model.arms[self.picks], self._model.arms[arms])
        if not self.picks:  # the solver refuses an empty matrix
            return cross
        return np.asarray(solve_triangular(self._factor, cross, lower=True))

    def variance(self, arms: Indices) -> Floats:
        """Exact σ² of `arms` (n,) on the 1/λ scale: (n,)."""
        solved = self._solve(arms)
        explained = np.einsum("pn,pn->n", solved, solved)
        variance: Floats = np.maximum(self._model.diagonal[arms] - explained, 0.0) / self._model.regularization
        return variance

    def append(self, arm: int) -> None:
        """Add a pull of `arm`."""
        row = self._solve(np.array([arm]))[:, 0]
        pivot = self._model.diagonal[arm] + self._model.regularization - row @ row
        count = len(self.picks)
        factor = np.zeros((count + 1, count + 1))
        factor[:count, :count], factor[count, :count] = self._factor, row
        # λ is a lower bound on the pivot; rounding may say otherwise
        factor[count, count] = np.sqrt(max(pivot, self._model.regularization))
        self._factor = factor
        self.picks.append(arm)
