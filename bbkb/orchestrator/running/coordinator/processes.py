"""Ray's processes as this process sees them: which have ended, and which cannot be reached."""

import os
import socket
from contextlib import suppress
from typing import Any

import ray

_CONNECT_SECONDS = 2.0


def lost_process() -> str:
    """Return the name of a necessary process of the local Ray that has ended; empty if there is
    none. Minutes later, Ray would end this process too, without a message."""
    # Ray has no public interface to the processes that it started; a joined cluster has none here
    node: Any = ray._private.worker._global_node
    if node is None:
        return ""
    for kind in ("raylet", "gcs_server"):
        if any(started.process.poll() is not None for started in node.all_processes.get(kind, ())):
            return kind
    return ""


def unreachable_process() -> str:
    """Return which process of Ray does not accept connections: the raylet of this machine, or the
    head's GCS; empty if both do."""
    node: Any = ray._private.worker._global_node
    host, _, port = node.gcs_address.rpartition(":")
    process = "Ray's process raylet on this machine"
    try:
        # a program that cleans /tmp may have removed the file of the raylet's socket
        with suppress(FileNotFoundError), socket.socket(socket.AF_UNIX) as raylet:
            raylet.connect(node.raylet_socket_name)
        process = f"the head of the Ray cluster at {node.gcs_address}"
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError:
        return process
    return ""


def cores() -> int:
    """Return the number of cores that this process may use, as limited by its CPU affinity (set by
    containers and batch systems)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
