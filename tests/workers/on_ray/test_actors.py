"""Worker actors: their outcomes survive the executor, and all of their traces are removed after
use."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import cloudpickle
from ray.exceptions import ActorUnavailableError

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers.messages import Attempt, FailureKind, Outcome, TrialFailed, TrialSucceeded
from bbkb.workers.on_ray import actors as ray_actors
from bbkb.workers.on_ray import executor as ray_executor
from bbkb.workers.on_ray import in_flight, internals
from bbkb.workers.on_ray.actors import Allocation, FirstWorkers, start_workers
from bbkb.workers.on_ray.executor import RayExecutor
from bbkb.workers.on_ray.in_flight import fetch
from bbkb.workers.on_ray.internals import NAMESPACE
from bbkb.workers.on_ray.ledger import HeldAttempt, Ledger, RefusedAttempt
from bbkb.workers.on_ray.places import Kind, Placement
from tests.present import of_type
from tests.waiting import drain, wait_until
from tests.workers.conftest import Start

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import this file

pytestmark = pytest.mark.usefixtures("ray_cluster")

REPOSITORY = Path(__file__).parents[3]


class Counted:
    """Records each execution in a file and waits for another file; the value is the process id."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        if "note" in parameters:
            with open(parameters["note"], "a", encoding="ascii") as note:
                note.write(f"{os.getpid()}\n")
        time.sleep(parameters.get("sleep", 0.0))
        while "until" in parameters and not Path(parameters["until"]).exists():
            time.sleep(0.02)
        return Evaluation(float(os.getpid()))


Make = Callable[..., RayExecutor]


@pytest.fixture(autouse=True)
def nothing_is_left(ray_cluster: str, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    assert wait_until(lambda: not workers()), "worker actors are left"
    assert internals.keys(f"{request.node.name}\n") == []


@pytest.fixture
def make(start: Start, nothing_is_left: None, request: pytest.FixtureRequest) -> Make:
    def make_one(kind: Kind = "actor", slots: int = 2, keep_seconds: float = 600.0) -> RayExecutor:
        return start(Counted(), slots, Placement(request.node.name, "t", kind, keep_seconds=keep_seconds))

    return make_one


def attempt(number: int, attempt: int = 1, **parameters: Any) -> Attempt:
    return Attempt(number, number, parameters, seed=0, attempt=attempt)


def workers() -> list[str]:
    named = ray.util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in named if actor["namespace"] == NAMESPACE]


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def value_of(outcome: Outcome) -> float:
    return of_type(TrialSucceeded, outcome).value


def test_running_evaluations_are_adopted_and_not_repeated(make: Make, tmp_path: Path) -> None:
    note, until = tmp_path / "note", tmp_path / "until"
    first = make()
    first.submit([attempt(3, note=str(note), until=str(until)), attempt(4, note=str(note))])
    assert wait_until(lambda: len(lines(note)) == 2)
    first.close(leave_running=True)
    second = make()
    assert second.adopt({3: 1, 4: 1, 5: 1}) == {3, 4}  # trial 4 has ended and was not acknowledged
    until.touch()
    outcomes = drain(second)
    assert sorted(outcomes) == [3, 4]
    assert {str(int(value_of(outcome))) for outcome in outcomes.values()} == set(lines(note))
    assert len(lines(note)) == 2


DIES = """
import os, sys, time
import ray
from ray import cloudpickle
sys.path[:0] = [{tests!r}, {repository!r}]
import test_actors
cloudpickle.register_pickle_by_value(test_actors)
from test_actors import Counted, Placement, RayExecutor, attempt

ray.init(log_to_driver=False, logging_level="ERROR")
executor = RayExecutor(Counted(), 2, Placement({campaign!r}, "t", "actor"))
executor.submit([attempt(7, note={note!r}, until={until!r})])
time.sleep(100)
"""


def test_evaluation_outlives_the_process_that_requested_it(
    make: Make, tmp_path: Path, ray_cluster: str, request: pytest.FixtureRequest
) -> None:
    note, until = tmp_path / "note", tmp_path / "until"
    script = DIES.format(
        tests=str(Path(__file__).parent),
        repository=str(REPOSITORY),
        campaign=request.node.name,
        note=str(note),
        until=str(until),
    )
    caller = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "RAY_ADDRESS": ray_cluster})
    try:
        assert wait_until(lambda: lines(note))
    finally:
        caller.kill()
        caller.wait()
    heir = make()
    assert heir.adopt({7: 1}) == {7}
    assert heir.next_outcomes(0.5) == []
    until.touch()
    assert value_of(drain(heir)[7]) == float(lines(note)[0])
    assert len(lines(note)) == 1


