"""A Ray cluster of several nodes on this machine, each started by its own `ray start --block`, so
that one node can be killed.

The cluster has its own folder and its own token, and its processes have a mark in their
environment.
"""

import functools
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import ray.util

from bbkb.objectives.objective import free_port
from benchmarks.chaos.processes import Mark, program_of, wait_for

CPUS = 2  # logical, of each node
_STORE_BYTES = 100 * 2**20
_START_SECONDS = 180.0  # seconds; a busy machine is slow
_STARTS = 3  # to start a new cluster: on a busy machine the head may end by itself while other nodes join
_NODE = "BBKB_CHAOS_NODE"
_REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Node:
    """One `ray start --block`. `name` is in the environment of all processes of the node."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path


class Cluster:
    """A head and some worker nodes. A context manager, which ends all processes of the cluster on
    exit. Before `start`, each command starts a local Ray.

    `settings` are Ray's environment variables. `prefixes` of the commands of nodes, and their
    addresses `hosts`, place them in network namespaces.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        prefixes: Mapping[str, Sequence[str]] | None = None,
        hosts: Mapping[str, str] | None = None,
    ) -> None:
        self.mark = Mark()
        self.folder = Path(tempfile.mkdtemp(prefix="bc", dir="/tmp"))  # short: a Unix socket's path ends at 107 bytes
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        common = {
            "RAY_TMPDIR": str(self.folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_SCHEDULER_EVENTS": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(_REPOSITORY),
        }
        self._settings = {**common, **token, **settings}
        self._prefixes = prefixes or {}
        self._hosts = hosts or {}
        self._nodes: dict[str, Node] = {}
        self._dead: list[Node] = []
        self._waiting: list[str] = []  # nodes to be started
        self._added = 0
        self._port = free_port()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.mark.end_all()
            for node in (*self._nodes.values(), *self._dead):
                node.process.wait()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def address(self) -> str | None:
        """The address at which the head listens; None if there is no cluster."""
        host = self._hosts.get("head", str(ray.util.get_node_ip_address()))
        return f"{host}:{self._port}" if self._nodes else None

    @property
    def workers(self) -> list[str]:
        """Names of the running nodes without the head."""
        return [name for name in self._nodes if name != "head"]

    @property
    def is_whole(self) -> bool:
        """Whether all nodes run: none is missing or still starting."""
        return not self._waiting and all(self._is_up(name) for name in self._nodes)

    def environment(self, **variables: str) -> dict[str, str]:
        """The environment of each process of the cluster: the mark, Ray's settings, the token."""
        environment = {**self.mark.environment(**self._settings), **variables}
        environment.pop("RAY_ADDRESS", None)
        return environment

    def command(self, node: str, *arguments: str) -> list[str]:
        """This Python with these arguments, on that node's network."""
        return [*self._prefixes.get(node, ()), sys.executable, *arguments]

    def start(self, workers: int) -> None:
        """Start the head and worker nodes. Raises TimeoutError with Ray's output if one fails."""
        self._waiting.append("head")
        self._await("head")
        for _ in range(workers):
            self._await(self.add())

    def add(self) -> str:
        """Queue the start of a worker node, which `repair` carries out; return its name."""
        self._added += 1
        self._waiting.append(f"node{self._added}")
        return self._waiting[-1]

    def repair(self) -> None:
        """Start queued nodes, one after the other, because nodes that start at the same time on one
        machine disturb each other. A node that ended without having been killed is started again:
        Ray ends a node that needs more than 30 seconds to start.
        """
        for name, node in list(self._nodes.items()):
            if self._waiting and self._has_started(name) and self.raylet(name) is None:
                self.mark.kill(node.process.pid)  # `ray start` does not notice a raylet that ends by itself
                node.process.wait()
            if node.process.poll() is not None:
                self._dead.append(self._nodes.pop(name))
                self._waiting.insert(0, name)
        if self._waiting and all(self._is_up(name) for name in self._nodes):
            self._begin(self._waiting.pop(0))

    def raylet(self, name: str) -> int | None:
        """The process id of a node's raylet, None while it has none."""
        raylet_pids = self.mark.pids(**{_NODE: name})
        return next((pid for pid in raylet_pids if program_of(pid) == "raylet"), None)

    def kill_node(self, name: str) -> int | None:
        """Send SIGKILL to a worker node's raylet, which ends the node; return its process id."""
        raylet = self.raylet(name)
        if raylet is None or not self.mark.kill(raylet):
            return None
        self._dead.append(self._nodes.pop(name))
        return raylet

    def replace(self) -> int | None:
        """Send SIGKILL to the head and all its processes, and start a new cluster of as many nodes
        at another port, as after the loss of a machine. The other nodes end by themselves.

        Returns the process id of the head's raylet, None if it did not run.
        """
        raylet, workers = self.raylet("head"), len(self.workers) + len(self._waiting)
        if raylet is None:
            return None
        self._kill_nodes("head")
        for remaining_tries in reversed(range(_STARTS)):
            self._port = free_port()
            try:
                self.start(workers)
                break
            except TimeoutError:
                if not remaining_tries:
                    raise
                self._kill_nodes(*self._nodes)
        return raylet

    def _kill_nodes(self, *killed: str) -> None:
        """Send SIGKILL to all processes of these nodes; the old cluster's nodes count as dead."""
        for name in killed:
            for pid in self.mark.pids(**{_NODE: name}):
                self.mark.kill(pid)
        self._dead += self._nodes.values()
        self._nodes.clear()
        self._waiting.clear()

    def _await(self, name: str) -> None:
        try:
            wait_for(functools.partial(self._is_ready, name), _START_SECONDS, f"node {name} must start")
        except TimeoutError as error:
            outputs = sorted({node.output for node in (*self._nodes.values(), *self._dead[-_STARTS:])})
            printed = "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2000:]}" for path in outputs)
            raise TimeoutError(f"{error}:\n{printed}") from None

    def _begin(self, name: str) -> None:
        where = ["--head", f"--port={self._port}"] if name == "head" else [f"--address={self.address}"]
        if name == "head":
            where += [
                "--include-dashboard=false",
                f"--ray-client-server-port={free_port()}",
                f"--temp-dir={self.folder}",
            ]
        if name in self._hosts:
            where.append(f"--node-ip-address={self._hosts[name]}")
        where += ["--disable-usage-stats", "--include-log-monitor=false"]
        arguments = ["-m", "ray.scripts.scripts", "start", "--block", *where]
        arguments += [f"--num-cpus={CPUS}", f"--object-store-memory={_STORE_BYTES}", "--log-style=record"]
        output = self.folder / f"{name}-{time.time_ns()}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                self.command(name, *arguments),
                env=self.environment(**{_NODE: name}),
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        self._nodes[name] = Node(name, process, output)

    def _is_ready(self, name: str) -> bool:
        self.repair()
        return name in self._nodes and self._is_up(name)

    def _is_up(self, name: str) -> bool:
        return self._has_started(name) and self.raylet(name) is not None

    def _has_started(self, name: str) -> bool:
        return "Ray runtime started" in self._nodes[name].output.read_text(errors="replace")


def node_of_this_process() -> str:
    """The name of the node that this process runs on; empty if it runs on none."""
    return os.environ.get(_NODE, "")
