"""The optimisers that are compared. Each suggests one candidate at a time, and learns its accuracy
and cost."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import optuna

from benchmarks.goals.problems import Table
from benchmarks.peers.methods.of_optuna import distribution, value_of
from orchestrator.ask_tell.strategy import named_strategy
from orchestrator.bandit.arms import Arms
from orchestrator.bandit.goals import Goals
from orchestrator.bandit.strategy import Choose, Observation

optuna.logging.set_verbosity(logging.ERROR)


class Method(Protocol):
    """An optimiser. The harness numbers the suggestions 0, 1, …."""

    def ask(self, number: int) -> int:
        """The row of the table to evaluate."""

    def tell(self, number: int, accuracy: float, cost: float) -> None:
        """Learn the result of suggestion `number`."""


class Ours:
    """A strategy of this project, on all candidates of the table. It learns results when a campaign
    would refit."""

    def __init__(self, problem: Table, seed: int, name: str) -> None:
        self._problem, self._seed = problem, seed
        self._strategy = named_strategy(name, {})
        candidates = problem.candidates
        arms = Arms.of(
            candidates.features,
            candidates.parameter_of,
            repeats=problem.table.arms is None,
            is_sequence=candidates.is_sequence,
        ).with_goals(Goals(2) if problem.limit is None else Goals(1, 1))
        self._state: Any = self._strategy.init(arms, np.random.default_rng([seed, 0]))
        self._pending: dict[int, int] = {}
        self._seen: dict[int, Observation] = {}  # results that the strategy has not learned from
        self._learned = 0

    def ask(self, number: int) -> int:
        decision = self._strategy.ask(self._state, tuple(self._pending.values()), 1)
        if not isinstance(decision, Choose):
            raise ValueError(f"the strategy waits: {decision.reason}")
        self._pending[number] = decision.picks[0].arm
        return int(self._problem.rows[decision.picks[0].arm])

    def tell(self, number: int, accuracy: float, cost: float) -> None:
        margin = -cost if self._problem.limit is None else self._problem.limit - cost
        self._seen[number] = Observation(self._pending[number], accuracy, (margin,))
        running = len(self._pending) - len(self._seen)
        if len(self._seen) < getattr(self._strategy, "refresh_growth", 0.0) * (self._learned + running):
            return
        rng = np.random.default_rng([self._seed, 1, self._learned])
        self._state = self._strategy.tell(self._state, list(self._seen.values()), rng)
        self._learned += len(self._seen)
        for result in self._seen:
            del self._pending[result]
        self._seen = {}


class OfOptuna:
    """An Optuna study in memory. `make` creates its sampler."""

    def __init__(self, problem: Table, seed: int, make: Callable[..., optuna.samplers.BaseSampler]) -> None:
        self._problem = problem
        self._distributions = {name: distribution(parameter) for name, parameter in problem.table.space.items()}
        directions = ["maximize", "minimize"] if problem.limit is None else ["maximize"]
        self._study = optuna.create_study(directions=directions, sampler=make(seed=seed))
        self._running: dict[int, optuna.Trial] = {}

    def ask(self, number: int) -> int:
        trial = self._study.ask(self._distributions)
        self._running[number] = trial
        space = self._problem.table.space
        return self._problem.table.row({name: value_of(space[name], value) for name, value in trial.params.items()})

    def tell(self, number: int, accuracy: float, cost: float) -> None:
        trial = self._running.pop(number)
        if self._problem.limit is None:
            self._study.tell(trial, [accuracy, cost])
        else:
            trial.set_constraint("cost", cost - self._problem.limit)
            self._study.tell(trial, accuracy)


SAMPLERS: Mapping[str, Callable[..., optuna.samplers.BaseSampler]] = {
    "tpe": optuna.samplers.TPESampler,
    "nsga-ii": optuna.samplers.NSGAIISampler,
}
LABELS: Mapping[str, str] = {
    "bbkb": "bbkb (default)",
    "uniform": "random search",
    "tpe": "Optuna TPE",
    "nsga-ii": "Optuna NSGA-II",
}


def make_method(name: str, problem: Table, seed: int) -> Method:
    """The method `name` of LABELS."""
    return OfOptuna(problem, seed, SAMPLERS[name]) if name in SAMPLERS else Ours(problem, seed, name)
