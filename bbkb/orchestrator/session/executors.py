"""Makes the executors. `workers/executor.py` lists their properties."""

from typing import TYPE_CHECKING

from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.session.build import Parts, limits_of
from bbkb.workers.executor import Executor, ExecutorError
from bbkb.workers.local import DurationModel, Failures, InlineExecutor, SimulatedExecutor

if TYPE_CHECKING:
    from bbkb.workers.on_ray.actors import Allocation


def make_executor(
    settings: Settings, parts: Parts, run: str, start_at: float, allocation: "Allocation | None"
) -> Executor:
    """Return a new executor for the run `run`.

    `start_at` is the time of the log's last event, for a clock that continues; `allocation` has Ray workers that
    have been started already. Raises UserError if the cluster can never provide a worker.
    """
    workers = settings.workers
    if workers.executor == "inline":
        return InlineExecutor(parts.objective, limits_of(settings))
    if workers.executor == "simulated":
        simulation = workers.simulation
        return SimulatedExecutor(
            parts.objective,
            slots=workers.count,
            durations=DurationModel(simulation.seconds, simulation.sigma),
            failures=Failures(simulation.failure_rate),
            seed=settings.seed,
            start_at=start_at,
        )
    # imported here so that campaigns without Ray do not load it
    from bbkb.orchestrator.session.ray_workers import placement_of
    from bbkb.workers.on_ray.executor import RayExecutor

    try:
        placement = placement_of(settings, run, parts.largest)
        evaluations = settings.budget.evaluations
        return RayExecutor(parts.objective, workers.count, placement, allocation, evaluations=evaluations)
    except ExecutorError as error:
        raise UserError(str(error)) from error


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
