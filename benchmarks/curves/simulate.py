"""One search in virtual time: workers train, report after each step, and are told to continue or to
stop.

A trial is started once. It can be paused at a report and continued later from its step, on any
worker. Suggestions and decisions take no simulated time.
"""

import heapq
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from bbkb.orchestrator.errors import CampaignError
from benchmarks.curves.problems import Configuration, CurveProblem, Floats


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

    @property
    def label(self) -> str:
        """The conditions that searches in one table have in common."""
        return f"{self.trainings} trainings, {self.workers} workers"

    def __str__(self) -> str:
        return f"{self.label}, seed {self.seed}"


class Method(Protocol):
    """A search method. Trials are numbered in the order of their starts; values are maximized."""

    @property
    def watches(self) -> bool:
        """Whether the method reads values before the end."""
        ...

    def suggest(self) -> Suggestion | None:
        """Choose the next task of a free worker; None if it waits for the next report."""
        ...

    def report(self, trial: int, step: int, value: float) -> bool:
        """Receive a value before the last step; return False to pause the trial."""
        ...

    def end(self, trial: int, value: float) -> None:
        """The value at the last step."""
        ...


@dataclass(frozen=True, kw_only=True)
class Record:
    """A finished search."""

    problem: str  # its name
    method: str  # its name
    workers: int  # simulated workers
    trainings: int  # the budget, in full trainings
    seed: int  # of the method
    used: Sequence[float]  # for each change of the recommendation the share of the budget that was used
    regrets: Sequence[float]  # of each configuration recommended, at the last step
    finished_regret: float | None  # of the best training that reached the last step; None if none did
    starts: int  # the number of trials
    continuations: int  # the number of continuations of paused trials
    finished: int  # the number of trials that reached the last step
    seconds: float  # CPU seconds of the method

    @property
    def key(self) -> tuple[str | int, ...]:
        """Problem, workers, trainings and seed."""
        return (self.problem, self.workers, self.trainings, self.seed)


@dataclass(frozen=True)
class Seen:
    """A report that a method or the user sees."""

    used: int  # the budget used by then
    trial: int
    reports: int  # the number of reports of the trial by then


@dataclass
class _Trial:
    configuration: Configuration
    values: Floats
    reached: int = 0  # reports so far
    is_running: bool = True


@dataclass
class Search:
    """A running search."""

    problem: CurveProblem
    method: Method
    trials: list[_Trial] = field(default_factory=list)
    running: list[tuple[float, int, int]] = field(default_factory=list)  # time of the next report, order, trial
    now: float = 0.0
    used: int = 0
    order: int = 0
    continuations: int = 0
    seconds: float = 0.0
    seen: list[Seen] = field(default_factory=list)

    def fill(self, workers: int) -> None:
        """Give work to the free workers."""
        while len(self.running) < workers:
            began = time.process_time()
            suggestion = self.method.suggest()
            self.seconds += time.process_time() - began
            if suggestion is None:
                return
            self._follow(self._begin(suggestion))

    def _begin(self, suggestion: Suggestion) -> int:
        if isinstance(suggestion, Start):
            self.trials.append(_Trial(suggestion.configuration, self.problem.curve(suggestion.configuration)))
            return len(self.trials) - 1
        trial = self.trials[suggestion.trial]
        if trial.is_running or trial.reached == len(trial.values):
            raise CampaignError(f"trial {suggestion.trial} is not paused and cannot be continued")
        trial.is_running = True
        self.continuations += 1
        return suggestion.trial

    def _follow(self, number: int) -> None:
        """Let the trial train until its next report."""
        trial = self.trials[number]
        if not self.method.watches:
            trial.reached = len(trial.values) - 1
        self.order += 1
        end = self.now + self._cost(trial) / self.problem.last_step
        heapq.heappush(self.running, (end, self.order, number))

    def _cost(self, trial: _Trial) -> int:
        """The cost of the next report."""
        at = trial.reached
        return self.problem.costs[at] if self.method.watches else self.problem.cost_of(at + 1)

    def step(self) -> None:
        """Take the next report."""
        self.now, _, number = heapq.heappop(self.running)
        trial = self.trials[number]
        self.used += self._cost(trial)
        at = trial.reached
        trial.reached = at + 1
        value = float(trial.values[at])
        began = time.process_time()
        if trial.reached == len(trial.values):
            self.method.end(number, value)
            trial.is_running = False
        else:
            trial.is_running = self.method.report(number, self.problem.steps[at], value)
        self.seconds += time.process_time() - began
        self.seen.append(Seen(self.used, number, trial.reached))
        if trial.is_running:
            self._follow(number)


def search(problem: CurveProblem, method: Method, name: str, setting: Setting) -> Record:
    """Run one search until the budget is used, or all configurations of a list were tried.

    Raises CampaignError if the method waits while nothing runs, or continues a trial that is not
    paused.
    """
    state = Search(problem, method)
    while state.used < setting.trainings * problem.last_step:
        state.fill(setting.workers)
        if not state.running and problem.arms is not None and len(state.trials) >= len(problem.arms):
            break  # all configurations were tried
        if not state.running:
            raise CampaignError(f"{name} waits on {problem.name} while nothing is running")
        state.step()
    curves = {number: trial.values for number, trial in enumerate(state.trials)}
    return make_record(problem, name, setting, state.seen, curves, state.continuations, state.seconds)


def make_record(
    problem: CurveProblem,
    name: str,
    setting: Setting,
    seen: Sequence[Seen],
    curves: Mapping[int, Floats],
    continuations: int,
    seconds: float,
) -> Record:
    """Make the record of a search, whose recommendation is the trial with the best latest value.

    `seen`: the reports within the budget. `curves`: the values of each trial begun. `seconds`: CPU
    seconds of the method.
    """
    regret_of = {trial: problem.regret(float(curve[-1])) for trial, curve in curves.items()}
    furthest = dict.fromkeys(curves, 0)
    last: dict[int, float] = {}  # the latest value of each trial
    changes: list[tuple[int, int]] = []  # budget used, and the trial recommended from then on
    for report in seen:
        trial = report.trial
        furthest[trial] = max(report.reports, furthest[trial])
        last[trial] = float(curves[trial][furthest[trial] - 1])
        best = max(last, key=lambda one: (last[one], -one))
        if not changes or best != changes[-1][1]:
            changes.append((report.used, best))
    ended = [regret_of[trial] for trial, reports in furthest.items() if reports == len(curves[trial])]
    return Record(
        problem=problem.name,
        method=name,
        **vars(setting),
        used=[used / (setting.trainings * problem.last_step) for used, _ in changes],
        regrets=[regret_of[trial] for _, trial in changes],
        finished_regret=min(ended, default=None),
        starts=len(curves),
        continuations=continuations,
        finished=len(ended),
        seconds=seconds,
    )


def at_marks(record: Record, marks: Sequence[float]) -> Floats:
    """The regret (M,) of the recommendation when these shares of the budget were used."""
    places = np.searchsorted(np.asarray(record.used), np.asarray(marks) + 1e-9, side="right") - 1
    return np.asarray(record.regrets)[np.maximum(places, 0)]
