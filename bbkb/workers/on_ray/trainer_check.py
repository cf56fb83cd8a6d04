"""A callback of Ray Train for trainers that are started in an evaluation.

It is separate from `bbkb.workers.on_ray.gangs` because importing Ray Train takes a second.

It uses internal classes of Ray Train, the only way to give a trainer a placement group.
"""

from typing import Any

import ray

from bbkb.workers.on_ray.gangs import group_for_trainers

try:
    from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
    from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback
    from ray.train.v2._internal.execution.worker_group import WorkerGroup
    from ray.train.v2._internal.execution.worker_group.placement_group_handle import DefaultPlacementGroupHandle

    _REPLACED = (
        (WorkerGroup, "_create_placement_group"),
        # they start an actor that outlives the trainer in order to remove its group
        (PlacementGroupCleanerCallback, "after_controller_start"),
        (PlacementGroupCleanerCallback, "after_worker_group_start"),
    )
    for owner, name in _REPLACED:
        getattr(owner, name)
except (ImportError, AttributeError) as error:
    raise RuntimeError(
        f"workers.ray_train needs the Ray Train of Ray 2.60, got {ray.__version__} ({error}): pip install "
        "'ray[train]==2.60.*'"
    ) from error


class _OwnGroup(DefaultPlacementGroupHandle):
    """The placement group of the evaluation. Its trainer does not remove it."""

    def shutdown(self) -> None:
        """Do nothing: the evaluation's worker removes the placement group."""


class TrainerCheck(ControllerCallback, WorkerGroupCallback):
    """Lets the workers of a trainer run in the placement group of its evaluation.

    Raises RuntimeError in an evaluation that may not start trainers.
    """

    def __init__(self) -> None:
        group = group_for_trainers()
        if group is None:
            raise RuntimeError(
                "an evaluation may start a trainer of Ray Train only from a function and with workers.ray_train, "
                "because evaluations that hold the processors of each other's trainers would wait forever; "
                "set workers: {ray_train: true}, with machines, cpus and gpus as in the ScalingConfig"
            )
        self._group = group

    def after_controller_start(self, train_run_context: Any) -> None:
        """Give the evaluation's group to the trainer, whose process runs this method."""
        handle = _OwnGroup(self._group)
        methods = (lambda *_: handle, lambda *_: None, lambda *_: None)
        for (owner, name), method in zip(_REPLACED, methods, strict=True):
            setattr(owner, name, method)

    def before_worker_group_start(self, worker_group_context: Any) -> None:
        """Raise ValueError if the evaluation's group is too small."""
        workers, amounts = worker_group_context.num_workers, worker_group_context.resources_per_worker
        bundles = self._group.bundle_specs
        if workers > len(bundles) or any(amount > bundles[0].get(name, 0.0) for name, amount in amounts.items()):
            raise ValueError(
                f"the ScalingConfig of an evaluation must fit its share, workers.machines = {len(bundles)} with "
                f"{bundles[0]} each, got {workers} workers with {amounts}: raise workers.machines, cpus or gpus, or "
                "lower num_workers or resources_per_worker"
            )
