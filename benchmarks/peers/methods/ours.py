"""The strategies of this project, through `CandidateOptimizer` or `Optimizer`."""

from collections.abc import Mapping
from typing import Any

from benchmarks.peers.problems import Point, Problem
from orchestrator.ask_tell.candidates import CandidateOptimizer
from orchestrator.ask_tell.space import Optimizer
from orchestrator.ask_tell.strategy import named_strategy
from orchestrator.bandit.arms import Arms

Options = Mapping[str, Any]  # of a strategy, as in a campaign file


class Ours:
    """A strategy on the arms of a problem, or on its space if it has no list of arms. `settings`
    are its name and options."""

    def __init__(self, problem: Problem, seed: int, settings: Options) -> None:
        options = {name: value for name, value in settings.items() if name != "name"}
        strategy = named_strategy(settings["name"], options)
        self._arms = arms = problem.arms
        self._running: dict[int, Any] = {}  # indices of arms, or configurations
        self._optimizer: Any
        if arms is None:
            self._optimizer = Optimizer(problem.space, "maximize", strategy=strategy, seed=seed)
        else:
            rows = Arms.of(
                arms.features,
                arms.parameter_of,
                repeats=arms.repeats,
                is_sequence=arms.is_sequence,
            )
            self._optimizer = CandidateOptimizer(rows, strategy, seed)

    def ask(self, number: int) -> Point | None:
        """None while the strategy's drift budget is spent."""
        asked = self._optimizer.ask(1)
        if not len(asked):
            return None
        self._running[number] = asked[0]
        return asked[0] if self._arms is None else self._arms.parameters(int(asked[0]))

    def tell(self, number: int, reward: float | None) -> None:
        asked = self._running.pop(number)
        if reward is None:
            self._optimizer.fail([asked])
        else:
            self._optimizer.tell([asked], [reward])

    def recommend(self) -> Point:
        best: dict[str, Any] = self._optimizer.best.parameters
        return best if self._arms is None else self._arms.parameters(best["candidate"])
