"""The contract in `workers/executor.py`, run on every executor."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ray import cloudpickle

from objectives.objective import Evaluation, Objective, Parameters, Report
from workers.executor import Executor
from workers.inline import InlineExecutor
from workers.messages import Attempt, Failure, FailureKind, Limits, Outcome, Reported, Success
from workers.on_ray.executor import RayExecutor
from workers.on_ray.places import Placement
from workers.output_files import output_file, read_end, running_folder
from workers.simulated import DurationModel, Failures, SimulatedExecutor

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import this file

ON_RAY = [pytest.param(kind, marks=pytest.mark.thorough) for kind in ("task", "actor", "auto")]

MakeExecutor = Callable[[Objective], Executor]


class Arithmetic:
    """x + seed; sleeps first or raises if requested."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        time.sleep(parameters.get("sleep", 0.0))
        if parameters.get("raises", False):
            raise ValueError("on purpose")
        report(parameters["x"], loss=0.5)
        if parameters.get("prints", False):
            print("evaluating", parameters["x"])
        return Evaluation(parameters["x"] + seed)


@pytest.fixture(params=["inline", "simulated", *ON_RAY])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    match request.param:
        case "inline":
            new_executor: Executor = InlineExecutor(Arithmetic(), Limits())
        case "simulated":
            new_executor = SimulatedExecutor(Arithmetic(), 2, DurationModel(5.0, 0.5), Failures(), seed=0)
        case kind:
            request.getfixturevalue("ray_cluster")
            placement = Placement("contract", "evaluate:contract", kind)
            new_executor = RayExecutor(Arithmetic(), 2, Limits(), placement)
    yield new_executor
    new_executor.close()


def attempts(*numbers: int, attempt: int = 1, **parameters: float | bool) -> list[Attempt]:
    return [Attempt(i, i, {"x": float(i), **parameters}, seed=100, attempt=attempt) for i in numbers]


def drain(executor: Executor) -> list[Outcome]:
    outcomes: list[Outcome] = []
    while batch := executor.next_outcomes(None):
        outcomes += batch
    return outcomes


def test_attempt_gets_exactly_one_outcome_however_many_are_submitted(executor: Executor) -> None:
    executor.submit(attempts(*range(7)))
    executor.submit(attempts(*range(7, 3 * executor.slots + 9)))
    outcomes = drain(executor)
    assert sorted(outcome.trial for outcome in outcomes) == list(range(3 * executor.slots + 9))
    for outcome in outcomes:
        assert isinstance(outcome, Success)
        assert outcome.value == outcome.trial + 100.0
        assert outcome.reports == (Reported(0, float(outcome.trial), (("loss", 0.5),)),)
        assert outcome.worker


def test_next_outcomes_returns_at_once_if_nothing_is_in_flight(executor: Executor) -> None:
    assert executor.next_outcomes(None) == []
    executor.submit(attempts(0))
    assert len(drain(executor)) == 1
    assert executor.next_outcomes(None) == []


def test_submitting_nothing_is_allowed(executor: Executor) -> None:
    executor.submit([])
    executor.cancel([])
    assert executor.next_outcomes(None) == []


def test_evaluation_that_raises_is_a_failure_among_successes(executor: Executor) -> None:
    executor.submit([*attempts(0, 1), *attempts(2, raises=True), *attempts(3)])
    outcomes = {outcome.trial: outcome for outcome in drain(executor)}
    assert {i for i, outcome in outcomes.items() if isinstance(outcome, Success)} == {0, 1, 3}
    failure = outcomes[2]
    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.ERROR
    assert failure.message.startswith("ValueError: on purpose\n")


def test_outcomes_are_stamped_by_the_executors_clock(executor: Executor) -> None:
    before = executor.now()
    executor.submit(attempts(0, 1, 2))
    outcomes = drain(executor)
    assert len(outcomes) == 3
    for outcome in outcomes:
        assert before <= outcome.started <= outcome.finished <= executor.now()


def test_output_of_an_attempt_is_in_its_file_and_silent_attempts_have_none(executor: Executor, tmp_path: Path) -> None:
    running_folder(tmp_path).mkdir()
    submitted = [*attempts(0, 1), *attempts(2, 3, prints=True)]
    executor.submit([replace(attempt, trials=tmp_path) for attempt in submitted])
    assert len(drain(executor)) == 4
    printed = {trial: read_end(output_file(tmp_path, trial, 1), 1000) for trial in range(4)}
    assert printed == {0: b"", 1: b"", 2: b"evaluating 2.0\n", 3: b"evaluating 3.0\n"}


def test_cancelled_attempt_ends_as_such_and_the_others_continue(executor: Executor) -> None:
    executor.submit([*attempts(0, 1, 2), *attempts(3, sleep=60.0), *attempts(4)])
    executor.cancel([3, 12345, 3])
    outcomes = {outcome.trial: outcome for outcome in drain(executor)}
    assert sorted(outcomes) == [0, 1, 2, 3, 4]
    cancelled = outcomes.pop(3)
    assert isinstance(cancelled, Failure)
    assert (cancelled.kind, cancelled.attempt) == (FailureKind.CANCELLED, 1)
    assert all(isinstance(outcome, Success) for outcome in outcomes.values())


def test_cancel_of_a_finished_attempt_changes_nothing(executor: Executor) -> None:
    executor.submit(attempts(0))
    assert isinstance(drain(executor)[0], Success)
    executor.cancel([0])
    assert executor.next_outcomes(None) == []


def test_slots_limit_the_concurrent_evaluations(executor: Executor) -> None:
    executor.submit(attempts(*range(3 * executor.slots), sleep=0.05))
    outcomes = drain(executor)
    for outcome in outcomes:  # the number of running ones is largest at the instant some evaluation starts
        running = [other for other in outcomes if other.started <= outcome.started < other.finished]
        assert len(running) <= executor.slots


def test_trial_can_be_retried(executor: Executor) -> None:
    for attempt in (1, 2):
        executor.submit(attempts(5, attempt=attempt))
        (outcome,) = drain(executor)
        assert (outcome.trial, outcome.attempt) == (5, attempt)


def test_adopt_returns_nothing_without_an_earlier_session(executor: Executor) -> None:
    assert executor.adopt({0: 1, 7: 2}) == frozenset()
    assert executor.next_outcomes(None) == []
    executor.submit(attempts(0, 1))
    for outcome in drain(executor):
        executor.acknowledge([(outcome.trial, outcome.attempt), (99, 1)])
    executor.submit(attempts(2))
    assert [outcome.trial for outcome in drain(executor)] == [2]


def test_close_abandons_attempts_in_flight_and_may_be_repeated(executor: Executor) -> None:
    executor.submit(attempts(0, 1, 2, sleep=60.0))
    executor.close()
    assert executor.next_outcomes(None) == []
    executor.close()
