"""The executors that tests are parametrized over: those that need no cluster."""

from collections.abc import Callable

from objectives.objective import Objective
from orchestrator.session.executors import EXECUTORS
from workers.executor import ONE_AT_A_TIME, Executor
from workers.inline import InlineExecutor
from workers.messages import Limits
from workers.simulated import DurationModel, Failures, SimulatedExecutor

HERE = tuple(name for name in EXECUTORS if name != "ray")


def _simulated(objective: Objective, limits: Limits) -> Executor:
    return SimulatedExecutor(objective, 2, DurationModel(5.0, 0.5), Failures(), seed=0)


_CLASSES: dict[str, Callable[[Objective, Limits], Executor]] = {
    "inline": InlineExecutor,
    "simulated": _simulated,
}


def executor_here(name: str, objective: Objective, limits: Limits | None = None) -> Executor:
    """Return a new executor; `name` is one of `HERE`."""
    return _CLASSES[name](objective, limits or Limits())


def workers_of(name: str) -> int:
    """Return a number of workers that the executor supports: several if possible."""
    return 1 if name in ONE_AT_A_TIME else 4
