"""One search in virtual time: workers train, report after each step, and are told to continue or to
stop.

A trial is started once. It can be paused at a report and continued later from its step, on any
worker. Suggestions and decisions take no simulated time.
"""

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from benchmarks.curves.problems import Configuration, CurveProblem, Floats
from orchestrator.errors import CampaignError


@dataclass(frozen=True)
class Start:
    """A new training of `configuration`."""

    configuration: Configuration


@dataclass(frozen=True)
class Continue:
    """Further steps of the paused trial `trial`."""

    trial: int


Suggestion = Start | Continue


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The conditions of a search."""

    workers: int  # simulated workers
    trainings: int  # the budget, in full trainings
    seed: int  # of the method
    # `equal`, every unit of the budget takes as long, or `recorded`, the seconds on record
    durations: str = "equal"


class Method(Protocol):
    """A search method. Trials are numbered 0, 1, … in the order of their starts; values are
    maximized."""

    @property
    def watches(self) -> bool:
        """Whether it looks at values before the end."""
        ...

    def suggest(self) -> Suggestion | None:
        """Choose the next task of a free worker; None if it waits for the next report."""
        ...

    def report(self, trial: int, step: int, value: float) -> bool:
        """A value before the last step; returns whether the trial continues; otherwise it
        is paused."""
        ...

    def end(self, trial: int, value: float) -> None:
        """The value at the last step."""
        ...

    def recommend(self) -> int | None:
        """The trial to recommend; None: the one whose last value is the best."""
        ...


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished search."""

    problem: str  # its name
    method: str  # its name
    workers: int  # simulated workers
    trainings: int  # the budget, in full trainings
    durations: str  # see `Setting`
    seed: int  # of the method
    used: Sequence[float]  # for each change of the recommendation the share of the budget that was used
    times: Sequence[float]  # the simulated time of each change: trainings if durations are equal, else seconds
    regrets: Sequence[float]  # of each configuration recommended, at the last step
    # the parts of the last regret: of the best training that reached the last step (None if none
    # did), and of the best configuration begun, which a perfect choice would have recommended
    finished_regret: float | None
    starts: int  # how many trials were started
    continuations: int  # how many times a paused trial was continued
    finished: int  # how many trials reached the last step
    seconds: float  # CPU seconds of the method
    # how many trials had an end that a model forecast when it was first decided whether they go on
    forecasts: int = 0
    held: int = 0  # how many of these ends were within that forecast's band μ ± 2σ
    begun_regret: float = float("nan")
    # the least regret of the trainings that reached a quarter of the steps, None if there is none,
    # and their number
    quarter_regret: float | None = None
    quarters: int = 0

    @property
    def key(self) -> tuple[str | int, ...]:
        """Problem, workers, trainings, durations and seed."""
        return (self.problem, self.workers, self.trainings, self.durations, self.seed)


@dataclass
class _Trial:
    configuration: Configuration
    values: Floats
    durations: Floats
    reached: int = 0  # reports so far
    is_running: bool = True


