"""Kills the process of a worker actor, even if it is suspended or hangs.

`ray.kill` asks the worker to exit. A process that was suspended (SIGSTOP, SIGTTIN) for more than
half a minute has lost its connection. Ray lists it as dead, but it keeps its CPUs forever. SIGKILL
ends a suspended process. So the process is also killed by its pid: directly on this node, or by a
task without CPUs on another node.
"""

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_TITLE = b"ray::"  # of the name of every worker process
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ActorProcess:
    """The process of an actor."""

    node: str  # Ray's id of the node
    pid: int  # its process id there


def end_actor(actor: Any, reaches_other_nodes: bool) -> None:
    """Kill `actor` and its process.

    `reaches_other_nodes`: whether to kill a process on another node, too, if it does not respond to
    Ray. This takes a task on that node, so it is meant for workers that may hang.
    """
    process = process_of(actor)
    ray.kill(actor)
    if process is None:
        return
    if process.node == ray.get_runtime_context().get_node_id():
        kill_worker(process.pid)
    elif reaches_other_nodes and any(node["Alive"] and node["NodeID"] == process.node for node in ray.nodes()):
        _kill_remotely(process)


def process_of(actor: Any) -> ActorProcess | None:
    """Return the process of `actor` from the tables of Ray's head, since Ray has no public method
    for it; None if it has not started."""
    entry = ray._private.state.state.actor_table(actor._actor_id.hex(), None, None)
    pid, node = entry.get("Pid", 0), entry.get("Address", {}).get("NodeID", "")
    return ActorProcess(node, pid) if pid and node else None


def kill_worker(pid: int) -> bool:
    """Send SIGKILL to this process if it is a Ray worker, and return whether it was sent."""
    if not _is_worker(pid):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def _kill_remotely(process: ActorProcess) -> None:
    """Let a task on its node kill it. Does not wait for the task: the node may not respond."""
    affinity = NodeAffinitySchedulingStrategy(process.node, soft=False)
    remote: Any = ray.remote(kill_worker)
    remote.options(name="bbkb end worker", num_cpus=0, max_retries=0, scheduling_strategy=affinity).remote(process.pid)


def _is_worker(pid: int) -> bool:
    """Return whether the process is a worker of Ray: its pid may have been reused.

    Returns True if the system has no /proc.
    """
    if not _PROC.exists():
        return True
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().startswith(_TITLE)
    except OSError:
        return False
