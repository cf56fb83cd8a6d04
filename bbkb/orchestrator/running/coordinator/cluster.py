"""Finds a Ray cluster or starts one on this machine, and hides Ray's own output from the user.

This module sets Ray's start-up options: no usage reports, no copies of workers' logs on the
terminal (failures contain the relevant lines), logs of limited size, fast detection of lost nodes,
and a token for every local cluster. The token is needed because Ray's ports listen on all of the
machine's addresses, and any program that reaches them can run code. The user's environment
variables override each of these options.
"""

import gc
import logging
import math
import os
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import ray
from ray.exceptions import RayError
from ray.job_config import JobConfig

from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.files import PRIVATE_FOLDER
from bbkb.orchestrator.running.coordinator.environment import named_cluster, probe, require_token
from bbkb.orchestrator.wording import plural
from bbkb.workers.limits import children
from bbkb.workers.on_ray import internals
from bbkb.workers.on_ray.places import NamedNode
from bbkb.workers.packing import RAY_SETTINGS

# Ray lowers the priority of a process after its start. With its 15, processes that are starting take all of the
# processor time, and of a hundred workers on a few cores the first evaluates when the last one has started.
_NICENESS = 5
_CONNECT_SECONDS = 2.0
# at most one: the local cluster that the last campaign of this process has kept
_KEPT: list["Cluster"] = []
_RAYLETS: dict[str, str] = {}  # the socket of this machine's raylet, by the address of a cluster that `connect` joined
_ENDING: list[threading.Thread] = []  # at most one: the thread that shuts down a local cluster
# Ray's settings for the environment of this process and its child processes. Variables set by the
# user take precedence.
ENVIRONMENT = {
    **RAY_SETTINGS,
    "RAY_SCHEDULER_EVENTS": "0",
    # Ray's future default; Ray prints a warning if it is unset
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# The settings of a Ray on this machine. If the machine is overloaded, its only node is slow but not
# lost. Ray would end this process together with a lost node, without a message.
_LOCAL_ENVIRONMENT = {**ENVIRONMENT, "RAY_health_check_failure_threshold": "100"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Ray cluster to which this process is connected. `notes`: sentences for the user."""

    address: str
    is_ours: bool  # started by `connect`; `disconnect` shuts it down
    is_connected_here: bool  # whether `connect` opened the connection
    notes: tuple[str, ...] = ()
    dashboard_url: str | None = None


def connect(address: str | None, workers: int, cpus: float, gpus: float, dashboard: bool, name: str = "") -> Cluster:
    """Join the cluster specified by `address` or RAY_ADDRESS (which is set inside a Ray job), or
    start a cluster on this machine if there is none.

    A local cluster gets `workers` × `cpus` logical CPUs, but at least the number of the machine's
    cores. An open connection is reused. Raises UserError if no cluster can be reached or started.
    """
    named = named_cluster(address)
    for key, value in (_LOCAL_ENVIRONMENT if named is None else ENVIRONMENT).items():
        os.environ.setdefault(key, value)
    internals.silence_raylets()
    _wait_for_end()
    if (earlier := _take_kept(named, _logical_cpus(workers, cpus))) is not None:
        return earlier
    if ray.is_initialized():
        cluster = Cluster(address=_gcs_address(), is_ours=False, is_connected_here=False)
    elif named is None:
        cluster = _start(_logical_cpus(workers, cpus), dashboard, name)
    else:
        cluster = _join(named, name)
    _own_processes(cluster.address)  # while they live
    resources: dict[str, float] = ray.cluster_resources()
    ask = f"{plural(workers, 'worker')} {'asks' if workers == 1 else 'ask'} for"
    lacking = [
        f"the cluster has {resources.get(name, 0.0):g} {name}s, {ask} {amount:g}: some will wait"
        for name, amount in (("CPU", workers * cpus), ("GPU", workers * gpus))
        if amount > resources.get(name, 0.0)
    ]
    return replace(cluster, notes=(*cluster.notes, *lacking))


def disconnect(cluster: Cluster, keeps: bool = False, waits: bool = True, held: object = None) -> None:
    """Leave a joined cluster, or shut down a cluster started by `connect`. May be called twice.

    `keeps`: keep a started cluster for the next campaign of this process, with which it ends.
    `waits`: wait until it has shut down, which takes more than a second. Otherwise, the process
    waits when it exits, and so does `connect`. Ray ends a process without a message that frees one of
    its references during the shutdown, so what refers to them is `held` until then, and garbage stays.
    """
    if keeps and cluster.is_ours and not lost_process():
        _KEPT[:] = [cluster]
        return
    if cluster.is_connected_here and ray.is_initialized():
        gc.freeze()
        _ENDING[:] = [threading.Thread(target=lambda _held: ray.shutdown(), args=(held,), name="end of Ray")]
        _ENDING[0].start()
    if waits:
        _wait_for_end()


def _wait_for_end() -> None:
    while _ENDING:
        _ENDING.pop().join()
        gc.unfreeze()


def _take_kept(named: str | None, cpus: int) -> Cluster | None:
    """Return the cluster that an earlier campaign of this process has kept; None if there is none.

    The kept cluster is shut down if it has fewer than `cpus` logical CPUs or another cluster is
    `named`.
    """
    if not _KEPT:
        return None
    cluster = _KEPT.pop()
    if not ray.is_initialized() or _gcs_address() != cluster.address:
        return None  # the caller has shut it down
    if named is None and ray.cluster_resources().get("CPU", 0.0) >= cpus:
        return cluster
    disconnect(cluster)
    return None


def _start(logical_cpus: int, dashboard: bool, name: str) -> Cluster:
    here = cores()
    token = require_token()
    os.environ.setdefault("RAY_worker_maximum_startup_concurrency", str(here))
    os.environ.setdefault("RAY_worker_niceness", str(_NICENESS))
    try:
        # None: start the dashboard, unless a busy machine is too slow for it
        context = _init(name, address="local", num_cpus=logical_cpus, include_dashboard=None if dashboard else False)
    except Exception as error:
        if not isinstance(error, (RuntimeError, ValueError, OSError, RayError)) and type(error) is not Exception:
            raise  # Ray raises a bare Exception if the start takes more than half a minute
        raise UserError(
            f"Ray must be able to start on this machine, got {_first_line(error)}; free disk space under /tmp (or set "
            "RAY_TMPDIR) and memory, try again when the machine is less busy, or join a running cluster with --address"
        ) from error
    notes = [f"{logical_cpus} CPUs asked for, {here} cores here: evaluations share them"] if logical_cpus > here else []
    url = _dashboard_of(context)
    if dashboard and url is None:
        notes.append("warning: the Ray dashboard did not start; the campaign runs without it")
    elif url is not None and token is not None:
        notes.append(f"the Ray dashboard asks for the token in {token}")
    folder = context.address_info["session_dir"]  # with sockets and logs, which Ray makes readable for everyone
    try:
        os.chmod(folder, PRIVATE_FOLDER)
    except OSError as error:
        notes.append(f"warning: other users of this machine can read Ray's logs in {folder}: {error.strerror}")
    return Cluster(address=_gcs_address(), is_ours=True, is_connected_here=True, notes=tuple(notes), dashboard_url=url)


def _join(address: str, name: str) -> Cluster:
    if address != "auto":
        probe(address)
    try:
        context = _init(name, address=address)
    except (RuntimeError, ValueError, OSError, RayError) as error:
        if "ersion mismatch" in str(error):
            remedy = "install the cluster's versions of Ray and Python here, or this machine's there"
        elif address == "auto":
            remedy = "start a cluster with `ray start --head`, or leave the address out to use this machine"
        else:
            remedy = "if the cluster requires a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH"
        raise UserError(
            f"the Ray cluster at {address} must let this process in, got {_first_line(error)}; {remedy}"
        ) from error
    return Cluster(
        address=_gcs_address(),
        dashboard_url=_dashboard_of(context),
        is_ours=False,
        is_connected_here=True,
        notes=_open_notes(address),
    )


def _dashboard_of(context: Any) -> str | None:
    url = context.dashboard_url
    return f"http://{url}" if url else None


def _open_notes(address: str) -> tuple[str, ...]:
    """Return a warning about a cluster that accepted this process without a token."""
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return ()
    return (
        f"warning: the Ray cluster at {address} asks for no token, so anyone who reaches its ports can run code there; "
        "start it with RAY_AUTH_MODE=token (docs/security.md)",
    )


def _init(name: str, **options: Any) -> Any:
    job = JobConfig(metadata={"job_name": name} if name else {})
    context: Any = ray.init(job_config=job, log_to_driver=False, logging_level=logging.ERROR, **options)
    _RAYLETS[_gcs_address()] = context.address_info["raylet_socket_name"]
    return context


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3]).rstrip(".") if lines else type(error).__name__


def _gcs_address() -> str:
    return str(ray.get_runtime_context().gcs_address)


def node_here(workers: int, cpus: float) -> NamedNode:
    """Return the largest resources of a Ray started on this machine with `connect`'s arguments."""
    resources = {
        "CPU": _logical_cpus(workers, cpus),
        "GPU": internals.graphics_processors(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }
    return NamedNode("this machine", {name: float(amount) for name, amount in resources.items()})


def _logical_cpus(workers: int, cpus: float) -> int:
    return max(cores(), math.ceil(workers * cpus))


def lost_process() -> str:
    """Return the name of a necessary process of the local Ray that has ended; empty if there is
    none. Minutes later, Ray would end this process too, without a message."""
    if not ray.is_initialized():
        return ""
    return next((name for name, pid in _own_processes(_gcs_address()).items() if _has_ended(pid)), "")


@lru_cache(maxsize=1)
def _own_processes(_cluster: str) -> dict[str, int]:
    """Return the ids of the necessary processes of Ray that are children of this one, by name: none
    in a joined cluster. The names are the kernel's, so they do not depend on Ray's classes.

    Of several raylets, the nodes of a cluster inside this process, none is necessary.
    """
    own = [(name, pid) for pid, name in children().items() if name in ("raylet", "gcs_server") and not _has_ended(pid)]
    names = [name for name, _ in own]
    return {name: pid for name, pid in own if names.count(name) == 1}


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # Ray has read its exit code
        return True


def unreachable_process() -> str:
    """Return which process of Ray does not accept connections: the raylet of this machine, or the
    head's GCS; empty if both do."""
    address = _gcs_address()
    host, _, port = address.rpartition(":")
    process = "Ray's process raylet on this machine"
    try:
        # a program that cleans /tmp may have removed the file of the raylet's socket
        with suppress(FileNotFoundError), socket.socket(socket.AF_UNIX) as raylet:
            if address in _RAYLETS:
                raylet.connect(_RAYLETS[address])
        process = f"the head of the Ray cluster at {address}"
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError:
        return process
    return ""


def cores() -> int:
    """Return the number of cores that this process may use, as limited by its CPU affinity (set by
    containers and batch systems)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
