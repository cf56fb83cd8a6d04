"""Makes the executors, and the placement of evaluations on Ray. `workers/executor.py` lists their properties.

Campaigns without Ray do not load it: its modules are imported where they are needed.
"""

import sys
from typing import TYPE_CHECKING

from bbkb.objectives.objective import HasPreparation
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.session.build import Parts, limits_of
from bbkb.orchestrator.settings.options import objective_of
from bbkb.workers.executor import Executor, ExecutorError
from bbkb.workers.local import DurationModel, Failures, InlineExecutor, SimulatedExecutor
from bbkb.workers.messages import Share

if TYPE_CHECKING:
    from bbkb.workers.on_ray.actors import Allocation, FirstWorkers
    from bbkb.workers.on_ray.places import Placement


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


def placement_of(settings: Settings, campaign: str, largest: Share | None) -> "Placement":
    """Return the placement for the evaluations of the run `campaign`.

    `largest` are the resources of the largest trial, if the trials differ. Raises ExecutorError if
    evaluations need Ray Train and it is not installed.
    """
    from bbkb.workers.on_ray.crews import Crew
    from bbkb.workers.on_ray.places import Placement

    workers = settings.workers
    crew = Crew()  # the processes of one evaluation; only a campaign with several imports `gangs`
    if workers.ray_train:
        from bbkb.workers.on_ray.gangs import TrainerCrew

        crew = TrainerCrew()
    elif workers.is_gang:
        from bbkb.workers.on_ray.gangs import RankCrew

        crew = RankCrew(campaign)
    return Placement(
        campaign=campaign,
        label=f"evaluate:{settings.name}",
        kind="actor" if workers.is_gang else workers.kind,
        cpus=workers.cpus,
        gpus=workers.gpus,
        machines=workers.machines,
        is_spread=workers.is_spread,
        crew=crew,
        limits=limits_of(settings),
        largest=largest,
    )


def first_workers(settings: Settings, campaign: str, cores: int | None = None) -> "FirstWorkers | None":
    """Return the workers that start before there are attempts for them.

    `cores` are those of this machine if all workers run on it: the coordinator starts on one of
    them, and more processes would delay it. The other workers start with their attempts.

    None if evaluations are Ray tasks (Ray keeps processes ready for them), if a parameter determines
    the GPUs of a trial, or if an evaluation takes several machines.
    """
    from bbkb.workers.on_ray.actors import FirstWorkers

    workers = settings.workers
    objective = objective_of(settings.objective)
    if workers.kind == "task" or workers.is_gang or workers.gpus_from:
        return None
    return FirstWorkers(
        count=min(workers.count, settings.budget.evaluations, max(1, (cores or sys.maxsize) - 1)),
        slots=workers.count,
        placement=placement_of(settings, campaign, None),
        objective=objective if isinstance(objective, HasPreparation) else None,
    )
