"""Random search: independent uniform draws from the space, or from the arms."""

import numpy as np

from benchmarks.peers.methods.conditions import existing
from benchmarks.peers.problems import Point, Problem
from objectives import coding
from objectives.parameters import Choice, Ordered, Range
from orchestrator.errors import CampaignError


class Uniform:
    """Draws with replacement."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem = problem
        self._rng = np.random.default_rng([seed, 3])

    def ask(self, number: int) -> Point:
        arms = self._problem.arms
        if arms is not None:
            return arms.parameters(int(self._rng.integers(len(arms))))
        values = {name: self._draw(parameter) for name, parameter in self._problem.space.items()}
        return existing(self._problem.space, values)

    def tell(self, number: int, reward: float | None) -> None:
        """Results have no effect."""

    def recommend(self) -> None:
        """None: the point with the largest mean reward."""

    def _draw(self, parameter: object) -> float | int | str | bool | None:
        match parameter:
            case Range(low=low, high=high, log=False, integer=False):
                return float(self._rng.uniform(low, high))
            case Choice(choices=levels) | Ordered(ordered=levels):
                return levels[int(self._rng.integers(len(levels)))]
            case Range() as numbers:
                (value,) = coding.values(numbers, coding.draw(numbers, self._rng.random(1))).tolist()
                return float(value) if not numbers.integer else int(value)
        raise CampaignError(f"random search has no draw for {parameter}")
