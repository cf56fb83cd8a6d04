"""A campaign on a parabola that can be run, killed and resumed in virtual time."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from bbkb.objectives.objective import Candidates, Evaluation, Parameters, Report
from bbkb.orchestrator.bandit.start.warm_start import DataStart
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.campaign.commands import Close
from bbkb.orchestrator.campaign.events import Event, ExistingTaken, SessionOpened
from bbkb.orchestrator.engine.engine import Problem, replay
from bbkb.orchestrator.engine.pool import Pool
from bbkb.orchestrator.session.driver import Driver
from bbkb.orchestrator.store.store import EventStore
from bbkb.workers.executor import Executor
from bbkb.workers.local import DurationModel, Failures, SimulatedExecutor
from bbkb.workers.messages import FailureKind
from tests.orchestrator.campaign.short_logs import created, opening

# without reports a population ends when all members have begun
OPTIONS: dict[str, dict[str, Any]] = {"pbt": {"population": 101}}


@dataclass(frozen=True)
class Parabola:
    """Best at x = 0.3; fails below `breaks_below`."""

    breaks_below: float = -1.0

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        if parameters["x"] < self.breaks_below:
            raise RuntimeError("too small")
        noise = 0.01 * np.random.default_rng(seed).standard_normal()
        return Evaluation(1.0 - (parameters["x"] - 0.3) ** 2 + float(noise))


@dataclass
class Campaign:
    """A campaign on a SQLite file that can be run, killed and resumed."""

    folder: Path
    evaluations: int = 30
    objective: Any = field(default_factory=Parabola)
    strategy: str = "bbkb"
    slots: int = 3
    existing: bool = False

    def __post_init__(self) -> None:
        x = np.linspace(0.0, 1.0, 101)
        strategy = STRATEGIES[self.strategy](**OPTIONS.get(self.strategy, {}))
        self.problem = Problem(7, Pool(Candidates(x[:, None], {"x": x})), strategy)
        self.store = EventStore(f"sqlite:///{self.folder / 'campaign.sqlite'}")
        self.settings: dict[str, Any] = {
            "objective": {"direction": "maximize"},
            "budget": {"evaluations": self.evaluations},
            "workers": {"retries": 1},
        }
        begun = created(self.settings, name="parabola", seed=7, arms=101, optimum=1.0)
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

    def driver(self, executor: Executor, observe: Any = lambda status: None) -> Driver:
        writer = self.store.claim("c", "test")
        return Driver(replay(self.problem, self.events()), writer, executor, observe)

    def session_event(self, executor: Executor, **settings: Any) -> SessionOpened:
        return opening({**self.settings, **settings}, executor.slots, executor.now(), executor="test")

    def simulated_executor(self, failure_rate: float = 0.0) -> SimulatedExecutor:
        failures = Failures(failure_rate, FailureKind.WORKER_LOST)
        return SimulatedExecutor(self.objective, self.slots, DurationModel(1.0, 0.5), failures, 7)

    def run(self, executor: Executor) -> Close:
        return self.driver(executor).run(self.session_event(executor))


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
