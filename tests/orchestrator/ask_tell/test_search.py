"""Searches by asking and telling: refits, saved files, trainings in steps."""

import base64
import contextlib
import copy
import json
import math
import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb import CandidateOptimizer, Choice, Optimizer, Range, strategies
from bbkb.objectives.parameters import Parameter
from bbkb.orchestrator.bandit.strategy import is_grown
from tests.orchestrator.ask_tell.searches import model_of, reloaded, search_of, with_options

X = np.random.default_rng(0).random((120, 2))


def reward(arms: np.ndarray) -> np.ndarray:
    rewards: np.ndarray = np.sin(5 * X[arms, 0]) + X[arms, 1] ** 2
    return rewards


@cache
def search(looks: bool = False, **options: Any) -> tuple[list[int], CandidateOptimizer]:
    """Return arms in the order of choice, with four in flight; `looks`: whether to read the model
    after every result."""
    optimizer = with_options(X, seed=2, **options)
    asked: list[int] = []
    running: list[int] = []
    while len(asked) < 90:
        running += optimizer.ask(4 - len(running)).tolist()
        asked.append(running.pop(0))
        optimizer.tell([asked[-1]], reward(np.array([asked[-1]])))
        if looks:
            assert len(optimizer.mean) == len(X)
            assert optimizer.best.value == pytest.approx(reward(np.array(asked)).max(), abs=0.3)
    return asked, optimizer


def test_results_are_learned_in_growing_groups() -> None:
    _, optimizer = search()
    rounds = model_of(optimizer).round
    assert 90 / 3 < rounds < 75
    state = search_of(optimizer).state
    assert len(state.pending) == len(state.finished) + len(optimizer.pending)


def test_refit_share_of_zero_learns_every_result() -> None:
    _, optimizer = search(refresh_growth=0.0)
    optimizer.ask(1)
    assert model_of(optimizer).round == 90


def test_reading_the_model_changes_no_pick() -> None:
    assert search(looks=True)[0] == search()[0]


def test_posterior_shown_contains_every_result() -> None:
    optimizer = CandidateOptimizer(X, seed=1)
    first = optimizer.ask(20)
    optimizer.tell(first, reward(first))
    optimizer.ask(1)
    new_arm = int(np.setdiff1d(np.arange(len(X)), first)[0])
    optimizer.tell([new_arm], [0.5])
    assert search_of(optimizer).state.finished
    assert model_of(optimizer).pulls.total == 20
    assert repr(optimizer) == "<CandidateOptimizer of 120 candidates: 21 rewards, 1 pending>"
    assert np.ptp(optimizer.mean) > 0


@pytest.mark.parametrize(("waiting", "is_due"), [(1, False), (3, False), (4, True)])
def test_refit_is_due_by_the_share_of_known_and_running_pulls(waiting: int, is_due: bool) -> None:
    assert is_grown(0.03, waiting, known=100, running=30) is is_due


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40))
def test_pending_pulls_are_the_chosen_arms_without_a_result(steps: list[tuple[int, int]]) -> None:
    optimizer = with_options(X, seed=1, warm_start={"name": "random"})
    campaign = search_of(optimizer)
    expected: list[int] = []
    for step, (arm, kind) in enumerate(steps):
        if kind == 0:
            optimizer.mark_pending([arm])
            expected.append(arm)
        elif kind == 1:
            expected += optimizer.ask(2).tolist()
        else:
            optimizer.tell([arm, arm][: kind - 1], [0.1 * step, 1.0][: kind - 1])
            for _ in range(min(kind - 1, expected.count(arm))):
                expected.remove(arm)
        assert campaign.pending == expected
        assert len(campaign.state.pending) == len(campaign.state.finished) + len(expected)


ODD: tuple[Any, ...] = (None, -1, 10**400, 0.5, "", "m:X", [], [[]], {}, {"name": "m:X"}, True, [None], "\ud800")
STRATEGY = """
from dataclasses import dataclass
from pathlib import Path
from bbkb.orchestrator.bandit.strategies.uniform import Uniform

Path(__file__).with_name("executed").touch()

@dataclass(frozen=True)
class Mine(Uniform):
    pass
"""


