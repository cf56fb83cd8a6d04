"""The record of attempts in the cluster, in which a later session can find them.

The worker actor writes an entry for its attempt into the key-value store of Ray's head: first its
node, then its outcome, which remains until it is acknowledged. Reading an entry needs neither the
worker's main thread, which is busy evaluating, nor the process that requested the evaluation, which
may be dead.
"""

import pickle
from dataclasses import dataclass
from typing import TypeAlias

from bbkb.workers.messages import Outcome
from bbkb.workers.on_ray import internals


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """A running attempt."""

    worker: str  # the name of its worker actor; empty for a task
    node: str  # Ray's id of its node
    started: float  # its start, on the worker's wall clock


@dataclass(frozen=True, slots=True)
class RefusedAttempt:
    """An attempt that arrived at a process which was about to exit, and was not evaluated there."""


Entry: TypeAlias = HeldAttempt | RefusedAttempt | Outcome


@dataclass(frozen=True, slots=True)
class Ledger:
    """The entries of one campaign. Any process and thread may call the methods; they raise RpcError
    if Ray's head does not respond."""

    campaign: str

    def write(self, trial: int, attempt: int, entry: Entry) -> None:
        """Write or replace the entry of this attempt."""
        internals.put(self._key(trial, attempt), pickle.dumps(entry))

    def read(self, trial: int, attempt: int) -> Entry | None:
        """Return the entry of this attempt."""
        stored = internals.get(self._key(trial, attempt))
        if stored is None:
            return None
        entry: Entry = pickle.loads(stored)
        return entry

    def forget(self, trial: int, attempt: int) -> None:
        """Remove the entry of this attempt."""
        internals.delete(self._key(trial, attempt))

    def touch(self, sign_of_life: str) -> None:
        """Renew the lease of the campaign's workers by writing a different text with each call."""
        internals.put(self._lease, sign_of_life)

    def sign_of_life(self) -> bytes | None:
        """Return the text that the last `touch` wrote."""
        return internals.get(self._lease)

    def clear(self) -> None:
        """Remove all entries of this campaign."""
        internals.delete(f"{self.campaign}\n", is_prefix=True)

    @property
    def _lease(self) -> str:
        return f"{self.campaign}\nlease"

    def _key(self, trial: int, attempt: int) -> str:
        return f"{self.campaign}\n{trial}\n{attempt}"
