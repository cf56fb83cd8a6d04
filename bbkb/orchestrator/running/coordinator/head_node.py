"""Ray's head node on this machine, which starts its workers before its dashboard.

`ray.init` waits for the dashboard, and Ray's node waits until its agents have chosen their ports:
two seconds of processor time before a worker can start. Here the node chooses the ports of the
agents, and the dashboard starts later, with the lowest priority. The hooks below are internals of
Ray; a version of Ray without them starts everything at once.
"""

import logging
import os
import random
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import ray
from ray._private import node as ray_node

# Linux takes the ports of outgoing connections from larger ones.
_PORTS = range(20_000, 32_000)
_CONNECT_SECONDS = 2.0
_LOWEST_PRIORITY = 19  # a niceness; Ray gives 15 to its workers
# the attribute of Ray's parameters, and the name of the file that tells Ray the port
_AGENT_PORTS = {
    "metrics_agent_port": "METRICS_AGENT_PORT_NAME",
    "metrics_export_port": "METRICS_EXPORT_PORT_NAME",
    "dashboard_agent_listen_port": "DASHBOARD_AGENT_LISTEN_PORT_NAME",
    "runtime_env_agent_port": "RUNTIME_ENV_AGENT_PORT_NAME",
}


class HeadNode(ray_node.Node):
    """A head node without dashboard, autoscaler and log monitor, until `start_postponed`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._postponed: list[Callable[[], None]] = []
        super().__init__(*arguments, **options)
        for agent in psutil.Process(self.all_processes["raylet"][0].process.pid).children():
            agent.nice(_LOWEST_PRIORITY)

    @property
    def dashboard_url(self) -> str | None:
        """The address of the dashboard; None if it has not started."""
        return f"http://{self._webui_url}" if self._webui_url else None

    def start_postponed(self) -> None:
        """Start the postponed processes, and wait for the dashboard."""
        while self._postponed:
            self._postponed.pop(0)()

    def kill_all_processes(self, *arguments: Any, **options: Any) -> None:
        """End all processes, and those of the dashboard, which have nothing to save, at once.

        Ray gives each of them a second.
        """
        for kind in ("dashboard", "monitor", "log_monitor"):
            if kind in self.all_processes:
                self.all_processes[kind][0].process.kill()
        super().kill_all_processes(*arguments, **options)

    def start_api_server(self, **options: Any) -> None:
        """Postpone the start of the dashboard."""
        self._postponed.append(partial(super().start_api_server, **options))

    def start_monitor(self) -> None:
        """Postpone the start of the autoscaler."""
        self._postponed.append(super().start_monitor)

    def start_log_monitor(self) -> None:
        """Postpone the start of the process that passes on what workers print."""
        self._postponed.append(super().start_log_monitor)

    def start_raylet(self, *arguments: Any, **options: Any) -> None:
        """Start the node's agent with known ports, so that it does not wait for its children."""
        names = [getattr(ray._raylet, name, None) for name in _AGENT_PORTS.values()]
        if all(names):
            persist_port = vars(ray._raylet)["persist_port"]
            for attribute, name, port in zip(_AGENT_PORTS, names, _free_ports(len(names)), strict=True):
                setattr(self._ray_params, attribute, port)
                persist_port(self._session_dir, self._node_id, name, port)
        super().start_raylet(*arguments, **options)


class LateDashboard:
    """The postponed processes of a head node, which a thread starts.

    The thread stays until `end`: Linux ends Ray's processes with the thread that started them.
    """

    def __init__(self, node: HeadNode, token: Path | None) -> None:
        self._node = node
        self._asks = "" if token is None else f"; it asks for the token in {token}"
        self._news: SimpleQueue[str] = SimpleQueue()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the processes, without waiting for them, unless they have been started."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._start, name="start of the Ray dashboard", daemon=True)
            self._thread.start()

    def news(self) -> Iterator[str]:
        """Yield the messages for the user since the last call."""
        while not self._news.empty():
            yield self._news.get()

    def end(self) -> None:
        """Let the thread end, after Ray has been shut down."""
        self._ended.set()

    def _start(self) -> None:
        if sys.platform == "linux":  # elsewhere this is the priority of the whole process
            os.setpriority(os.PRIO_PROCESS, 0, _LOWEST_PRIORITY)
        log = logging.getLogger("ray._private.services")
        before = log.level
        log.setLevel(logging.CRITICAL)  # Ray would print an error in addition to the message
        # the end of the session meanwhile, or Ray's own errors, which have no common class
        with suppress(Exception):
            self._node.start_postponed()
        log.setLevel(before)
        url = self._node.dashboard_url
        self._news.put(
            "warning: the Ray dashboard did not start; the campaign runs without it"
            if url is None
            else f"the Ray dashboard is at {url}{self._asks}"
        )
        self._ended.wait()


@contextmanager
def postponing() -> Iterator[None]:
    """Make `ray.init` start a `HeadNode`."""
    before = ray_node.Node
    vars(ray_node)["Node"] = HeadNode
    try:
        yield
    finally:
        vars(ray_node)["Node"] = before


def lost_process() -> str:
    """Return the name of a necessary process of the local Ray that has ended; empty if there is
    none. Minutes later, Ray would end this process too, without a message."""
    node: Any = ray._private.worker._global_node
    if not isinstance(node, HeadNode):
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


def _free_ports(count: int) -> list[int]:
    """Return different ports on which nothing listens."""
    ports: list[int] = []
    draw = random.SystemRandom()
    with ExitStack() as sockets:
        while len(ports) < count:
            port = draw.choice(_PORTS)
            try:
                sockets.enter_context(socket.socket()).bind(("", port))
            except OSError:
                continue
            ports.append(port)
    return ports