def saved(folder: Path, kind: type[Optimizer] | type[CandidateOptimizer], has_checksum: bool = False) -> Path:
    optimizer: Optimizer | CandidateOptimizer
    if kind is Optimizer:
        space: dict[str, Parameter] = {"x": Range(1, 3, integer=True), "c": Choice(("a", "b"))}
        optimizer = Optimizer(space, "maximize", enqueue=[{"x": 2, "c": "a"}])
        asked = optimizer.ask(1) + optimizer.ask(1)
        optimizer.tell(asked, [0.25, 0.5])
    else:
        optimizer = CandidateOptimizer(np.linspace(0.0, 1.0, 6)[:, None])
        optimizer.tell([0, 3], [0.25, 0.5])
    file = folder / "saved.json"
    optimizer.save(file)
    if not has_checksum:
        content = json.loads(file.read_text())
        del content["checksum"]
        file.write_text(json.dumps(content))
    return file


def places(tree: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in plain values."""
    if keys:
        yield keys
    if isinstance(tree, dict | list):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            yield from places(tree[key], (*keys, key))


@pytest.mark.parametrize("kind", [Optimizer, CandidateOptimizer])
def test_saved_file_with_any_value_loads_or_raises_a_value_error(tmp_path: Path, kind: Any) -> None:
    file = saved(tmp_path, kind)
    whole = json.loads(file.read_text())
    for number, keys in enumerate(places(whole)):
        changed = copy.deepcopy(whole)
        node = changed
        for key in keys[:-1]:
            node = node[key]
        node[keys[-1]] = ODD[number % len(ODD)]
        file.write_text(json.dumps(changed))
        with contextlib.suppress(ValueError):
            kind.load(file)


@pytest.mark.parametrize("kind", [Optimizer, CandidateOptimizer])
def test_damaged_file_is_never_loaded_as_another_search(tmp_path: Path, kind: Any) -> None:
    file = saved(tmp_path, kind, has_checksum=True)
    content, trials = file.read_bytes(), kind.load(file).trials
    for place in range(0, len(content), 5):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with contextlib.suppress(ValueError):
            assert kind.load(file).trials == trials


@pytest.mark.parametrize("kind", [Optimizer, CandidateOptimizer])
def test_deep_nesting_is_a_value_error(tmp_path: Path, kind: Any) -> None:
    (tmp_path / "deep.json").write_text('{"format": 1, "space": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(ValueError, match="is not a saved"):
        kind.load(tmp_path / "deep.json")


def test_huge_array_long_text_and_unknown_arm_are_short_value_errors(tmp_path: Path) -> None:
    file = saved(tmp_path, CandidateOptimizer)
    optimizer = CandidateOptimizer.load(file)
    optimizer.ask(1)
    optimizer.save(file)
    whole = json.loads(file.read_text())
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 1)}"
    huge = b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n"
    unknown_arm = json.loads(json.dumps(whole["log"]))
    refreshed = next(body for kind, body in unknown_arm if kind == "model_refreshed")
    refreshed["record"]["initial"] = [0, 10**30]
    for changed in (
        {"arms": {**whole["arms"], "features": base64.b64encode(huge).decode()}},
        {"log": [["a" * 100_000, {}]]},
        {"log": unknown_arm},
    ):
        file.write_text(json.dumps({**whole, **changed}))
        with pytest.raises(ValueError, match="is not a saved CandidateOptimizer") as refused:
            CandidateOptimizer.load(file)
        assert len(str(refused.value)) < 2000


def test_users_strategy_is_imported_only_if_the_caller_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "strategy_in_a_file.py").write_text(STRATEGY)
    file = saved(tmp_path, Optimizer)
    whole = json.loads(file.read_text())
    file.write_text(json.dumps({**whole, "strategy": {"name": "strategy_in_a_file:Mine"}, "log": []}))
    with pytest.raises(ValueError, match=r"runs the code of strategy_in_a_file: import .* or pass run_code=True"):
        Optimizer.load(file)
    assert not (tmp_path / "executed").exists()
    assert Optimizer.load(file, run_code=True).ask(1)
    assert (tmp_path / "executed").exists()
    assert Optimizer.load(file).ask(1)  # it is imported now
    monkeypatch.delitem(sys.modules, "strategy_in_a_file")


def test_load_rejects_a_pipe_instead_of_waiting_for_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ValueError, match="it is not a regular file"):
            Optimizer.load(path)


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


def train_all(optimizer: Optimizer, budget: int) -> tuple[list[Any], int]:
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
        asked, again = train_all(optimizer, 8 * STEPS)
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
    train_all(optimizer, 3 * STEPS)
    running = optimizer.ask()[0]
    optimizer.report(running, error_at(running, 1), 1)
    loaded = reloaded(optimizer, tmp_path)
    assert (loaded.paused, loaded.pending, loaded.trials) == (optimizer.paused, optimizer.pending, optimizer.trials)
    assert loaded.last_step(running) == 1
    course = train_all(loaded, 3 * STEPS)
    assert course == train_all(optimizer, 3 * STEPS)
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
