"""The functions that make the executors. `workers/executor.py` lists their properties."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.session.build import Parts, limits_of
from bbkb.workers.executor import Executor, ExecutorError, ExecutorName
from bbkb.workers.local import DurationModel, Failures, InlineExecutor, SimulatedExecutor

if TYPE_CHECKING:
    from bbkb.workers.on_ray.actors import Allocation


@dataclass(frozen=True)
class Request:
    """The input of a function that makes an executor."""

    settings: Settings
    parts: Parts
    run: str  # the name of the run
    start_at: float  # the time of the log's last event, for a clock that continues
    allocation: "Allocation | None"  # Ray workers that have been started already


def _make_inline(request: Request) -> Executor:
    return InlineExecutor(request.parts.objective, limits_of(request.settings))


def _make_simulated(request: Request) -> Executor:
    workers = request.settings.workers
    simulation = workers.simulation
    return SimulatedExecutor(
        request.parts.objective,
        slots=workers.count,
        durations=DurationModel(simulation.seconds, simulation.sigma),
        failures=Failures(simulation.failure_rate),
        seed=request.settings.seed,
        start_at=request.start_at,
    )


def _make_ray(request: Request) -> Executor:
    """Raises UserError if the cluster can never provide a worker."""
    # imported here so that campaigns without Ray do not load it
    from bbkb.orchestrator.session.ray_workers import placement_of
    from bbkb.workers.on_ray.executor import RayExecutor

    settings = request.settings
    try:
        placement = placement_of(settings, request.run, request.parts.largest)
        return RayExecutor(
            request.parts.objective,
            settings.workers.count,
            placement,
            request.allocation,
            evaluations=settings.budget.evaluations,
        )
    except ExecutorError as error:
        raise UserError(str(error)) from error


MAKE: Mapping[ExecutorName, Callable[[Request], Executor]] = {
    "ray": _make_ray,
    "inline": _make_inline,
    "simulated": _make_simulated,
}


def unenforced_limits(settings: Settings) -> str:
    """Return a warning about limits, or a number of workers, that the executor ignores; else an
    empty text."""
    workers = settings.workers
    limits = [f"workers.{key}" for key in workers.traits.unenforced if getattr(workers, key)]
    if limits:
        verb = "is" if len(limits) == 1 else "are"
        return f"{' and '.join(limits)} {verb} not enforced by workers.executor {workers.executor}, only by ray"
    if workers.traits.one_at_a_time and workers.count > 1:
        return (
            f"workers.executor {workers.executor} runs one evaluation at a time, in this process: "
            "workers.count has no effect"
        )
    return ""
