"""The key-value store of Ray's head, which outlives all other processes of a campaign.

Ray has no public interface to it; its own libraries use the same functions. Any process and thread
may call these; they raise RpcError if Ray's head does not respond.
"""

from ray.experimental import internal_kv


def put(key: str, value: str | bytes, namespace: str) -> None:
    """Write or replace an entry."""
    internal_kv._internal_kv_put(key, value, overwrite=True, namespace=namespace)


def get(key: str | bytes, namespace: str) -> bytes | None:
    """Return the entry, or None if it does not exist."""
    value: bytes | None = internal_kv._internal_kv_get(key, namespace=namespace)
    return value


def exists(key: str | bytes, namespace: str) -> bool:
    """Return whether the entry exists."""
    return bool(internal_kv._internal_kv_exists(key, namespace=namespace))


def keys(prefix: str | bytes, namespace: str) -> list[bytes]:
    """Return the keys that begin with `prefix`."""
    found: list[bytes] = internal_kv._internal_kv_list(prefix, namespace=namespace)
    return found


def delete(key: str | bytes, namespace: str, is_prefix: bool = False) -> None:
    """Remove an entry, or all entries whose keys begin with `key`."""
    internal_kv._internal_kv_del(key, del_by_prefix=is_prefix, namespace=namespace)
