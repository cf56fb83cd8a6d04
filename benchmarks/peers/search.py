"""One search in simulated time, with workers that are idle only when the method waits.

A suggestion takes no simulated time. Its CPU seconds in this process are measured; they do not
depend on other processes of the machine.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Protocol

import numpy as np

from benchmarks.peers.problems import Evaluation, Point, Problem
from benchmarks.simulated import duration_of, noise_of, play
from objectives.conditions import Scalar

MARKS = 40  # the number of recommendations, at equal steps of the evaluations


class Method(Protocol):
    """The ask and tell of an optimizer. The harness numbers the suggestions 0, 1, …."""

    def ask(self, number: int) -> Point | None:
        """The point of suggestion `number`; None: it waits for results."""
        ...

    def tell(self, number: int, reward: float | None) -> None:
        """Pass the result of suggestion `number`; rewards are maximized, None stands for a failed
        evaluation."""
        ...

    def recommend(self) -> Point | None:
        """The current recommendation; None: the point with the largest mean reward."""
        ...


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished search of T evaluations, with all data for the measures."""

    problem: str  # the name of the problem
    method: str  # the name of the optimizer
    workers: int  # how many evaluate at the same time
    evaluations: int  # T
    seed: int  # of the search
    regrets: Sequence[float]  # (T,), of each suggestion
    ask_seconds: Sequence[float]  # (T,), CPU seconds of `ask`
    tell_seconds: Sequence[float]  # (T,), CPU seconds of `tell`
    recommended: Sequence[float]  # (MARKS,), regret of the recommendation after T/MARKS, 2T/MARKS, … results

    @property
    def key(self) -> tuple[str | int, ...]:
        """Problem, workers, evaluations and seed."""
        return (self.problem, self.workers, self.evaluations, self.seed)


@dataclass
class _Search:
    """A running search."""

    problem: Problem
    method: Method
    seed: int
    points: list[Point] = field(default_factory=list)
    results: list[Evaluation] = field(default_factory=list)
    ask_seconds: list[float] = field(default_factory=list)
    tell_seconds: list[float] = field(default_factory=list)
    rewards: dict[int, float | None] = field(default_factory=dict)
    waited: float = 0.0  # CPU seconds of `ask`s without a suggestion since the last suggestion

    def ask(self, number: int) -> float | None:
        """Begin evaluation `number`; its duration, or None if the method waits."""
        began = time.process_time()
        point = self.method.ask(number)
        self.waited += time.process_time() - began
        if point is None:
            return None
        self.points.append(point)
        self.ask_seconds.append(self.waited)
        self.waited = 0.0
        self.tell_seconds.append(0.0)
        result = self.problem.evaluate(point, noise_of(self.seed, number))
        self.results.append(result)
        return duration_of(self.seed, number) if result.duration is None else result.duration

    def tell(self, number: int) -> None:
        reward = self.results[number].reward
        began = time.process_time()
        self.method.tell(number, reward)
        self.tell_seconds[number] = time.process_time() - began
        self.rewards[number] = reward

    def recommended(self) -> float:
        """Regret of the recommendation now; that of the first point while every evaluation
        failed."""
        if all(reward is None for reward in self.rewards.values()):
            return self.results[0].regret
        point = self.method.recommend() or self._largest_mean()
        return self.problem.evaluate(point, np.random.default_rng(0)).regret

    def _largest_mean(self) -> Point:
        numbers_of: dict[tuple[tuple[str, Scalar], ...], list[int]] = defaultdict(list)
        succeeded = {number: reward for number, reward in self.rewards.items() if reward is not None}
        for number in succeeded:
            numbers_of[tuple(self.points[number].items())].append(number)
        best = max(numbers_of.values(), key=lambda numbers: mean(succeeded[number] for number in numbers))
        return self.points[best[0]]


def search(
    problem: Problem,
    method: Method,
    workers: int,
    evaluations: int,
    seed: int,
    names: tuple[str, str],
) -> Record:
    """Run one search.

    Args:
        problem: the problem to search.
        method: the optimizer.
        workers: evaluations at the same time.
        evaluations: their number T.
        seed: gives the noise and the durations, which are the same for all methods.
        names: those of problem and method in the record.

    Raises:
        CampaignError: when the method waits while nothing runs.
    """
    state = _Search(problem, method, seed)
    marks = [round(evaluations * (step + 1) / MARKS) for step in range(MARKS)]
    at_marks: dict[int, float] = {}

    def finish(number: int) -> None:
        state.tell(number)
        if len(state.rewards) in marks:
            at_marks[len(state.rewards)] = state.recommended()

    play(workers, evaluations, state.ask, finish, f"{names[1]} on {names[0]}")
    first = min(at_marks)
    return Record(
        problem=names[0],
        method=names[1],
        workers=workers,
        evaluations=evaluations,
        seed=seed,
        regrets=[result.regret for result in state.results],
        ask_seconds=state.ask_seconds,
        tell_seconds=state.tell_seconds,
        recommended=[at_marks[max(mark, first)] for mark in marks],
    )
