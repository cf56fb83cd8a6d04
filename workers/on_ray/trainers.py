"""Ray Train inside an evaluation.

A trainer makes a placement group for its workers, whatever the evaluation holds. Evaluations that
hold processors could all wait for their trainers' groups without end, and Ray leaves the group of a
trainer that was killed. So in a campaign with `Placement.is_train` an evaluation holds only its own
group, and its trainer's workers run in that. Any other function is refused a trainer. Both is
done by `workers.on_ray.trainer_check`, which Ray Train imports when a trainer begins, because an
environment variable names it.
"""

import importlib
import os

import ray.cloudpickle
from ray.util.placement_group import PlacementGroup, get_current_placement_group

from objectives.command import ShellCommand
from objectives.objective import HasPreparation, Objective
from objectives.reference import modules_of_files
from objectives.with_metrics import WithMetrics
from workers.evaluate import prepare
from workers.executor import ExecutorError
from workers.messages import Limits

_CALLBACKS = "RAY_TRAIN_CALLBACKS"  # of Ray Train: classes that it makes when a trainer begins
_CHECK = "workers.on_ray.trainer_check.TrainerCheck"
_groups: list[PlacementGroup] = []  # at most one: the group for the trainers of this process


def check_ray_train() -> None:
    """Raise ExecutorError when the installed Ray Train cannot be given a placement group."""
    try:
        importlib.import_module(_CHECK.rpartition(".")[0])
    except RuntimeError as error:
        raise ExecutorError(str(error)) from error


def refuse_trainers(objective: Objective) -> None:
    """Let Ray Train refuse the trainers that this process starts.

    A command inherits the environment, and its Python may lack the module that the variable names:
    for a command it is not set.
    """
    inner = objective.inner if isinstance(objective, WithMetrics) else objective
    names = [name for name in os.environ.get(_CALLBACKS, "").split(",") if name not in ("", _CHECK)]
    names += [] if isinstance(inner, ShellCommand) else [_CHECK]
    if names:
        os.environ[_CALLBACKS] = ",".join(names)
    else:
        os.environ.pop(_CALLBACKS, None)


def admit_trainers(objective: Objective, limits: Limits) -> None:
    """Let this process start trainers in its own placement group, with functions of the objective's
    file, which the trainer's workers cannot import."""
    refuse_trainers(objective)
    group = get_current_placement_group()
    assert group is not None, "the pool makes a group for each worker of this kind"
    _groups[:] = [group]
    if isinstance(objective, HasPreparation):
        prepare(objective, limits)
    for module in modules_of_files():
        ray.cloudpickle.register_pickle_by_value(module)


def group_for_trainers() -> PlacementGroup | None:
    """Return the placement group for the trainers of this process; None if it may not start any."""
    return _groups[0] if _groups else None
