"""Starts Ray for a session, joins clusters, and checks that a node can hold an evaluation.

This module imports little, so that Ray can start while the other modules of a session are imported.
"""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.running.coordinator.environment import named_cluster, probe

if TYPE_CHECKING:
    from bbkb.orchestrator.campaign.settings import Settings
    from bbkb.orchestrator.running.coordinator.cluster import Cluster
    from bbkb.workers.messages import Share


def check_address(settings: "Settings", address: str | None) -> None:
    """Raise UserError if a Ray cluster is specified and the executor is not Ray, or the cluster does
    not answer. A mistaken address then leaves no run."""
    named = named_cluster(address)
    if settings.workers.traits.on_ray and named not in (None, "auto") and not is_connected():
        probe(named)
    if address is not None and not settings.workers.traits.on_ray:
        raise UserError(
            f"an address is for workers.executor ray, got workers.executor {settings.workers.executor}: leave the "
            "address out, or choose the executor ray"
        )


def is_connected() -> bool:
    """Return whether this program is connected to Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def start_ray(settings: "Settings", address: str | None) -> "Future[Cluster] | None":
    """Start Ray on this machine while the campaign is being built; the result is for `launch`.

    Ray starts in a separate thread that stays, because Linux ends Ray's processes together with the
    thread that started them. If this process exits early because of a mistake, they end as well.
    Returns None if no local Ray is needed: `address` or RAY_ADDRESS names a cluster to join, or the
    executor is not Ray.
    """
    if not settings.workers.traits.on_ray or named_cluster(address) is not None:
        return None
    cluster: Future[Cluster] = Future()

    def start() -> None:
        try:
            cluster.set_result(connect_for(settings, address))
        except BaseException as error:  # raised again by `cluster.result`
            cluster.set_exception(error)
        threading.Event().wait()

    threading.Thread(target=start, name="start of Ray", daemon=True).start()
    return cluster


def join(
    settings: "Settings", address: str | None, say: Callable[[str], None]
) -> "Future[Cluster] | None":  # fmt: skip
    """Join the specified cluster; the result is for `launch`. Return None if a local Ray, or none,
    is needed. Call it before a run is created, so that a cluster that refuses this process leaves
    no run."""
    named = named_cluster(address)
    if not settings.workers.traits.on_ray or named is None:
        return None
    say(f"joining the Ray cluster at {named}")
    cluster: Future[Cluster] = Future()
    cluster.set_result(connect_for(settings, address, settings.run or settings.name))
    return cluster


def connect_for(settings: "Settings", address: str | None, name: str = "") -> "Cluster":
    """Return the cluster for a session, after joining or starting it. Ray's list of jobs shows the
    session's name."""
    # imported here so that campaigns without Ray, and all other commands, start without loading it
    from bbkb.orchestrator.running.coordinator.cluster import connect

    workers = settings.workers
    return connect(address, workers.count, workers.all_cpus, workers.all_gpus, dashboard=True, name=name)


def check_room(settings: "Settings", largest: "Share | None", address: str | None, or_here: bool) -> None:
    """Raise UserError with a list of the nodes if no evaluation can ever run on the cluster.

    `largest` are the resources of the largest trial, if trials differ. The cluster at `address` (None:
    RAY_ADDRESS) is joined and then left. `or_here`: check the Ray of this machine if no cluster is
    specified.
    """
    workers = settings.workers
    is_named = named_cluster(address) is not None
    if not workers.traits.on_ray or not (is_named or or_here or workers.ray_train):
        return
    # imported here, because importing Ray takes seconds and campaigns without Ray do not need it
    from bbkb.orchestrator.running.coordinator.cluster import connect, disconnect, node_here
    from bbkb.orchestrator.session.executors import placement_of
    from bbkb.workers.executor import ExecutorError
    from bbkb.workers.on_ray.places import check_feasible, check_fits

    try:
        placement = placement_of(settings, settings.name, largest)
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
