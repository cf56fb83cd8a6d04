"""One search in simulated time, with workers that are idle only when the method waits.

The n-th evaluation has the same duration and the same noise with every method: both are drawn from
(seed, n). A suggestion takes no simulated time. Its CPU seconds in this process are measured; they
do not depend on other processes of the machine.
"""

import heapq
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Protocol

import numpy as np

from bbkb.objectives.parameters import Scalar
from bbkb.orchestrator.errors import CampaignError
from benchmarks.peers.problems import Evaluation, Point, Problem

SIGMA = 0.5  # of the log-normal durations
_NOISE = 11  # stream of random numbers
_DURATION = 12


def noise_of(seed: int, number: int) -> np.random.Generator:
    """The random numbers of the noise of evaluation `number`."""
    return np.random.default_rng([seed, _NOISE, number])


def duration_of(seed: int, number: int) -> float:
    """The duration of evaluation `number`. The mean of all durations is 1."""
    deviate = np.random.default_rng([seed, _DURATION, number]).standard_normal()
    return float(np.exp(SIGMA * deviate - SIGMA**2 / 2))


def play(
    workers: int, evaluations: int, begin: Callable[[int], float | None], finish: Callable[[int], None], name: str
) -> None:
    """Begin evaluations 0, 1, … whenever a worker is free, and finish them as they end.

    `begin` returns the duration of evaluation n; None if it waits for results. Raises
    CampaignError if it waits while nothing runs.
    """
    running: list[tuple[float, int]] = []
    begun, now = 0, 0.0
    for _ in range(evaluations):
        while len(running) < workers and begun < evaluations and (duration := begin(begun)) is not None:
            heapq.heappush(running, (now + duration, begun))
            begun += 1
        if not running:
            raise CampaignError(f"{name} waits for results while nothing is running")
        now, number = heapq.heappop(running)
        finish(number)


MARKS = 40  # the number of recommendations, at equal steps of the evaluations


class Method(Protocol):
    """The ask and tell of an optimizer. The harness numbers the suggestions 0, 1, …."""

    def ask(self, number: int) -> Point | None:
        """The point of suggestion `number`; None: it waits for results."""
        ...

    def tell(self, number: int, result: Evaluation) -> None:
        """Pass the result of suggestion `number`. Only its rewards and margins may be used."""
        ...

    def recommend(self) -> Point | None:
        """The current recommendation for one objective without constraints; None: the point with
        the largest mean reward."""
        ...


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished search of T evaluations, with all data for the measures."""

    problem: str  # the name of the problem
    method: str  # the name of the optimizer
    workers: int  # the number of concurrent evaluations
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
    told: list[int] = field(default_factory=list)  # numbers of finished evaluations
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
        began = time.process_time()
        self.method.tell(number, self.results[number])
        self.tell_seconds[number] = time.process_time() - began
        self.told.append(number)

    def recommended(self) -> float:
        """Regret of the recommendation, or of the first point while every evaluation failed; or the
        loss of all results."""
        if self.problem.several is not None:
            return self.problem.several.loss([self.results[number] for number in self.told])
        if all(self.results[number].rewards is None for number in self.told):
            return self.results[0].regret
        point = self.method.recommend() or self._largest_mean()
        return self.problem.evaluate(point, np.random.default_rng(0)).regret

    def _largest_mean(self) -> Point:
        rewards_of: dict[tuple[tuple[str, Scalar], ...], list[float]] = defaultdict(list)
        for number in self.told:
            rewards = self.results[number].rewards
            if rewards is not None:
                rewards_of[tuple(self.points[number].items())] += rewards
        best = max(rewards_of.items(), key=lambda item: mean(item[1]))
        return dict(best[0])


def search(
    problem: Problem,
    method: Method,
    workers: int,
    evaluations: int,
    seed: int,
    names: tuple[str, str],
) -> Record:
    """Run one search. Noise and durations depend on `seed` only. `names`: problem and method.

    Raises CampaignError if the method waits while nothing runs.
    """
    state = _Search(problem, method, seed)
    marks = [round(evaluations * (step + 1) / MARKS) for step in range(MARKS)]
    at_marks: dict[int, float] = {}

    def finish(number: int) -> None:
        state.tell(number)
        if len(state.told) in marks:
            at_marks[len(state.told)] = state.recommended()

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
