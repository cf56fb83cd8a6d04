"""`Optimizer` with trainings in steps: values before the end, stops, continued trainings, saved and
loaded."""

import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bbkb import Optimizer, Range, strategies
from tests.orchestrator.ask_tell.searches import reloaded

STEPS = 27
SPACE = {"lr": Range(1e-4, 1.0, log=True), "width": Range(0.0, 1.0)}


def error_at(configuration: Mapping[str, Any], step: int) -> float:
    """Return a curve that falls to an end that is best at lr = 0.01, width = 0.6."""
    end = 0.2 * (math.log10(configuration["lr"]) + 2.0) ** 2 + (configuration["width"] - 0.6) ** 2
    return float(end + 0.5 / step)


def train(optimizer: Optimizer, configuration: Any) -> int:
    """Train a configuration until it ends or is stopped; return the number of steps."""
    reached = optimizer.last_step(configuration)
    for step in range(reached + 1, STEPS + 1):
        if not optimizer.report(configuration, error_at(configuration, step), step):
            return step - reached
    optimizer.tell(configuration, error_at(configuration, STEPS))
    return STEPS - reached


def search(optimizer: Optimizer, budget: int) -> tuple[list[Any], int]:
    """Train until the budget of steps is spent; return the proposed configurations and the number
    of continued ones."""
    asked, continued = [], 0
    while budget > 0:
        (configuration,) = optimizer.ask()
        continued += optimizer.last_step(configuration) > 0
        asked.append(configuration)
        budget -= train(optimizer, configuration)
    return asked, continued


def test_trainings_stop_and_continue_and_the_best_one_is_complete() -> None:
    continued = 0
    for seed in (0, 3):
        optimizer = Optimizer(SPACE, "minimize", steps=STEPS, first_trials=10, seed=seed)
        asked, again = search(optimizer, 8 * STEPS)
        assert len({str(configuration) for configuration in asked}) > 16  # full trainings would have been 8
        assert optimizer.paused
        best, value = optimizer.best.parameters, optimizer.best.value
        assert value is not None
        assert value == error_at(best, STEPS) == min(trial.value or 0.0 for trial in optimizer.trials)
        assert value < 0.1
        assert best not in optimizer.paused
        continued += again
    assert continued > 0


def test_saved_optimizer_continues_as_the_original(tmp_path: Path) -> None:
    optimizer = Optimizer(SPACE, "minimize", steps=STEPS, first_trials=8, seed=2)
    search(optimizer, 3 * STEPS)
    running = optimizer.ask()[0]
    optimizer.report(running, error_at(running, 1), 1)
    loaded = reloaded(optimizer, tmp_path)
    assert (loaded.paused, loaded.pending, loaded.trials) == (optimizer.paused, optimizer.pending, optimizer.trials)
    assert loaded.last_step(running) == 1
    course = search(loaded, 3 * STEPS)
    assert course == search(optimizer, 3 * STEPS)
    assert course[1] > 0
    assert loaded.best == optimizer.best


def test_choices_without_a_report_are_those_of_an_optimizer_without_steps() -> None:
    pair = [Optimizer(SPACE, "minimize", seed=3), Optimizer(SPACE, "minimize", seed=3, steps=STEPS)]
    for _ in range(15):
        first, second = (optimizer.ask(2) for optimizer in pair)
        assert first == second
        for optimizer in pair:
            optimizer.tell(first, [error_at(configuration, STEPS) for configuration in first])


def test_first_trials_stop_after_an_eighth_of_the_steps() -> None:
    optimizer = Optimizer(SPACE, "minimize", steps=STEPS, first_trials=3)
    steps_made = [train(optimizer, optimizer.ask()[0]) for _ in range(3)]
    assert steps_made == [4, 4, 4]
    assert len(optimizer.paused) == 3
    assert optimizer.pending == []


def test_diverging_training_is_stopped_and_one_without_a_value_is_not_asked_again() -> None:
    optimizer = Optimizer(SPACE, "minimize", steps=STEPS)
    for _ in range(8):
        (configuration,) = optimizer.ask()
        optimizer.report(configuration, error_at(configuration, 4), 4)
    diverged = next(trial for trial in iter(lambda: optimizer.ask()[0], None) if not trial.last_step)
    assert not optimizer.report(diverged, math.nan, 4)
    assert diverged not in optimizer.paused
    assert diverged not in optimizer.pending


