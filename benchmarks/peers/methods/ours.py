"""The strategies of this project, through `CandidateOptimizer`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.problems import Point, Problem
from objectives.objective import Candidates
from objectives.parameters import Space
from orchestrator.ask_tell.candidates import CandidateOptimizer
from orchestrator.ask_tell.space import Configuration, Optimizer
from orchestrator.ask_tell.strategy import named_strategy
from orchestrator.bandit.arms import Arms

Options = Mapping[str, Any]  # of a strategy, as in a campaign file
Floats = NDArray[np.float64]


class Ours:
    """A strategy on the arms of a problem. `settings` are its name and options."""

    def __init__(self, candidates: Candidates, seed: int, settings: Options) -> None:
        self._candidates = candidates
        options = {name: value for name, value in settings.items() if name != "name"}
        arms = Arms.of(
            candidates.features,
            candidates.parameter_of,
            repeats=candidates.repeats,
            is_sequence=candidates.is_sequence,
        )
        self._optimizer = CandidateOptimizer(arms, named_strategy(settings["name"], options), seed)
        self._running: dict[int, int] = {}

    def ask(self, number: int) -> Point | None:
        """None while the strategy's drift budget is spent."""
        arms = self._optimizer.ask(1)
        if not len(arms):
            return None
        self._running[number] = int(arms[0])
        return self._candidates.parameters(int(arms[0]))

    def tell(self, number: int, reward: float | None) -> None:
        arm = self._running.pop(number)
        if reward is None:
            self._optimizer.fail([arm])
        else:
            self._optimizer.tell([arm], [reward])

    def recommend(self) -> Point:
        return self._candidates.parameters(self._optimizer.best.parameters["candidate"])


class OursInSpace:
    """A strategy on a space. `settings` are its name and options."""

    def __init__(self, space: Space, seed: int, settings: Options) -> None:
        options = {name: value for name, value in settings.items() if name != "name"}
        self._optimizer = Optimizer(space, "maximize", strategy=named_strategy(settings["name"], options), seed=seed)
        self._running: dict[int, Configuration] = {}

    def ask(self, number: int) -> Point | None:
        """None while the strategy's drift budget is spent."""
        configurations = self._optimizer.ask(1)
        if not configurations:
            return None
        self._running[number] = configurations[0]
        return configurations[0]

    def tell(self, number: int, reward: float | None) -> None:
        configuration = self._running.pop(number)
        if reward is None:
            self._optimizer.fail(configuration)
        else:
            self._optimizer.tell(configuration, reward)

    def recommend(self) -> Point:
        return self._optimizer.best.parameters


def ours(problem: Problem, seed: int, settings: Options) -> Ours | OursInSpace:
    """The method for a problem: on its arms when it has a list of them, else on its space."""
    return OursInSpace(problem.space, seed, settings) if problem.arms is None else Ours(problem.arms, seed, settings)
