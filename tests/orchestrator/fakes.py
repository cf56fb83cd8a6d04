"""For tests of sessions: an objective, a campaign that can be run, killed and resumed in virtual time, an executor."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from bbkb.objectives.objective import Candidates, Evaluation, Parameters, Report
from bbkb.orchestrator.bandit.start.warm_start import DataStart
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.campaign.events import Event, ExistingTaken, SessionOpened, TrialSucceeded
from bbkb.orchestrator.campaign.policy import Close
from bbkb.orchestrator.engine.engine import Problem, replay
from bbkb.orchestrator.engine.pool import Pool
from bbkb.orchestrator.session.driver import Driver
from bbkb.orchestrator.store.store import EventStore
from bbkb.workers.executor import Executor, TakeReports
from bbkb.workers.local import DurationModel, Failures, SimulatedExecutor
from bbkb.workers.messages import Attempt, FailureKind, Outcome
from tests.orchestrator.events import created, opening

# without reports a population ends when all members have begun
OPTIONS: dict[str, dict[str, Any]] = {"pbt": {"population": 101}}


@dataclass(frozen=True)
class Parabola:
    """Best at x = 0.3; fails below `breaks_below`."""

    breaks_below: float = -1.0
    noise: float = 0.01

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        if parameters["x"] < self.breaks_below:
            raise RuntimeError("too small")
        noise = self.noise * np.random.default_rng(seed).standard_normal()
        return Evaluation(1.0 - (parameters["x"] - 0.3) ** 2 + float(noise))


@dataclass
class Campaign:
    """A campaign on a SQLite file that can be run, killed and resumed."""

    folder: Path
    evaluations: int = 30
    objective: Any = field(default_factory=Parabola)
    strategy: Any = "bbkb"  # a name, or the strategy itself, whose mode the settings then have
    slots: int = 3
    existing: bool = False
    points: int = 101

    def __post_init__(self) -> None:
        x = np.linspace(0.0, 1.0, self.points)
        is_named = isinstance(self.strategy, str)
        strategy = STRATEGIES[self.strategy](**OPTIONS.get(self.strategy, {})) if is_named else self.strategy
        options = () if is_named else ("mode", "refresh_growth")
        self.problem = Problem(7, Pool(Candidates(x[:, None], {"x": x})), strategy)
        self.store = EventStore(f"sqlite:///{self.folder / 'campaign.sqlite'}")
        self.settings: dict[str, Any] = {
            "objective": {"direction": "maximize"},
            "budget": {"evaluations": self.evaluations},
            "workers": {"retries": 1},
            "strategy": {name: getattr(strategy, name) for name in options if hasattr(strategy, name)},
        }
        begun = created(self.settings, arms=self.points, optimum=1.0)
        self.store.create("c", [begun, *self.existing_events()])

    def existing_events(self) -> list[Event]:
        """A steeper parabola than the campaign's own, with its top elsewhere, like that of another
        data set."""
        if not self.existing:
            return []
        arms = tuple(range(0, 100, 2)) + tuple(range(0, 90, 3))
        values = tuple(1.0 - 4.0 * (arm / 100 - 0.6) ** 2 for arm in arms)
        event = ExistingTaken(time=0.0, source="t.csv", arms=arms, values=values)
        return [event]

    def events(self) -> list[Event]:
        return list(self.store.read("c"))

    def driver(self, executor: Executor, observe: Any = lambda status: None, **options: Any) -> Driver:
        writer = self.store.claim("c", "test")
        return Driver(replay(self.problem, self.events()), writer, executor, observe, **options)

    def session_event(self, executor: Executor, **settings: Any) -> SessionOpened:
        return opening({**self.settings, **settings}, executor.slots, executor.now(), executor="ray")

    def simulated_executor(
        self, failure_rate: float = 0.0, durations: DurationModel | None = None, seed: int = 7
    ) -> SimulatedExecutor:
        failures = Failures(failure_rate, FailureKind.WORKER_LOST)
        return SimulatedExecutor(self.objective, self.slots, durations or DurationModel(1.0, 0.5), failures, seed)

    def run(self, executor: Executor) -> Close:
        return self.driver(executor).run(self.session_event(executor))


class Puppet:
    """An executor whose outcomes the test hands over, on a clock that stands still."""

    slots = 2

    def __init__(self) -> None:
        self.submitted: list[Attempt] = []
        self.ready: list[Outcome] = []
        self.has_news = threading.Event()

    def adopt(self, attempts: Mapping[int, int]) -> frozenset[int]:
        return frozenset()

    def submit(self, attempts: Sequence[Attempt]) -> None:
        self.submitted.extend(attempts)
        self.has_news.set()

    def next_outcomes(self, timeout: float | None) -> list[Outcome]:
        outcomes, self.ready = self.ready, []
        return outcomes

    def listen(self, take: TakeReports) -> None: ...

    def pause(self, seconds: float) -> None: ...

    def acknowledge(self, attempts: Sequence[tuple[int, int]]) -> None:
        self.has_news.set()

    def now(self) -> float:
        return 0.0

    def close(self, leave_running: bool = False) -> None: ...

    def finish(self, attempt: Attempt) -> None:
        """Let this evaluation end with the value 1, and wait until the loop has handled it."""
        self.has_news.clear()
        self.ready = [
            TrialSucceeded(
                trial=attempt.trial, attempt=attempt.attempt, value=1.0, started=0.0, finished=0.0, worker="puppet"
            )
        ]
        assert self.has_news.wait(200)


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the driver may catch it."""


STARTING = [name for name, cls in STRATEGIES.items() if "warm_start" in {option.name for option in fields(cls)}]


def campaign_with_existing(folder: Path, strategy: str, direction: str = "maximize", **options: Any) -> Campaign:
    """A campaign that knows 80 values of a parabola with its top (or bottom) at x = 0.6."""
    campaign = Campaign(folder, evaluations=12, strategy=strategy, existing=True, **options)
    campaign.settings["objective"] = {"direction": direction}
    campaign.problem = replace(
        campaign.problem, strategy=STRATEGIES[strategy](warm_start=DataStart(), regularization=0.01)
    )
    return campaign
