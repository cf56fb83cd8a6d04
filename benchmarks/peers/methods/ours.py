"""The product's own strategies, through `Optimizer`."""

from collections.abc import Mapping
from typing import Any

from benchmarks.peers.problems import Point, Problem
from objectives.objective import Candidates
from objectives.parameters import Range
from objectives.space import make_candidates
from orchestrator.bandit.arms import Arms
from orchestrator.optimizer import Optimizer

LARGEST_WHOLE = 100_000  # a finite space of so many arms at most is taken whole
POINTS = 4096  # Sobol points of any other space


class Ours:
    """`settings` are the strategy's name and options. Candidates are all arms of a finite space, else Sobol points."""

    def __init__(self, problem: Problem, seed: int, settings: Mapping[str, Any]) -> None:
        self._candidates = problem.arms or _candidates(problem, seed)
        options = {name: value for name, value in settings.items() if name != "name"}
        arms = Arms.of(
            self._candidates.features,
            self._candidates.parameter_of,
            repeats=self._candidates.repeats,
            is_sequence=self._candidates.is_sequence,
        )
        self._optimizer = Optimizer(arms, settings["name"], seed, **options)
        self._running: dict[int, int] = {}

    def ask(self, number: int) -> Point | None:
        """None while the strategy's drift budget is spent."""
        arms = self._optimizer.ask(1)
        if not len(arms):
            return None
        self._running[number] = int(arms[0])
        return self._candidates.parameters(int(arms[0]))

    def tell(self, number: int, reward: float) -> None:
        self._optimizer.tell([self._running.pop(number)], [reward])

    def recommend(self) -> Point:
        return self._candidates.parameters(self._optimizer.best()[0])


def _candidates(problem: Problem, seed: int) -> Candidates:
    is_finite = not any(isinstance(parameter, Range) for parameter in problem.space.values())
    return make_candidates(problem.space, LARGEST_WHOLE if is_finite else POINTS, seed=seed)
