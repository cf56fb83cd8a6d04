"""Starts Ray for a session, and joins clusters.

This module imports little, so that Ray starts while the other modules of a session are imported.
"""

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from orchestrator.errors import UserError
from orchestrator.running.coordinator.environment import named_cluster

if TYPE_CHECKING:
    from orchestrator.running.coordinator.cluster import Cluster
    from orchestrator.settings.model import Settings


def check_address(settings: "Settings", address: str | None) -> None:
    """Raise UserError if a Ray cluster is named and the executor is not Ray."""
    if address is not None and settings.workers.executor != "ray":
        raise UserError(
            f"--address is for workers.executor ray, got workers.executor {settings.workers.executor}: leave the "
            "address out, or change the executor with --set workers.executor=ray"
        )


def start_ray(settings: "Settings", address: str | None) -> "Future[Cluster] | None":
    """Start Ray on this machine while the campaign is being built; the result is for `launch`.

    Ray starts in another thread, which stays: Linux ends Ray's processes with the thread that
    started them. So a process that ends earlier, because of a mistake, ends them, too.

    Args:
        settings: the settings of the session that follows.
        address: the Ray cluster to join; RAY_ADDRESS if None.

    Returns:
        The cluster, or the error of its start. None if the session does not need a Ray of its own.
    """
    if settings.workers.executor != "ray" or named_cluster(address) is not None:
        return None
    cluster: Future[Cluster] = Future()

    def start() -> None:
        try:
            cluster.set_result(connect_for(settings, address))
        except BaseException as error:
            cluster.set_exception(error)
        threading.Event().wait()

    threading.Thread(target=start, name="start of Ray", daemon=True).start()
    return cluster


def connect_for(settings: "Settings", address: str | None, name: str = "") -> "Cluster":
    """Return the cluster for a session, which is named in Ray's list of jobs, after joining or
    starting it."""
    # imported here so that campaigns without Ray, and all other commands, start without it
    from orchestrator.running.coordinator.cluster import connect

    workers = settings.workers
    return connect(address, workers.count, workers.all_cpus, workers.all_gpus, dashboard=True, name=name)
