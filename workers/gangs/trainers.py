"""Ray Train inside an evaluation.

A trainer makes a placement group for its workers, whatever the evaluation holds. Evaluations that
hold processors could all wait for their trainers' groups without end, and Ray leaves the group of a
trainer that was killed. So with `TrainerCrew` an evaluation holds only its own group, and its
trainer's workers run in that group. All other functions are refused trainers. Both are done by
`workers.gangs.trainer_check`, which Ray Train imports when a trainer begins, because an environment
variable names it (`workers.on_ray.crews.refuse_trainers`).
"""

import importlib
from collections.abc import Mapping
from typing import Any

import ray.cloudpickle
from ray.util.placement_group import PlacementGroup, get_current_placement_group

from objectives.objective import Objective
from objectives.reference import modules_of_files
from workers.executor import ExecutorError
from workers.gangs.causes import kind_of_trainers_error
from workers.gangs.groups import GroupCrew
from workers.gangs.ranks import OTHERS_SECONDS
from workers.messages import FailureKind, Limits
from workers.on_ray.packing import Need

_groups: list[PlacementGroup] = []  # at most one: the group for the trainers of this process


class TrainerCrew(GroupCrew):
    """The worker actor holds no processors: the trainer's workers have the whole group."""

    further_seconds = OTHERS_SECONDS
    sharing = "PACK"

    def __init__(self) -> None:
        """Raises ExecutorError if the installed Ray Train cannot be given a placement group."""
        try:
            importlib.import_module("workers.gangs.trainer_check")
        except RuntimeError as error:
            raise ExecutorError(str(error)) from error

    def reserve(self, name: str, need: Need) -> Mapping[str, Any]:
        """Request a group for the trainer's workers."""
        return {**super().reserve(name, need), "num_cpus": 0.0, "num_gpus": 0.0, "memory": None}

    def prepare(self, objective: Objective, limits: Limits) -> None:
        """Let this process start trainers in its own placement group, with functions of the
        objective's file, which the trainer's workers cannot import."""
        group = get_current_placement_group()
        assert group is not None, "each worker of this crew has a group"
        _groups[:] = [group]
        super().prepare(objective, limits)
        for module in modules_of_files():
            ray.cloudpickle.register_pickle_by_value(module)

    def kind_of(self, error: BaseException) -> FailureKind:
        """Classify an exception: a process or node that the trainer lost is no error of its own."""
        return kind_of_trainers_error(error)


def group_for_trainers() -> PlacementGroup | None:
    """Return the placement group for the trainers of this process; None if it may not start any."""
    return _groups[0] if _groups else None
