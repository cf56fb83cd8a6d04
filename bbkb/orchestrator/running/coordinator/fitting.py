"""Checks, before a campaign starts, that a node of the cluster can hold one of its evaluations."""

from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.running.coordinator.environment import named_cluster
from bbkb.orchestrator.session.build import Resources
from bbkb.workers.executor import ExecutorError


def check_room(settings: Settings, resources: Resources | None, address: str | None, or_here: bool) -> None:
    """Raise UserError with a list of the nodes if no evaluation can ever run on the cluster.

    `resources` are those of each trial, if trials differ. The cluster at `address` (None:
    RAY_ADDRESS) is joined and then left. `or_here`: check the Ray of this machine if no cluster is
    specified.
    """
    workers = settings.workers
    is_named = named_cluster(address) is not None
    if not workers.traits.on_ray or not (is_named or or_here or workers.ray_train):
        return
    # imported here, because importing Ray takes seconds and campaigns without Ray do not need it
    from bbkb.orchestrator.running.coordinator.cluster import connect, disconnect, node_here
    from bbkb.orchestrator.session.ray_workers import placement_of
    from bbkb.workers.on_ray.places import check_feasible, check_fits

    try:
        placement = placement_of(settings, settings.name, resources)
        if is_named:
            cluster = connect(address, workers.count, workers.all_cpus, workers.all_gpus, dashboard=False)
            try:
                check_feasible(placement)
            finally:
                disconnect(cluster)
        elif or_here:
            check_fits(placement.largest_need(), [node_here(workers.count, workers.all_cpus)])
    except ExecutorError as error:
        raise UserError(str(error)) from error
