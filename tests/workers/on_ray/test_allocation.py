"""Workers that are started before there is an executor: they are used instead of new ones, and end
with it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray import cloudpickle

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers.messages import Attempt, TrialSucceeded
from bbkb.workers.on_ray.actors import Allocation, FirstWorkers, start_workers
from bbkb.workers.on_ray.executor import RayExecutor
from bbkb.workers.on_ray.ledger import NAMESPACE
from bbkb.workers.on_ray.places import Placement
from tests.waiting import wait_until

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import this file


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


def workers() -> list[str]:
    named = ray.util.list_named_actors(all_namespaces=True)
    return sorted(actor["name"] for actor in named if actor["namespace"] == NAMESPACE)


def wait_until_none_are_left() -> None:
    wait_until(lambda: not workers())


PLACEMENT = Placement("allocation", "t", "actor")


def start(notes: Path, count: int) -> Allocation:
    objective = Prepared(notes)
    return start_workers(FirstWorkers(count=count, slots=2, placement=PLACEMENT, objective=objective))


@pytest.fixture(autouse=True)
def cluster_for_one_campaign(without_killed_campaigns: None) -> Iterator[None]:
    """A cluster that this campaign shares with no other. The workers are removed afterwards."""
    yield
    wait_until_none_are_left()


def test_workers_that_were_started_first_prepare_the_objective_and_then_evaluate_it(tmp_path: Path) -> None:
    allocation = start(tmp_path, count=2)
    executor = RayExecutor(Prepared(tmp_path), 2, PLACEMENT, allocation)
    try:
        assert executor.adopt({}) == frozenset()
        before = workers()
        executor.submit([Attempt(0, 0, {}, seed=0), Attempt(1, 1, {}, seed=0)])
        outcomes = [outcome for _ in range(2) for outcome in executor.next_outcomes(None)]
        assert workers() == before == ["bbkb allocation worker 1", "bbkb allocation worker 2"]
        evaluated = {str(int(outcome.value)) for outcome in outcomes if isinstance(outcome, TrialSucceeded)}
        assert evaluated == {note.name for note in tmp_path.iterdir()}
        assert len(outcomes) == len(evaluated) == 2
    finally:
        executor.close()


def test_start_workers_starts_one_for_each_slot_and_none_beside_another_session(
    tmp_path: Path,
) -> None:
    allocation = start(tmp_path, count=50)
    assert len(workers()) == allocation.capacity.slots == 2
    second = start(tmp_path, count=2)
    assert len(workers()) == 2
    second.release()
    assert len(workers()) == 2
    allocation.release()
