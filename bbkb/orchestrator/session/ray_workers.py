"""Converts the section `workers` for the Ray executor: the placement of evaluations and the initial
workers."""

import sys

from bbkb.objectives.objective import HasPreparation
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.session.build import limits_of
from bbkb.orchestrator.settings.options import objective_of
from bbkb.workers.messages import Share
from bbkb.workers.on_ray.actors import FirstWorkers
from bbkb.workers.on_ray.crews import Crew
from bbkb.workers.on_ray.places import Placement


def placement_of(settings: Settings, campaign: str, largest: Share | None) -> Placement:
    """Return the placement for the evaluations of the run `campaign`.

    `largest` are the resources of the largest trial, if the trials differ. Raises ExecutorError if
    evaluations need Ray Train and it is not installed.
    """
    workers = settings.workers
    crew = Crew()  # the processes of one evaluation; only a campaign with several imports `bbkb.workers.gangs`
    if workers.ray_train:
        from bbkb.workers.gangs.trainers import TrainerCrew

        crew = TrainerCrew()
    elif workers.is_gang:
        from bbkb.workers.gangs.ranks import RankCrew

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


def first_workers(settings: Settings, campaign: str, cores: int | None = None) -> FirstWorkers | None:
    """Return the workers that start before there are attempts for them.

    `cores` are those of this machine if all workers run on it: the coordinator starts on one of
    them, and more processes would delay it. The other workers start with their attempts.

    None if evaluations are Ray tasks (Ray keeps processes ready for them), if a parameter determines
    the GPUs of a trial, or if an evaluation takes several machines.
    """
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
