"""Short evaluations: one Ray task an attempt, on whatever worker process Ray has free. They end with this process."""

import os
import threading
import time
from typing import Any

import ray

from workers.evaluate import evaluate, is_worn_out
from workers.messages import Limits, Outcome, Trial
from workers.on_ray.objective import get_objective
from workers.on_ray.places import Placement, memory_request

_EVALUATING = threading.Lock()
_FAREWELL_SECONDS = 0.5  # for the last outcome to leave a process that ends itself


class RayTasks:
    """Gives attempts to Ray as tasks. Ray's own retries are off: the campaign alone counts attempts."""

    def __init__(self, box: list[Any], limits: Limits, placement: Placement) -> None:
        self._box = box
        self._limits = limits
        self._placing = placement
        self._remotes: dict[float, Any] = {}  # by memory factor: to make one takes as long as to submit a task

    def start(self, trial: Trial) -> Any:
        """A reference to its outcome."""
        if trial.memory_factor not in self._remotes:
            self._remotes[trial.memory_factor] = self._remote(trial.memory_factor)
        return self._remotes[trial.memory_factor].remote(self._box, trial, self._limits)

    def end(self, reference: Any) -> None:
        """Kill the process that evaluates it."""
        ray.cancel(reference, force=True)

    def close(self) -> None:
        """Let go of the objective."""
        self._box = []

    def _remote(self, memory_factor: float) -> Any:
        remote: Any = ray.remote(evaluate_remotely)
        return remote.options(
            name=self._placing.label,
            num_cpus=self._placing.cpus,
            num_gpus=self._placing.gpus,
            memory=memory_request(self._limits, memory_factor),
            max_retries=0,
            retry_exceptions=False,
        )


def evaluate_remotely(box: list[Any], trial: Trial, limits: Limits) -> Outcome:
    """What runs on the worker, whose process may die for it."""
    objective = get_objective(box)
    with _EVALUATING:
        outcome = evaluate(objective, trial, limits, is_expendable=True)
    if is_worn_out(outcome):
        threading.Thread(target=_retire, daemon=True).start()
    return outcome


def _retire() -> None:
    """End this process between two evaluations: whatever comes meanwhile waits at the lock, and runs elsewhere."""
    _EVALUATING.acquire()
    time.sleep(_FAREWELL_SECONDS)
    os._exit(1)
