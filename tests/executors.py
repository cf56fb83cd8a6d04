"""The executors that tests are parametrized over: those that need no cluster."""

from collections.abc import Callable

from bbkb.objectives.objective import Objective
from bbkb.workers.executor import TRAITS, Executor
from bbkb.workers.local import DurationModel, Failures, InlineExecutor, SimulatedExecutor
from bbkb.workers.messages import Limits

HERE = tuple(name for name, traits in TRAITS.items() if not traits.on_ray)


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
    return 1 if TRAITS[name].one_at_a_time else 4
