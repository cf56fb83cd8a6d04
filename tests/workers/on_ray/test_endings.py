"""Tests of workers/on_ray/endings.py: the consequences of Ray's errors."""

import sys
import time

import pytest
from ray import cloudpickle
from ray.exceptions import WorkerCrashedError

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers.messages import Attempt, FailureKind, TrialFailed
from bbkb.workers.on_ray.endings import Again, Ended, Endings
from bbkb.workers.on_ray.in_flight import RunningAttempt
from bbkb.workers.on_ray.objective import put_objective
from bbkb.workers.on_ray.places import Placement
from bbkb.workers.on_ray.tasks import RayTasks

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import this file


class Sleep:
    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        time.sleep(60.0)
        return Evaluation(0.0)


@pytest.mark.usefixtures("ray_cluster")
def test_task_whose_process_dies_just_after_a_kill_is_queued_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RayTasks, "last_kill", -1e9)  # of other tests
    placement = Placement("kills", "t", "task")
    tasks = RayTasks(put_objective(Sleep()), placement)
    endings = Endings(placement)
    requests = [Attempt(trial, trial, {}, 0) for trial in range(4)]
    references = [tasks.start(request) for request in requests]

    def is_lost(trial: int) -> bool:
        """Return whether the attempt fails if Ray reports that its process has died."""
        attempt = RunningAttempt(trial=trial, attempt=1, runner=tasks, request=requests[trial])
        ending = endings.of(references[trial], attempt, WorkerCrashedError())
        if isinstance(ending, Ended):
            assert isinstance(ending.outcome, TrialFailed)
            assert ending.outcome.failure is FailureKind.WORKER_LOST
            return True
        assert ending is Again.QUEUE
        return False

    assert is_lost(0)
    tasks.end(references[0])
    assert [is_lost(trial) for trial in (1, 1, 2, 2)] == [False, True, False, True]
    monkeypatch.setattr(RayTasks, "last_kill", time.monotonic() - 3.0)
    assert is_lost(3)
    for reference in references[1:]:
        tasks.end(reference)