@dataclass
class Search:
    """A running search."""

    problem: CurveProblem
    method: Method
    is_timed: bool  # whether steps take their recorded durations
    trials: list[_Trial] = field(default_factory=list)
    running: list[tuple[float, int, int]] = field(default_factory=list)  # time of the next report, order, trial
    now: float = 0.0
    used: int = 0
    order: int = 0
    continuations: int = 0
    seconds: float = 0.0
    best: int = -1  # the trial that is recommended
    last: dict[int, float] = field(default_factory=dict)  # the latest value of each trial
    changes: list[tuple[float, float, float]] = field(default_factory=list)

    def fill(self, workers: int) -> None:
        """Give work to the free workers."""
        while len(self.running) < workers:
            began = time.process_time()
            suggestion = self.method.suggest()
            self.seconds += time.process_time() - began
            if suggestion is None:
                return
            self.follow(self._begin(suggestion))

    def _begin(self, suggestion: Suggestion) -> int:
        if isinstance(suggestion, Start):
            configuration, problem = suggestion.configuration, self.problem
            self.trials.append(_Trial(configuration, problem.curve(configuration), problem.durations(configuration)))
            return len(self.trials) - 1
        trial = self.trials[suggestion.trial]
        if trial.is_running or trial.reached == len(trial.values):
            raise CampaignError(f"trial {suggestion.trial} is not paused and cannot be continued")
        trial.is_running = True
        self.continuations += 1
        return suggestion.trial

    def follow(self, number: int) -> None:
        """Let the trial train until its next report."""
        trial = self.trials[number]
        if self.method.watches:
            at = trial.reached
            cost, seconds = self.problem.costs[at], float(trial.durations[at])
        else:
            trial.reached = len(trial.values) - 1
            cost, seconds = self.problem.cost_of(len(trial.values)), self._whole_seconds(trial)
        duration = seconds if self.is_timed else cost / self.problem.whole_cost
        self.order += 1
        heapq.heappush(self.running, (self.now + duration, self.order, number))

    def _whole_seconds(self, trial: _Trial) -> float:
        """Return the seconds of a training without reports: those of the last step if each step
        restarts the training, else those of all steps."""
        durations = trial.durations[: len(trial.values)]
        begins_anew = self.problem.whole_cost < sum(self.problem.costs)
        return float(durations[-1] if begins_anew else durations.sum())

    def step(self) -> float | None:
        """Take the next report; the value if it is that of a last step, else None."""
        self.now, _, number = heapq.heappop(self.running)
        trial, at = self.trials[number], self.trials[number].reached
        trial.reached = at + 1
        self.used += self.problem.costs[at] if self.method.watches else self.problem.cost_of(at + 1)
        value, is_end = float(trial.values[at]), at + 1 == len(trial.values)
        began, goes_on = time.process_time(), False
        if is_end:
            self.method.end(number, value)
        else:
            goes_on = self.method.report(number, self.problem.steps[at], value)
        self.seconds += time.process_time() - began
        self._recommend(number, value)
        if goes_on:
            self.follow(number)
        else:
            trial.is_running = False
        return value if is_end else None

    def _recommend(self, number: int, value: float) -> None:
        """Record the recommendation after `value` of trial `number`."""
        self.last[number] = value
        recommended = self.method.recommend()
        if recommended is None and number == self.best:
            recommended = max(self.last, key=lambda trial: (self.last[trial], -trial))
        elif recommended is None:
            recommended = number if self.best < 0 or value > self.last[self.best] else self.best
        if recommended != self.best:
            self.best = recommended
            regret = self.problem.regret(float(self.trials[recommended].values[-1]))
            self.changes.append((self.used, self.now, regret))


def search(problem: CurveProblem, method: Method, name: str, setting: Setting) -> Record:
    """Run one search until the budget is used, or all configurations of a list were tried.

    Args:
        problem: the problem to search.
        method: the search method.
        name: that of the method in the record.
        setting: workers, budget, seed and durations.

    Raises:
        CampaignError: when the method waits while nothing runs, or continues a trial that is not
            paused.
    """
    budget = setting.trainings * problem.whole_cost
    state = Search(problem, method, setting.durations == "recorded")
    while state.used < budget:
        state.fill(setting.workers)
        if not state.running and problem.arms is not None and len(state.trials) >= len(problem.arms):
            break  # all configurations were tried
        if not state.running:
            raise CampaignError(f"{name} waits on {problem.name} while nothing is running")
        state.step()
    return make_record(
        problem,
        name,
        setting,
        changes=state.changes,
        trials=[
            (trial.values, trial.reached if number in state.last else 0) for number, trial in enumerate(state.trials)
        ],
        continuations=state.continuations,
        seconds=state.seconds,
    )


def make_record(
    problem: CurveProblem,
    name: str,
    setting: Setting,
    *,
    changes: Sequence[tuple[float, float, float]],
    trials: Sequence[tuple[Floats, int]],
    continuations: int,
    seconds: float,
) -> Record:
    """Make the record of a search.

    Args:
        problem: the problem.
        name: the method.
        setting: workers, budget, seed and durations.
        changes: budget used, time and regret at each change of the recommendation.
        trials: the values of all trials begun, and how many of them were reported.
        continuations: how many times a paused trial was continued.
        seconds: CPU seconds of the method.
    """
    budget = setting.trainings * problem.whole_cost
    used, times, regrets = zip(*changes, strict=True)
    begun = [problem.regret(float(curve[-1])) for curve, _ in trials]
    shares = [1.0 if reports == len(curve) else reports / len(problem.steps) for curve, reports in trials]
    ended = [regret for regret, share in zip(begun, shares, strict=True) if share == 1.0]
    quarter = [regret for regret, share in zip(begun, shares, strict=True) if share >= 0.25]
    return Record(
        problem=problem.name,
        method=name,
        workers=setting.workers,
        trainings=setting.trainings,
        durations=setting.durations,
        seed=setting.seed,
        used=[number / budget for number in used],
        times=times,
        regrets=regrets,
        finished_regret=min(ended, default=None),
        begun_regret=min(begun),
        quarter_regret=min(quarter, default=None),
        quarters=len(quarter),
        starts=len(begun),
        continuations=continuations,
        finished=len(ended),
        seconds=seconds,
    )


def at_marks(record: Record, marks: Sequence[float]) -> Floats:
    """The regret (M,) of the recommendation when these shares of the budget were used; the first
    one before it."""
    places = np.searchsorted(np.asarray(record.used), np.asarray(marks) + 1e-9, side="right") - 1
    return np.asarray(record.regrets)[np.maximum(places, 0)]