def test_training_is_paused_at_each_half_of_its_steps() -> None:
    optimizer = Optimizer(SPACE, "minimize", steps=STEPS)
    reached: dict[str, set[int]] = {}
    for _ in range(40):
        (configuration,) = optimizer.ask()
        train(optimizer, configuration)
        reached.setdefault(str(configuration), set()).add(optimizer.last_step(configuration))
    ends = set().union(*reached.values())
    assert {4, 7, 14} <= ends
    assert len(reached) < 40
    expected_to_be_worse = ends - {0, 4, 7, 14}
    assert len(expected_to_be_worse) < len(reached)


def test_training_without_checkpoints_stops_only_if_worse_than_others() -> None:
    optimizer = Optimizer(SPACE, "minimize", steps=STEPS, checkpoints=False)
    configurations = [optimizer.ask()[0] for _ in range(6)]
    goes_on = [optimizer.report(configuration, float(place), 14) for place, configuration in enumerate(configurations)]
    assert goes_on == [True, True, True, True, False, False]  # five trainings at a step are needed to compare


def test_permanently_ended_training_is_not_continued() -> None:
    optimizer = Optimizer(SPACE, "minimize", steps=STEPS, first_trials=9)
    configurations = [optimizer.ask()[0] for _ in range(2)]
    for configuration in configurations:
        train(optimizer, configuration)
    optimizer.stop(configurations[0])
    assert optimizer.paused == configurations[1:]
    (running,) = optimizer.ask()
    optimizer.report(running, 0.3, 1)
    optimizer.stop(running)
    assert running not in optimizer.pending
    assert optimizer.last_step(running) == 0


def test_configuration_that_was_not_asked_for_may_report() -> None:
    optimizer = Optimizer(SPACE, "minimize", steps=STEPS)
    optimizer.report({"lr": 0.05, "width": 0.25}, 0.7, 2)
    assert len(optimizer.pending) == 1
    assert optimizer.last_step(optimizer.pending[0]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"checkpoints": False}, "checkpoints needs steps"),
        ({"steps": 9, "checkpoints": "anew"}, "checkpoints must be True or False"),
        ({"steps": 0}, "steps must be >= 1, got 0"),
        ({"first_trials": 4}, "first_trials needs steps"),
        ({"steps": 9, "strategy": "uniform"}, "steps needs a strategy whose model learns curves"),
        ({"steps": 9, "strategy": strategies.BBKB.paper()}, "steps needs a strategy whose model learns curves"),
    ],
)
def test_impossible_steps_are_rejected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Optimizer(SPACE, "minimize", **arguments)


@pytest.mark.parametrize(
    ("value", "step", "message"),
    [(0.5, 0, "step must be >= 1"), (0.5, 1.5, "step must be a whole number"), ("x", 1, "value must be numbers")],
)
def test_invalid_report_is_rejected_and_changes_nothing(value: Any, step: Any, message: str) -> None:
    optimizer = Optimizer(SPACE, "minimize", steps=STEPS)
    (configuration,) = optimizer.ask()
    with pytest.raises(ValueError, match=message):
        optimizer.report(configuration, value, step)
    assert optimizer.last_step(configuration) == 0


def test_witnesses_continue_although_a_rule_would_stop_them() -> None:
    """After sixty trials, one in twenty continues."""
    optimizer = Optimizer(SPACE, "minimize", steps=STEPS, checkpoints=False, strategy="bbkb")
    stopped = []
    for index in range(110):
        configuration = {"lr": 0.01, "width": index / 110}
        if not optimizer.report(configuration, float(index), 3):
            stopped.append(index)
    assert stopped == [index for index in range(4, 110) if index not in (79, 99)]


def test_trial_of_ask_reports_its_results_and_is_pickled_as_a_dictionary() -> None:
    optimizer = Optimizer(SPACE, "minimize", steps=9, seed=1)
    first, second, third = (optimizer.ask()[0] for _ in range(3))
    assert first == {"lr": first["lr"], "width": first["width"]} == first.parameters
    assert first.report(0.5, 1)
    assert first.last_step == 1
    first.tell(0.25)
    second.fail()
    third.report(0.5, 1)
    third.stop()
    assert optimizer.pending == []
    assert [trial.value for trial in optimizer.trials] == [0.25, None]
    assert type(pickle.loads(pickle.dumps(first))) is dict
