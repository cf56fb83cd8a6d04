"""A whole campaign in virtual time: stopped trials continue after their last step, and the budget
is kept."""

from collections import Counter
from typing import Any

import pytest

from benchmarks.curves import campaign
from benchmarks.curves.campaign import CAMPAIGNS, TrainingExecutor, run_campaign
from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.simulate import Setting
from workers.messages import Attempt, IntermediateValue, Stopped, Success


def attempt(problem: CurveProblem, trial: int, number: int = 1) -> Attempt:
    assert problem.arms is not None
    return Attempt(trial, trial, problem.arms.parameters(trial), 0, number)


def test_a_stopped_trial_continues_after_its_last_step(problem: CurveProblem) -> None:
    executor, steps = TrainingExecutor(problem, 1, is_timed=False), list[int]()

    def take(values: list[IntermediateValue]) -> set[int]:
        steps.extend(value.reported.step for value in values)
        return {value.trial for value in values if value.reported.step == 5 and value.attempt == 1}

    executor.listen(take)  # type: ignore[arg-type]
    executor.submit([attempt(problem, 0)])
    (first,) = executor.next_outcomes(None)
    assert isinstance(first, Stopped)
    assert first.step == 5
    executor.submit([attempt(problem, 0, 2)])
    (second,) = executor.next_outcomes(None)
    assert isinstance(second, Success)
    assert steps == list(problem.steps)
    assert second.value == problem.curve(executor.configurations[0])[-1]


def test_a_stopped_trial_without_a_checkpoint_begins_again(problem: CurveProblem) -> None:
    executor, steps = TrainingExecutor(problem, 1, is_timed=False, has_checkpoints=False), list[int]()

    def take(values: list[IntermediateValue]) -> set[int]:
        steps.extend(value.reported.step for value in values)
        return {value.trial for value in values if value.reported.step == 5 and value.attempt == 1}

    executor.listen(take)  # type: ignore[arg-type]
    for number in (1, 2):
        executor.submit([attempt(problem, 0, number)])
        executor.next_outcomes(None)
    assert steps == [*range(1, 6), *problem.steps]


def test_workers_train_at_the_same_time(problem: CurveProblem) -> None:
    executor = TrainingExecutor(problem, 2, is_timed=False)
    executor.submit([attempt(problem, trial) for trial in range(3)])
    ended = [outcome.trial for _ in range(3) for outcome in executor.next_outcomes(None)]
    assert Counter(ended) == Counter(range(3))
    assert round(executor.now(), 6) == 2.0


def test_a_cancelled_attempt_ends_at_once(problem: CurveProblem) -> None:
    executor = TrainingExecutor(problem, 1, is_timed=False)
    executor.submit([attempt(problem, 0), attempt(problem, 1)])
    executor.cancel([0, 1])
    assert {outcome.trial for outcome in executor.next_outcomes(None)} == {0, 1}
    assert executor.next_outcomes(None) == []


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_campaign_pauses_and_continues_trials_within_its_budget(problem: CurveProblem, name: str) -> None:
    setting = Setting(workers=4, trainings=6, seed=0)
    record = run_campaign(problem, name, setting)
    assert record.starts >= 6
    assert record.continuations > 0
    assert 0.0 < record.used[-1] <= 1.0
    assert record.held <= record.forecasts


@pytest.mark.parametrize(("workers", "trainings"), [(1, 3), (1, 5), (3, 3), (3, 5), (16, 8)])
def test_a_campaign_spends_its_budget_but_for_the_rest_of_a_training(
    problem: CurveProblem, monkeypatch: pytest.MonkeyPatch, workers: int, trainings: int
) -> None:
    executors: list[TrainingExecutor] = []

    class Remembered(TrainingExecutor):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            executors.append(self)

    monkeypatch.setattr(campaign, "TrainingExecutor", Remembered)
    run_campaign(problem, "bbkb-model", Setting(workers=workers, trainings=trainings, seed=0))
    (executor,) = executors
    assert len(problem.steps) in executor.reached.values()  # one at least was trained to the end
    budget, used = trainings * problem.whole_cost, sum(executor.reached.values())
    assert budget - problem.whole_cost < used < budget + workers
