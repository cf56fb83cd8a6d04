"""Ray Train inside an evaluation.

A trainer requests a placement group for its workers, whatever the evaluation holds. Evaluations
that hold processors could all wait forever for their trainers' groups, and Ray does not remove the
group of a killed trainer. With `TrainerCrew`, an evaluation therefore holds only its own group, in
which its trainer's workers run. All other functions may not start trainers.
`bbkb.workers.gangs.trainer_check` enforces both: Ray Train imports it when a trainer starts, because an
environment variable names it (`bbkb.workers.on_ray.crews.refuse_trainers`).
"""

import importlib
from collections.abc import Mapping
from typing import Any

import ray.cloudpickle
from ray.util.placement_group import PlacementGroup, get_current_placement_group

from bbkb.objectives.objective import Objective
from bbkb.objectives.reference import modules_of_files
from bbkb.workers.executor import ExecutorError
from bbkb.workers.gangs.groups import GroupCrew, kind_of_trainers_error
from bbkb.workers.gangs.ranks import OTHERS_SECONDS
from bbkb.workers.messages import FailureKind, Limits
from bbkb.workers.on_ray.packing import Need

_groups: list[PlacementGroup] = []  # at most one: the group for the trainers of this process


class TrainerCrew(GroupCrew):
    """A crew whose worker actor holds no processors: the trainer's workers use the whole group."""

    further_seconds = OTHERS_SECONDS
    sharing = "PACK"

    def __init__(self) -> None:
        """Raises ExecutorError if the installed Ray Train cannot use a given placement group."""
        try:
            importlib.import_module("bbkb.workers.gangs.trainer_check")
        except RuntimeError as error:
            raise ExecutorError(str(error)) from error

    def reserve(self, name: str, need: Need) -> Mapping[str, Any]:
        """Request a group for the trainer's workers."""
        return {**super().reserve(name, need), "num_cpus": 0.0, "num_gpus": 0.0, "memory": None}

    def prepare(self, objective: Objective, limits: Limits) -> None:
        """Let this process start trainers in its own placement group. Their functions may come from
        the objective's file, which the trainer's workers cannot import."""
        group = get_current_placement_group()
        assert group is not None, "each worker of this crew has a group"
        _groups[:] = [group]
        super().prepare(objective, limits)
        for module in modules_of_files():
            ray.cloudpickle.register_pickle_by_value(module)

    def kind_of(self, error: BaseException) -> FailureKind:
        """Classify an exception: the loss of a process or node is not an error of the function."""
        return kind_of_trainers_error(error)


def group_for_trainers() -> PlacementGroup | None:
    """Return the placement group for this process's trainers; None if it may not start any."""
    return _groups[0] if _groups else None