def test_finished_result_outlives_its_worker_until_it_is_acknowledged(make: Make) -> None:
    first = make()
    first.submit([attempt(0), attempt(1)])
    pids = {number: value_of(outcome) for number, outcome in drain(first).items()}
    first.acknowledge([(0, 1)])
    first.submit([attempt(2)])  # takes the acknowledgement along
    drain(first)
    for pid in set(pids.values()):
        os.kill(int(pid), signal.SIGKILL)
    first.close(leave_running=True)
    second = make()
    assert second.adopt({0: 1, 1: 1}) in ({1}, {0, 1})  # trial 2 may have had the worker of trial 0
    assert value_of(drain(second)[1]) == pids[1]
    second.acknowledge([(0, 1), (1, 1)])
    second.close(leave_running=True)
    assert make().adopt({0: 1, 1: 1}) == frozenset()


def leave_trial_3_running(make: Make, folder: Path) -> Path:
    """The file into which the worker of trial 3, started by an earlier session, has written its
    process id."""
    note = folder / "note"
    first = make()
    first.submit([attempt(3, note=str(note), sleep=60.0)])
    assert wait_until(lambda: lines(note))
    first.close(leave_running=True)
    return note


def test_worker_with_another_attempt_is_ended_and_not_adopted(make: Make, tmp_path: Path) -> None:
    leave_trial_3_running(make, tmp_path)
    assert len(workers()) == 1
    second = make()
    assert second.adopt({3: 2, 4: 1}) == frozenset()
    assert wait_until(lambda: not workers())
    assert second.next_outcomes(None) == []


def test_session_of_tasks_adopts_attempts_in_actors(make: Make, tmp_path: Path) -> None:
    note, until = tmp_path / "note", tmp_path / "until"
    first = make("actor")
    first.submit([attempt(3, note=str(note), until=str(until))])
    assert wait_until(lambda: lines(note))
    first.close(leave_running=True)
    second = make("task", slots=1)
    assert second.adopt({3: 1}) == {3}
    second.submit([attempt(4)])  # waits: the adopted one has the slot
    until.touch()
    assert sorted(drain(second)) == [3, 4]
    assert wait_until(lambda: not workers())


def test_adopted_worker_that_dies_is_lost(make: Make, tmp_path: Path) -> None:
    note = leave_trial_3_running(make, tmp_path)
    second = make()
    assert second.adopt({3: 1}) == {3}
    os.kill(int(lines(note)[0]), signal.SIGKILL)
    outcome = of_type(TrialFailed, drain(second)[3])
    assert outcome.failure is FailureKind.WORKER_LOST


def test_loss_names_the_process_that_ended_earlier_attempts(make: Make, tmp_path: Path) -> None:
    executor = make(slots=1)
    note = tmp_path / "note"
    executor.submit([Attempt(0, 0, {}, seed=0), Attempt(1, 1, {"note": str(note), "sleep": 300.0}, seed=0)])
    (before,) = executor.next_outcomes(200)
    assert wait_until(lambda: bool(lines(note)))
    os.kill(int(lines(note)[0]), signal.SIGKILL)
    assert of_type(TrialFailed, drain(executor)[1]).worker == before.worker


