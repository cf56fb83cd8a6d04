"""Ends the process of a worker actor, even if it is stopped or hangs.

`ray.kill` asks the worker to exit. A process that was stopped (SIGSTOP, SIGTTIN) for more than half
a minute has lost its connection; Ray lists it as dead, and it keeps its CPUs forever. SIGKILL ends
a stopped process, so the process is also killed by its pid: directly on this node, and by a task
without CPUs on another one.
"""

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_TITLE = b"ray::"  # of every worker process
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ActorProcess:
    """The process of an actor.

    node: Ray's id of the node.
    pid: the process's number there.
    """

    node: str
    pid: int


def end_actor(actor: Any, reaches_other_nodes: bool) -> None:
    """Kill `actor` and its process.

    `reaches_other_nodes`: also when the process is on another node and cannot hear Ray. It costs a
    task there, so it is for workers that may hang.
    """
    process = process_of(actor)
    ray.kill(actor)
    if process is None:
        return
    if process.node == ray.get_runtime_context().get_node_id():
        kill_worker(process.pid)
    elif reaches_other_nodes and process.node in _live_nodes():
        _kill_remotely(process)


def process_of(actor: Any) -> ActorProcess | None:
    """Return the process of `actor` by the tables of Ray's head, which has no public method for it;
    None before it has started."""
    entry = ray._private.state.state.actor_table(actor._actor_id.hex(), None, None)
    pid, node = entry.get("Pid", 0), entry.get("Address", {}).get("NodeID", "")
    return ActorProcess(node, pid) if pid and node else None


def kill_worker(pid: int) -> bool:
    """Send SIGKILL to this process if it is one of Ray's workers; returns whether it was sent."""
    if not _is_worker(pid):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def _kill_remotely(process: ActorProcess) -> None:
    """Let a task on its node kill it. Nothing waits for the task: the node may not answer."""
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


def _live_nodes() -> frozenset[str]:
    return frozenset(node["NodeID"] for node in ray.nodes() if node["Alive"])
