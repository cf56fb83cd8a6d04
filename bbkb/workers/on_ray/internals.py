"""All uses of Ray's private parts, for which Ray has no public interface, except those of Ray Train
(`bbkb.workers.on_ray.trainer_check`).

The key-value store of Ray's head outlives all other processes of a campaign. Ray's own libraries
use the same functions. Any process and thread may call them; they raise RpcError if Ray's head does
not respond.
"""

from typing import Any

import ray
from ray.experimental import internal_kv

NAMESPACE = "bbkb"  # of actors, and of entries unless another one is given


def put(key: str, value: str | bytes, namespace: str = NAMESPACE) -> None:
    """Write or replace an entry of the head's store."""
    internal_kv._internal_kv_put(key, value, overwrite=True, namespace=namespace)


def get(key: str | bytes, namespace: str = NAMESPACE) -> bytes | None:
    """Return the entry, or None if it does not exist."""
    value: bytes | None = internal_kv._internal_kv_get(key, namespace=namespace)
    return value


def keys(prefix: str | bytes, namespace: str = NAMESPACE) -> list[bytes]:
    """Return the keys that begin with `prefix`."""
    found: list[bytes] = internal_kv._internal_kv_list(prefix, namespace=namespace)
    return found


def delete(key: str | bytes, namespace: str = NAMESPACE, is_prefix: bool = False) -> None:
    """Remove an entry, or all entries whose keys begin with `key`."""
    internal_kv._internal_kv_del(key, del_by_prefix=is_prefix, namespace=namespace)


def node_and_pid(actor: Any) -> tuple[str, int] | None:
    """Return Ray's id of an actor's node, and the id of its process there; None if it has not
    started. The public list of actors needs the dashboard."""
    entry = ray._private.state.state.actor_table(actor._actor_id.hex(), None, None)
    pid, node = entry.get("Pid", 0), entry.get("Address", {}).get("NodeID", "")
    return (node, pid) if pid and node else None


def can_grow() -> bool:
    """Return whether an autoscaler manages this cluster and may add a larger node."""
    configuration = ray._private.state.state.get_cluster_config()
    return configuration is not None and bool(configuration.node_group_configs)


def silence_raylets() -> None:
    """Prevent Ray from printing messages of raylets (`A worker died …`) on this process's standard
    output.

    `log_to_driver=False` does not suppress them. Each message belongs to a failure that the
    campaign records and displays. A test fails if a new version of Ray prints them again.
    """
    vars(ray._private.worker)["_worker_logs_enabled"] = False


def graphics_processors() -> int:
    """Count the graphics processors that Ray would find on this machine before it has started."""
    manager = ray._private.accelerators.get_accelerator_manager_for_resource("GPU")
    if manager is None:
        return 0
    visible = manager.get_current_process_visible_accelerator_ids()
    return manager.get_current_node_num_accelerators() if visible is None else len(visible)
