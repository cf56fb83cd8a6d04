"""Passes the credentials of the store to the coordinator. No argument, label, file or log contains
them.

The process that starts the actor writes the store's complete URL into the key-value store of Ray's
head. The actor reads the URL at every start, including restarts by Ray, and removes it at the end.
Only processes that can run code on the cluster can read it. Nothing is written if the URL needs no
credentials, or if libpq finds them on the actor's node.
"""

import os
from dataclasses import replace
from pathlib import Path

from bbkb.orchestrator import credentials
from bbkb.orchestrator.store.connect import resolve
from bbkb.orchestrator.store.runs import Run
from bbkb.workers.on_ray import head_store

_NAMESPACE = "bbkb-stores"  # not the ledger's, which is cleared at the end of a session


def leave_store(run: Run) -> None:
    """Write the URL for the run's actor. Raises StoreError if one of the URL's variables is not
    set."""
    url = resolve(run.place)
    if isinstance(url, Path):
        return
    if url.password is None and (password := os.environ.get("PGPASSWORD")):
        url = url.set(password=password)
    complete = url.render_as_string(hide_password=False)
    if complete != run.place or credentials.has_password(complete):
        head_store.put(run.name, complete, namespace=_NAMESPACE)


def with_store(run: Run) -> Run:
    """Return the run with the URL that `leave_store` wrote; unchanged if it wrote none."""
    url = head_store.get(run.name, namespace=_NAMESPACE)
    return run if url is None else replace(run, place=bytes(url).decode())


def forget_store(name: str) -> None:
    """Remove the URL that `leave_store` wrote for the run with this name."""
    head_store.delete(name, namespace=_NAMESPACE)