def test_connection_that_broke_does_not_cost_the_evaluation(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, results = tmp_path / "note", []

    def break_twice(references: list[Any]) -> Any:
        if not references:  # nothing was there in time
            return []
        results.append(references)
        return [ActorUnavailableError("reset", b"0" * 16)] if len(results) < 3 else fetch(references)

    monkeypatch.setattr(in_flight, "fetch", break_twice)
    executor = make(slots=1)
    executor.submit([attempt(0, note=str(note)), attempt(1)])
    outcomes = drain(executor)
    assert sorted(outcomes) == [0, 1]
    assert value_of(outcomes[0]) == float(lines(note)[0])
    assert len(lines(note)) == 1
    assert len(results) >= 3


def test_rejected_attempt_is_not_adopted(make: Make, request: pytest.FixtureRequest) -> None:
    Ledger(request.node.name).write(9, 1, RefusedAttempt())
    assert make().adopt({9: 1}) == frozenset()


def test_attempt_that_never_reached_its_worker_is_not_the_evaluations_fault(
    make: Make, request: pytest.FixtureRequest
) -> None:
    first = make(slots=1)
    first.submit([attempt(0)])
    drain(first)
    first.close(leave_running=True)
    Ledger(request.node.name).write(9, 1, HeldAttempt(workers()[0], "a node", time.time()))
    second = make(slots=1)
    assert second.adopt({9: 1}) == {9}
    outcome = of_type(TrialFailed, drain(second)[9])
    assert (outcome.attempt, outcome.failure) == (1, FailureKind.NODE_LOST)


def test_workers_are_used_again_and_ended_when_idle(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = make(slots=2)
    executor.submit([attempt(number) for number in range(8)])
    assert len({value_of(outcome) for outcome in drain(executor).values()}) <= 2
    assert len(workers()) == 2
    monkeypatch.setattr(ray_executor, "IDLE_SECONDS", 0.0)
    executor.next_outcomes(0.0)
    assert wait_until(lambda: not workers())
    executor.submit([attempt(9)])
    assert list(drain(executor)) == [9]


def test_workers_without_a_renewed_lease_exit(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_actors, "_TOUCH_SECONDS", 0.1)
    note = tmp_path / "note"
    executor = make(keep_seconds=3.0)
    executor.submit([attempt(0, note=str(note), sleep=60.0)])
    assert wait_until(lambda: executor.next_outcomes(0.1) or lines(note))  # touched until the evaluation runs
    executor.close(leave_running=True)
    assert len(workers()) == 1
    assert wait_until(lambda: not workers())


def test_workers_with_a_renewed_lease_do_not_exit(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_actors, "_TOUCH_SECONDS", 0.1)
    executor = make(keep_seconds=1.5)
    executor.submit([attempt(0, sleep=5.0)])
    (outcome,) = wait_until(lambda: executor.next_outcomes(0.1))
    value_of(outcome)


def test_evaluations_known_to_be_short_become_tasks_and_long_ones_actors_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "MEASURED", 2)
    monkeypatch.setattr(ray_executor, "MANY", 2)
    executor = make("auto", slots=2)
    for trial in range(2):
        executor.submit([attempt(trial)])
        assert len(workers()) == 1  # the durations are not known yet
        drain(executor)
    assert wait_until(lambda: not workers())
    executor.submit([attempt(2), attempt(3)])
    assert workers() == []
    drain(executor)
    executor.submit([attempt(4, sleep=3.0)])
    drain(executor)
    executor.submit([attempt(5)])
    assert len(workers()) == 1
    drain(executor)


def test_idle_worker_makes_room_for_an_attempt_that_waits_for_resources(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_actors, "PLACE_SECONDS", 0.2)
    executor = make(slots=6)  # on a cluster of four slots
    executor.submit([attempt(number) for number in range(6)])
    outcomes: list[Outcome] = []
    while len(outcomes) < 6:
        outcomes += wait_until(lambda: executor.next_outcomes(0.1))


class Prepared:
    """Writes the id of the process that prepares it into the folder `notes`; the value is the
    process id."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def prepare(self) -> None:
        (self.notes / str(os.getpid())).touch()
        raise SystemExit("an evaluation would raise it again")

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        return Evaluation(float(os.getpid()))


PLACEMENT = Placement("allocation", "t", "actor")


def started(notes: Path, count: int) -> Allocation:
    objective = Prepared(notes)
    return start_workers(FirstWorkers(count=count, slots=2, placement=PLACEMENT, objective=objective))


@pytest.mark.usefixtures("without_killed_campaigns")
def test_workers_that_were_started_first_prepare_the_objective_and_then_evaluate_it(tmp_path: Path) -> None:
    allocation = started(tmp_path, count=2)
    with contextlib.closing(RayExecutor(Prepared(tmp_path), 2, PLACEMENT, allocation)) as executor:
        assert executor.adopt({}) == frozenset()
        before = sorted(workers())
        executor.submit([attempt(0), attempt(1)])
        outcomes = drain(executor).values()
        assert sorted(workers()) == before == ["bbkb allocation worker 1", "bbkb allocation worker 2"]
    evaluated = {str(int(value_of(outcome))) for outcome in outcomes}
    assert evaluated == {note.name for note in tmp_path.iterdir()}
    assert len(evaluated) == 2


@pytest.mark.usefixtures("without_killed_campaigns")
def test_start_workers_starts_one_for_each_slot_and_none_beside_another_session(tmp_path: Path) -> None:
    allocation = started(tmp_path, count=50)
    assert len(workers()) == allocation.capacity.slots == 2
    second = started(tmp_path, count=2)
    assert len(workers()) == 2
    second.release()
    assert len(workers()) == 2
    allocation.release()
