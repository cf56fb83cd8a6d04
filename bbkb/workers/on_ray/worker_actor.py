"""A detached Ray actor: a process that evaluates attempts one at a time and survives the process
that submits them.

Ray ends a task together with the process that submitted it, but completes a method call of a
detached actor. So an evaluation here continues if the campaign's process dies. Its outcome is
written into the ledger, where the next session finds it. Methods run one at a time, in the
process's main thread, which the time-out's alarm needs. This is why Ray's concurrency groups are
not used (with them, no method runs in the main thread), and why no method has to respond during an
evaluation.
"""

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

import ray

from bbkb.objectives.objective import HasPreparation
from bbkb.workers.evaluate import prepare
from bbkb.workers.messages import Attempt, Limits, Outcome
from bbkb.workers.on_ray.crews import Crew
from bbkb.workers.on_ray.ledger import HeldAttempt, Ledger
from bbkb.workers.on_ray.objective import Box, get_objective
from bbkb.workers.on_ray.reports import ReportSender

_LOOKS = 20.0  # the number of checks during one lease
_LONGEST_LOOK_SECONDS = 60.0


class WorkerActor:
    """Evaluates for `campaign` under the name `name` with the processes of `crew`. Exits
    `keep_seconds` after the last renewal of the lease."""

    def __init__(self, name: str, campaign: str, keep_seconds: float, crew: Crew) -> None:
        self._name = name
        self._crew = crew
        self._campaign = campaign
        self._ledger = Ledger(campaign)
        self._node = ray.get_runtime_context().get_node_id()
        self._last: tuple[tuple[int, int], Outcome | None] = ((-1, 0), None)
        threading.Thread(target=self._watch_lease, args=(keep_seconds,), daemon=True).start()

    def __repr__(self) -> str:
        return self._name

    def prepare(self, objective: HasPreparation, limits: Limits) -> None:
        """Import the dependencies of the objective, while the session is built."""
        prepare(objective, limits)

    def evaluate(
        self,
        boxed_objective: Box,
        attempt: Attempt,
        limits: Limits,
        acknowledged: Sequence[tuple[int, int]],
    ) -> Outcome:
        """Evaluate an attempt, write its outcome into the ledger, and return it.

        The entries of the `acknowledged` attempts are removed from the ledger.
        """
        objective = get_objective(boxed_objective)
        for durable in acknowledged:
            self._tell(functools.partial(self._ledger.forget, *durable))
        self._crew.prepare(objective, limits)
        self._write(attempt, HeldAttempt(self._name, self._node, time.time()))
        identity = attempt.trial, attempt.attempt
        sender = ReportSender(self._campaign, *identity, attempt.can_be_stopped)
        with contextlib.closing(sender):
            record = functools.partial(self._write, attempt)
            outcome = self._crew.evaluate(boxed_objective, attempt, limits, sender, record)
        self._last = (identity, outcome)
        self._write(attempt, outcome)
        return outcome

    def outcome(self, trial: int, attempt: int) -> Outcome | None:
        """Return the outcome of this attempt if it was the last one. If an attempt is running, wait
        for its end first."""
        key, outcome = self._last
        return outcome if key == (trial, attempt) else None

    def _write(self, attempt: Attempt, entry: HeldAttempt | Outcome) -> None:
        self._tell(lambda: self._ledger.write(attempt.trial, attempt.attempt, entry))

    def _tell(self, write: Callable[[], None]) -> None:
        """Write into the ledger if Ray's head responds.

        An evaluation must not be lost because the head is unreachable: only a session that takes
        over at this moment would miss the entry and evaluate again.
        """
        try:
            write()
        except (ray.exceptions.RayError, OSError, RuntimeError) as error:
            print(f"bbkb: the ledger could not be written: {error}", file=sys.stderr, flush=True)

    def _watch_lease(self, keep_seconds: float) -> None:
        """Exit this process if the lease was not renewed for `keep_seconds`.

        Renewals that Ray's head cannot report are ignored.
        """
        last_sign: bytes | None = None
        since = time.monotonic()
        while time.monotonic() - since < keep_seconds:
            time.sleep(min(_LONGEST_LOOK_SECONDS, keep_seconds / _LOOKS))
            try:
                sign = self._ledger.sign_of_life()
            except (ray.exceptions.RayError, OSError, RuntimeError):
                continue
            if sign != last_sign:
                last_sign, since = sign, time.monotonic()
        self._tell(functools.partial(self._crew.release, self._name))
        os._exit(0)
