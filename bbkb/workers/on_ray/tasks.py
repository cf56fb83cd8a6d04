"""Short evaluations: one Ray task for each attempt, on any free worker process of Ray. Tasks end
with the campaign's process."""

import contextlib
import math
import os
import pickle
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar

import ray

from bbkb.workers.evaluate import evaluate, is_out_of_descriptors, prepare
from bbkb.workers.limits import Streak, grace_seconds
from bbkb.workers.messages import Attempt, Limits, Outcome
from bbkb.workers.on_ray.crews import Box, Reference, get_objective, refuse_trainers
from bbkb.workers.on_ray.ledger import Entry, HeldAttempt, Ledger, RefusedAttempt
from bbkb.workers.on_ray.places import Placement
from bbkb.workers.on_ray.reports import ReportSender

_STREAK = Streak()  # the failures in a row of this worker process
_EVALUATING = threading.Lock()
_RETIRING = threading.Event()  # set when this worker process is about to end itself
_LAST_SEND_SECONDS = 0.5  # the time in which a process that ends itself can send its last outcome


class RayTasks:
    """Submits attempts to Ray as tasks. Ray's own retries are off: the campaign counts attempts.

    Arguments are pickled here. Ray's own pickling, made for functions and arrays, would take a
    quarter of the loop's time for four small values.
    """

    last_kill: ClassVar[float] = -math.inf  # the latest `end` in this process, on the monotonic clock

    def __init__(self, box: Box, placement: Placement) -> None:
        self._box = box
        self._placing = placement
        self._campaign = pickle.dumps((Ledger(placement.campaign), placement.limits))
        self._remote: Any = ray.remote(evaluate_remotely)

    def start(self, attempt: Attempt) -> Reference:
        """Start the attempt as a Ray task, and return a reference to its outcome."""
        share = self._placing.share_of(attempt)
        task = self._remote.options(
            name=f"{self._placing.label} #{attempt.trial}",
            num_cpus=share.cpus,
            num_gpus=share.gpus,
            memory=self._placing.limits.memory_bytes,
            max_retries=0,
            retry_exceptions=False,
        )
        submission = pickle.dumps((attempt, time.time()))
        reference: Reference = task.remote(self._box, self._campaign, submission)
        return reference

    def process(self, _reference: Reference) -> str | None:
        """Return None: Ray chooses the process of a task."""
        return None

    def end(self, reference: Reference) -> None:
        """Kill the process that evaluates the attempt."""
        ray.cancel(reference, force=True)
        RayTasks.last_kill = time.monotonic()

    def last_entry(self, trial: int, attempt: int) -> Entry | None:
        """Remove the ledger's entry of an attempt whose process has died, and return it.

        There is an entry if the attempt began late or was refused.
        """
        ledger = Ledger(self._placing.campaign)
        entry = ledger.read(trial, attempt)
        if entry is not None:
            ledger.forget(trial, attempt)
        return entry

    def close(self) -> None:
        """Release the objective in Ray's object store."""
        self._box = []


@lru_cache(maxsize=8)
def _campaign_of(pickled: bytes) -> tuple[Ledger, Limits]:
    campaign: tuple[Ledger, Limits] = pickle.loads(pickled)
    return campaign


def evaluate_remotely(box: Box, pickled_campaign: bytes, pickled_submission: bytes) -> Outcome:
    """Evaluate an attempt in this worker process, which is expendable.

    Args:
        box: the objective.
        pickled_campaign: the ledger and the limits, which all attempts of a campaign share.
        pickled_submission: the attempt, and the time of its submission to Ray (wall clock).
    """
    objective = get_objective(box)
    ledger, limits = _campaign_of(pickled_campaign)
    attempt, submitted = pickle.loads(pickled_submission)
    identity = (attempt.trial, attempt.attempt)
    sender = ReportSender(ledger.campaign, *identity, attempt.can_be_stopped)
    with _EVALUATING, _retire_after_errors(), contextlib.closing(sender):
        if _RETIRING.is_set():
            with contextlib.suppress(Exception):  # without it, the attempt counts as lost
                ledger.write(*identity, RefusedAttempt())
        else:
            refuse_trainers(objective)
            prepare(objective, limits)
            with _note_late_start(ledger, limits, identity, submitted):
                outcome = evaluate(objective, attempt, limits, is_expendable=True, publish=sender)
            pickle.dumps(outcome)  # raises an error if an objective has replaced the outcome's class
            if is_out_of_descriptors(outcome) or _STREAK.is_damaged_after(attempt.arm, outcome):
                _begin_retiring()
            return outcome
    while True:  # until this process ends: if this call returned, Ray would send it the next task
        time.sleep(_LAST_SEND_SECONDS)


@contextlib.contextmanager
def _note_late_start(
    ledger: Ledger, limits: Limits, identity: tuple[int, int], submitted: float
) -> Iterator[None]:  # fmt: skip
    """Record the beginning of an attempt in the ledger if it has waited long for this process.

    Otherwise, if the process died, the attempt's age would suggest that it was killed at the
    time-out. A prompt start, the usual case, needs no entry.
    """
    now = time.time()
    limit = limits.timeout_seconds
    if limit is None or now - submitted < 0.5 * grace_seconds(limit):
        yield
        return
    node = ray.get_runtime_context().get_node_id()
    ledger.write(*identity, HeldAttempt("", node, now))
    try:
        yield
    finally:
        ledger.forget(*identity)


@contextlib.contextmanager
def _retire_after_errors() -> Iterator[None]:
    """End this process after an error outside of the evaluation: an objective may have damaged it."""
    try:
        yield
    except BaseException:
        _begin_retiring()
        raise


def _begin_retiring() -> None:
    """End this process shortly after its last evaluation.

    Attempts that arrive in the meantime are refused, and run elsewhere.
    """

    def retire() -> None:
        time.sleep(_LAST_SEND_SECONDS)
        with _EVALUATING:
            os._exit(1)

    _RETIRING.set()
    threading.Thread(target=retire, daemon=True).start()
