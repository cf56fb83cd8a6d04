"""The executors by name. To add one, write its class in `workers/`, a function that makes it and a
line of `EXECUTORS` here, and add its name to `ExecutorName` in `workers/executor.py`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import UserError
from orchestrator.session.build import Parts
from orchestrator.session.resources import limits_of
from orchestrator.settings.model import Settings
from workers.executor import ONE_AT_A_TIME, Executor, ExecutorError, ExecutorName
from workers.inline import InlineExecutor
from workers.simulated import DurationModel, Failures, SimulatedExecutor

if TYPE_CHECKING:
    from workers.on_ray.allocation import Allocation


@dataclass(frozen=True)
class Request:
    """The input of a function that makes an executor."""

    settings: Settings
    parts: Parts
    run: str  # the name of the run
    start_at: float  # the time of the log's last event, for a clock that continues
    allocation: "Allocation | None"  # Ray workers that have been started already


@dataclass(frozen=True, kw_only=True)
class ExecutorKind:
    """A way to make an executor, and the properties that a session must know."""

    make: Callable[[Request], Executor]
    # whether the strategy computes in a background thread while the loop receives results
    computes_in_background: bool = False
    unenforced: tuple[str, ...] = ()  # keys of `workers` whose limits the executor cannot enforce


def _make_inline(request: Request) -> Executor:
    return InlineExecutor(request.parts.objective, limits_of(request.settings))


def _make_simulated(request: Request) -> Executor:
    workers = request.settings.workers
    simulation = workers.simulation
    return SimulatedExecutor(
        request.parts.objective,
        slots=workers.count,
        durations=DurationModel(
            simulation.seconds,
            simulation.sigma,
            simulation.straggler_share,
            simulation.straggler_factor,
        ),
        failures=Failures(simulation.failure_rate),
        seed=request.settings.seed,
        start_at=request.start_at,
    )


def _make_ray(request: Request) -> Executor:
    """Raises UserError if the cluster can never provide a worker."""
    # imported here so that campaigns without Ray do not load it
    from orchestrator.session.ray_workers import placement_of
    from workers.on_ray.executor import RayExecutor

    settings = request.settings
    problem = request.parts.problem
    try:
        placement = placement_of(settings, request.run, problem.resources)
        return RayExecutor(
            request.parts.objective,
            settings.workers.count,
            limits_of(settings),
            placement,
            request.allocation,
            evaluations=settings.budget.evaluations or 0,
        )
    except ExecutorError as error:
        raise UserError(str(error)) from error


# While the strategy computes, there are no results to receive inline or in virtual time.
EXECUTORS: Mapping[ExecutorName, ExecutorKind] = {
    "ray": ExecutorKind(make=_make_ray, computes_in_background=True),
    "inline": ExecutorKind(make=_make_inline, unenforced=("memory_gb", "timeout_factor")),
    "simulated": ExecutorKind(make=_make_simulated, unenforced=("memory_gb", "timeout_seconds")),
}


def unenforced_limits(settings: Settings) -> str:
    """Return a warning about limits, or a number of workers, that the executor ignores; else an
    empty text."""
    workers = settings.workers
    unenforced = EXECUTORS[workers.executor].unenforced
    limits = [f"workers.{key}" for key in unenforced if getattr(workers, key) is not None]
    if limits:
        verb = "is" if len(limits) == 1 else "are"
        return f"{' and '.join(limits)} {verb} not enforced with workers.executor {workers.executor}, but with ray"
    asks_for_several = "count" in workers.model_fields_set and workers.count > 1
    if workers.executor in ONE_AT_A_TIME and asks_for_several:
        return (
            f"workers.executor {workers.executor} runs one evaluation at a time, in this process: "
            "workers.count has no effect"
        )
    return ""
