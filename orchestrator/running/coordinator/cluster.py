"""Finds a Ray cluster or starts one on this machine, and keeps Ray's own output away from the user.

Ray's start-up choices are made here on purpose: no usage reports, no copies of workers' logs on the
terminal (failures carry what matters), logs of bounded size, lost nodes noticed soon, and a local
cluster always asks for a token, because Ray's ports listen on all of the machine's addresses and a
program that reaches them can run code. The user's environment overrides every one of these.
"""

import logging
import math
import os
import socket
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray._private.accelerators import get_accelerator_manager_for_resource
from ray._raylet import Config  # type: ignore[attr-defined]  # compiled, without annotations
from ray.exceptions import RayError
from ray.job_config import JobConfig

import orchestrator
from orchestrator.errors import UserError
from orchestrator.files import PRIVATE_FOLDER
from orchestrator.running.coordinator.environment import named_cluster, require_token
from orchestrator.wording import plural
from workers.on_ray.places import NamedNode
from workers.on_ray.ray_settings import RAY_SETTINGS

_LOGGER = logging.getLogger("bbkb.cluster")
_PROBE_SECONDS = 5.0
# Processes that Ray starts at the same time, for each core. With Ray's own 1, most workers start after the coordinator,
# and take its processor time: a process that starts has a higher priority than Ray gives it later.
_STARTS_PER_CORE = 4
_KEPT: list["Cluster"] = []  # at most one: the local cluster that the last campaign of this process left
_PACKAGES = ("objectives", "workers", "orchestrator")
# Ray's settings, in the environment of this process and of what it starts, unless the user set
# them.
ENVIRONMENT = {
    **RAY_SETTINGS,
    "RAY_SCHEDULER_EVENTS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future default; when it is unset, Ray prints a warning
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Ray cluster that this process is connected to. `notes`: sentences for the user."""

    address: str
    dashboard_url: str | None
    is_ours: bool  # started here, ends with `disconnect`
    is_connected_here: bool  # `connect` opened the connection; it was not there before
    notes: tuple[str, ...] = ()


def connect(address: str | None, workers: int, cpus: float, gpus: float, dashboard: bool, name: str = "") -> Cluster:
    """Join the cluster named by `address` or RAY_ADDRESS (set inside a Ray job), else start one on
    this machine.

    A local cluster gets as many logical CPUs as `workers` evaluations of `cpus` each ask for, at
    least the machine's cores. A connection that is open already is used as it is. Raises UserError
    when no cluster can be reached or started.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    _silence_raylets()
    named = named_cluster(address)
    if (earlier := _take_kept(named, _logical_cpus(workers, cpus))) is not None:
        return earlier
    if ray.is_initialized():
        return Cluster(
            address=_gcs_address(),
            dashboard_url=None,
            is_ours=False,
            is_connected_here=False,
            notes=_room_notes(workers, cpus, gpus),
        )
    cluster = _start(workers, cpus, gpus, dashboard, name) if named is None else _join(named, workers, cpus, gpus, name)
    _LOGGER.info("%s Ray at %s", "started" if cluster.is_ours else "joined", cluster.address)
    return cluster


def is_connected() -> bool:
    """Tell whether this process has a connection to Ray already."""
    return bool(ray.is_initialized())


def disconnect(cluster: Cluster, keeps: bool = False) -> None:
    """Leave a cluster that was joined; end one that was started. May be called twice.

    `keeps`: one that was started here stays for the next campaign of this process, and ends with
    the process.
    """
    if keeps and cluster.is_ours:
        _KEPT[:] = [cluster]
        return
    if cluster.is_connected_here and ray.is_initialized():
        ray.shutdown()
        _LOGGER.info("%s Ray at %s", "ended" if cluster.is_ours else "left", cluster.address)


def _take_kept(named: str | None, cpus: int) -> Cluster | None:
    """Return the cluster that an earlier campaign of this process left; None when there is none.

    One that is smaller than `cpus` logical CPUs, or is not the one that is `named`, is ended.
    """
    if not _KEPT:
        return None
    cluster = _KEPT.pop()
    if not ray.is_initialized() or _gcs_address() != cluster.address:
        return None  # the caller has ended it
    if named is None and ray.cluster_resources().get("CPU", 0.0) >= cpus:
        return cluster
    disconnect(cluster)
    return None


def _start(workers: int, cpus: float, gpus: float, dashboard: bool, name: str) -> Cluster:
    cores = _cores()
    logical_cpus = _logical_cpus(workers, cpus)
    token = require_token()
    os.environ.setdefault("RAY_worker_maximum_startup_concurrency", str(_STARTS_PER_CORE * cores))
    try:
        # None: with the dashboard, unless a busy machine is too slow for it
        context = _init(name, address="local", num_cpus=logical_cpus, include_dashboard=None if dashboard else False)
    except Exception as error:
        if not isinstance(error, (RuntimeError, ValueError, OSError, RayError)) and type(error) is not Exception:
            raise  # Exception: Ray's, when a busy machine needs more than half a minute for the start
        raise UserError(
            f"Ray must be able to start on this machine, got {_first_line(error)}; free disk space under /tmp (or set "
            "RAY_TMPDIR) and memory, try again when the machine is less busy, or join a running cluster with --address"
        ) from error
    notes = (
        [f"{logical_cpus} CPUs asked for, {cores} cores here: evaluations share them"] if logical_cpus > cores else []
    )
    url = _dashboard_url(context)
    if dashboard and url is None:
        notes.append("warning: the Ray dashboard did not start in time; the campaign runs without it")
    if url is not None and token is not None:
        notes.append(f"the Ray dashboard asks for the token in {token}")
    notes += _close_to_others(context)
    return Cluster(
        address=_gcs_address(),
        dashboard_url=url,
        is_ours=True,
        is_connected_here=True,
        notes=(*notes, *_room_notes(workers, cpus, gpus)),
    )


def _join(address: str, workers: int, cpus: float, gpus: float, name: str) -> Cluster:
    if address != "auto":
        _probe(address)
    try:
        context = _init(name, address=address)
    except (RuntimeError, ValueError, OSError, RayError) as error:
        raise UserError(_refusal(address, error)) from error
    notes = (*_open_notes(address), *_room_notes(workers, cpus, gpus))
    return Cluster(
        address=_gcs_address(),
        dashboard_url=_dashboard_url(context),
        is_ours=False,
        is_connected_here=True,
        notes=notes,
    )


def _close_to_others(context: object) -> list[str]:
    """Keep the folder of a Ray that was started here, with its sockets and logs, from other users:
    Ray opens it to all. A sentence where that fails."""
    folder = getattr(context, "address_info", {}).get("session_dir")
    try:
        if folder:
            os.chmod(folder, PRIVATE_FOLDER)
    except OSError as error:
        return [f"warning: other users of this machine may read Ray's logs in {folder}: {error.strerror}"]
    return []


def _open_notes(address: str) -> tuple[str, ...]:
    """Return a warning about a cluster that let this process in without a token."""
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return ()
    return (
        f"warning: the Ray cluster at {address} asks for no token, so anyone who reaches its ports can run code there; "
        "start it with RAY_AUTH_MODE=token (docs/security.md)",
    )


def _init(name: str, **options: Any) -> object:
    Config.initialize("")  # Ray read its environment when it was imported; this makes it read the variables again
    job = JobConfig(metadata={"job_name": name} if name else {})
    return ray.init(
        job_config=job, log_to_driver=False, logging_level=logging.ERROR, runtime_env=_runtime_env(), **options
    )


def _runtime_env() -> dict[str, str] | None:
    """Return what makes Ray's workers import our packages where the user has packages of the same
    names.

    Ray puts this process's working directory and the folder of its script first on the search path
    of every worker. Raises UserError where Ray would start no worker: it does not quote the path of
    Python.
    """
    ours = Path(orchestrator.__file__).resolve().parents[1]
    named = [Path.cwd(), Path(sys.argv[0]).parent, *map(Path, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    places = [f"{package}{ending}" for package in _PACKAGES for ending in ("/__init__.py", ".py")]
    foreign = {folder.resolve() for folder in named} - {ours}
    hiding = next((folder / place for folder in foreign for place in places if (folder / place).exists()), None)
    if hiding is None:
        return None
    if " " in sys.executable:
        raise UserError(
            f"with packages of your own named {', '.join(_PACKAGES[:-1])} or {_PACKAGES[-1]} (here {hiding}), "
            f"Ray starts no worker when the path of Python has a space, got {sys.executable}; "
            "install bbkb in an environment whose path has none, rename the package, or use workers.executor: inline"
        )
    return {"worker_process_setup_hook": "bbkb.import_own_packages"}


def _probe(address: str) -> None:
    """Raise UserError when nothing listens at `address`; Ray would try for half a minute."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise UserError(
            f"--address (or RAY_ADDRESS) must be host:port of a cluster's head, or auto, got {address!r}; "
            "to work from outside a cluster, hand the campaign to it with `ray job submit`"
        )
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS)
    except (OSError, OverflowError) as error:
        raise UserError(
            f"--address (or RAY_ADDRESS) must name a running Ray cluster, got {address}: {error}; "
            "start one with `ray start --head`, or leave the address out to use this machine"
        ) from error
    has_tls = _speaks_tls(connection)
    wants_tls = os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true")
    if has_tls and not wants_tls:
        raise UserError(
            f"the Ray cluster at {address} uses TLS, so RAY_USE_TLS must be 1, with RAY_TLS_CA_CERT, "
            "RAY_TLS_SERVER_CERT and RAY_TLS_SERVER_KEY: source the .env file of this machine (docs/security.md)"
        )
    if wants_tls and not has_tls:
        raise UserError(
            f"RAY_USE_TLS must be 0 for a Ray cluster without TLS, got 1 and such a cluster at {address}: unset it, or "
            "start the cluster with it"
        )


def _speaks_tls(connection: socket.socket) -> bool:
    """Return whether the other side answers a TLS handshake; Ray checks its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with connection, context.wrap_socket(connection):
            return True
    except OSError:
        return False


def _refusal(address: str, error: Exception) -> str:
    text = _first_line(error)
    if "ersion mismatch" in str(error):
        remedy = "install the cluster's versions of Ray and Python here, or this machine's there"
    elif address == "auto":
        remedy = "start a cluster with `ray start --head`, or leave the address out to use this machine"
    else:
        remedy = "if the cluster asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH"
    return f"the Ray cluster at {address} must let this process in, got {text}; {remedy}"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3]).rstrip(".") if lines else type(error).__name__


def _room_notes(workers: int, cpus: float, gpus: float) -> tuple[str, ...]:
    """Return a sentence for each resource that is too scarce for all workers together."""
    resources: dict[str, float] = ray.cluster_resources()
    needs = {"CPU": workers * cpus, "GPU": workers * gpus}
    ask = f"{plural(workers, 'worker')} {'asks' if workers == 1 else 'ask'} for"
    return tuple(
        f"the cluster has {resources.get(name, 0.0):g} {name}s, {ask} {amount:g}: some will wait"
        for name, amount in needs.items()
        if amount > resources.get(name, 0.0)
    )


def _gcs_address() -> str:
    return str(ray.get_runtime_context().gcs_address)


def _dashboard_url(context: object) -> str | None:
    url = getattr(context, "dashboard_url", None)
    return f"http://{url}" if url else None


def node_here(workers: int, cpus: float) -> NamedNode:
    """Return the node that a Ray started on this machine is at most, for `connect`'s arguments."""
    resources = {
        "CPU": _logical_cpus(workers, cpus),
        "GPU": _graphics_processors(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }
    return NamedNode("this machine", {name: float(amount) for name, amount in resources.items()})


def _graphics_processors() -> int:
    """Count the graphics processors that Ray would find here."""
    manager = get_accelerator_manager_for_resource("GPU")
    if manager is None:
        return 0
    visible = manager.get_current_process_visible_accelerator_ids()
    return manager.get_current_node_num_accelerators() if visible is None else len(visible)


def _logical_cpus(workers: int, cpus: float) -> int:
    return max(_cores(), math.ceil(workers * cpus))


def _cores() -> int:
    """Return cores this process may use; a container's or a batch system's affinity counts."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _silence_raylets() -> None:
    """Prevent Ray from printing raylets' messages (`A worker died …`) on this process's standard
    output.

    `log_to_driver=False` does not cover them and there is no public switch. Each one belongs to a
    failure that the campaign records and displays. A test fails when Ray's messages appear again.
    """
    vars(ray._private.worker)["_worker_logs_enabled"] = False
