"""Candidates as an Optuna sampler sees them: each parameter is a number, a rank or a choice."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices, same

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_LEVELS = 64  # a parameter with at most this many values is an integer, the rank of its value


@dataclass(frozen=True, eq=False)
class Coding:
    """The candidates as a sampler sees them.

    A parameter with one feature is a number in the feature's range or, if it has few values, their
    rank. A parameter with several features (a choice) is the index of the largest one. Parameters
    that do not vary are omitted.
    """

    arms: Arms

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @cached_property
    def columns(self) -> dict[str, Indices]:
        """The features of each parameter that varies."""
        numbers = range(self.arms.parameter_count)
        positions = {f"p{number}": np.flatnonzero(self.arms.parameters == number) for number in numbers}
        return {
            name: columns for name, columns in positions.items() if np.ptp(self._features[:, columns], axis=0).any()
        }

    @cached_property
    def levels(self) -> dict[str, Floats]:
        """The ascending values of parameters with one feature and few values."""
        values = {name: np.unique(self._features[:, columns]) for name, columns in self.columns.items()}
        return {
            name: levels for name, levels in values.items() if len(self.columns[name]) == 1 and len(levels) <= _LEVELS
        }

    @cached_property
    def distributions(self) -> "dict[str, BaseDistribution]":
        """The distributions from which Optuna draws each parameter."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        distributions: dict[str, BaseDistribution] = {}
        for name, columns in self.columns.items():
            if name in self.levels:
                distributions[name] = IntDistribution(0, len(self.levels[name]) - 1)
            elif len(columns) > 1:
                distributions[name] = CategoricalDistribution(tuple(range(len(columns))))
            else:
                column = self._features[:, columns]
                distributions[name] = FloatDistribution(float(column.min()), float(column.max()))
        return distributions

    def parameters(self, arm: int) -> dict[str, float | int]:
        """Return the sampler's values for the arm."""
        return {name: self._value(name, self._features[arm, columns]) for name, columns in self.columns.items()}

    def nearest(self, suggested: Mapping[str, object], excluded: Indices) -> int:
        """Return the arm nearest to the suggestion, in units of the parameters' extents; the first
        one in case of ties."""
        distance = np.zeros(len(self.arms))
        for name, columns in self.columns.items():
            place = self._place(name, len(columns), suggested[name])
            difference = (self._features[:, columns] - place) / self.arms.extents[int(self.arms.parameters[columns[0]])]
            distance += (difference**2).sum(axis=1)
        distance[excluded] = np.inf
        return int(distance.argmin())

    @property
    def _features(self) -> Floats:
        features: Floats = self.arms.features
        return features

    def _value(self, name: str, features: Floats) -> float | int:
        if len(features) > 1:
            return int(features.argmax())
        if name in self.levels:
            return int(np.searchsorted(self.levels[name], features[0]))
        return float(features[0])

    def _place(self, name: str, width: int, value: Any) -> Floats:
        """Return the features that a value represents."""
        if width > 1:
            one_hot: Floats = np.eye(width)[int(value)] * self._features[:, self.columns[name]].max()
            return one_hot
        return np.array([self.levels[name][int(value)] if name in self.levels else float(value)])
