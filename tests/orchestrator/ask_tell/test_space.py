"""`Optimizer(space={...})`: `ask` and `tell` with configurations: candidates are appended, and a
saved optimizer continues exactly."""

import doctest
import pickle
import re
import threading
import tracemalloc
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bbkb import CandidateOptimizer, Choice, Objective, Optimizer, Ordered, Range
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Scalar, Space
from bbkb.orchestrator.ask_tell import space as space_module
from bbkb.orchestrator.bandit.arms import Arms
from tests.orchestrator.ask_tell.searches import reloaded

Search: Any = Optimizer  # called as its signature forbids, too

X = np.linspace(0, 1, 40)[:, None]
SPACE: Space = {
    "x": Range(0.0, 1.0),
    "lr": Range(1e-4, 1.0, log=True),
    "model": Choice(("svm", "forest")),
    "depth": Range(2, 8, integer=True, when={"model": "forest"}),
    "size": Ordered((8, 16, 32)),
}

PRIORS: Space = {
    "x": Range(0.0, 1.0, prior=0.3, confidence="high"),
    "model": Choice(("svm", "forest"), prior="svm"),
}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda optimizer: optimizer.tell({"x": 3.0}, 1.0), "x must be from 0 to 1, got 3"),
        (lambda optimizer: optimizer.tell({"x": 0.3}, "a"), "a value must be a finite number, got 'a'"),
        (lambda optimizer: optimizer.ask(0, fixed={"x": 0.5}), "limit must be >= 1, got 0"),
        (lambda optimizer: optimizer.ask(fixed={"y": 0.5}), "y is not a parameter of the space"),
        (lambda optimizer: optimizer.ask()[0].report(1.0, -1), "step must be >= 1, got -1"),
        (lambda optimizer: optimizer.best, "best needs at least one value"),
    ],
)
def test_mistake_is_raised_near_the_users_line(call: Callable[[Optimizer], object], message: str) -> None:
    optimizer = Optimizer({"x": Range(0.0, 1.0)}, "minimize")
    with pytest.raises((ObjectiveError, ValueError), match=message) as caught:
        call(optimizer)
    assert len(caught.traceback) <= 4  # this test, the lambda, a trial's method, the optimizer's


def test_forbidden_combination_with_a_mistake_is_named() -> None:
    space: Space = {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)}
    with pytest.raises(ValueError, match=r"^forbid\.1: x must be compared by above"):
        Optimizer(space, "minimize", forbid=[{"x": {"above": 0.5}}, {"x": {"abve": 1}}])
    with pytest.raises(ObjectiveError, match=r"forbid\.0\.sum .*; a sum needs a bound, such as"):
        Optimizer(space, "minimize", forbid=[{"sum": ["x", "y"]}])


def test_recommendation_respects_the_deviations_of_results(tmp_path: Path) -> None:
    optimizer = Optimizer({"x": Range(0.0, 1.0)}, "minimize", seed=1)
    rng = np.random.default_rng(1)
    for number in range(24):
        (trial,) = optimizer.ask()
        deviation = (0.01, 1.0)[number % 2]
        trial.tell((trial["x"] - 0.3) ** 2 + deviation * rng.standard_normal(), deviation)
    assert optimizer.best_observed.metrics["deviation"] == 1.0  # luck
    assert abs(optimizer.best.parameters["x"] - 0.3) < 0.15
    same = reloaded(optimizer, tmp_path)
    assert (same.best, same.ask(3)) == (optimizer.best, optimizer.ask(3))


def test_estimate_of_an_exact_value_among_noisy_ones_is_that_value() -> None:
    optimizer, rng = Optimizer({"x": Range(0.0, 1.0)}, "minimize", seed=1), np.random.default_rng(1)
    for _ in range(20):
        (trial,) = optimizer.ask()
        trial.tell((trial["x"] - 0.3) ** 2 + 0.1 * rng.standard_normal(), 0.1)
    optimizer.tell({"x": 0.3}, -0.5, 0.0)
    best = optimizer.best
    assert (best.parameters["x"], best.value) == (0.3, -0.5)
    assert best.estimate == pytest.approx(-0.5, abs=0.05)


def test_huge_values_may_have_tiny_deviations() -> None:
    optimizer = Optimizer({"x": Range(0.0, 1.0)}, "minimize")
    for _ in range(12):
        (trial,) = optimizer.ask()
        trial.tell(1e300 * (trial["x"] - 0.3) ** 2, 1e-10)
    assert optimizer.best.parameters["x"] == pytest.approx(0.3, abs=0.3)


@pytest.mark.parametrize("named", [False, True])
def test_deviation_of_zero_means_an_exact_value(named: bool) -> None:
    goal: dict[str, Any] = {"objectives": [Objective("loss", "minimize")]} if named else {"direction": "minimize"}
    optimizer = Optimizer({"x": Range(0.0, 1.0)}, **goal)
    for _ in range(20):
        (trial,) = optimizer.ask()
        trial.tell((trial["x"] - 0.3) ** 2, 0)
    assert optimizer.trials[0].metrics["deviation"] == 0.0
    assert optimizer.best.parameters == optimizer.best_observed.parameters


@pytest.mark.parametrize(
    ("strategy", "deviation", "message"),
    [
        ("bbkb", -1.0, r"a deviation must be a finite number >= 0, got -1\.0"),
        ("bbkb", float("nan"), "a deviation must be a finite number >= 0, got nan"),
        ("bbkb", "a", "deviation must be numbers"),
        ("bbkb", [1.0, 2.0], "there must be one deviation for each value, got 2 for 1"),
        ("bbkb", [[1.0]], r"there must be one deviation for each value, got an array of shape \(1, 1\)"),
        ("gp_ucb", 1.0, "deviation needs a strategy that weighs results"),
    ],
)
def test_invalid_deviation_is_rejected_and_nothing_is_recorded(strategy: str, deviation: Any, message: str) -> None:
    optimizer = Search({"x": Range(0.0, 1.0)}, "minimize", strategy=strategy)
    with pytest.raises(ValueError, match=message):
        optimizer.tell({"x": 0.5}, 1.0, deviation)
    assert not optimizer.trials


def test_configurations_have_nested_values(tmp_path: Path) -> None:
    space: Space = {
        "layers": Choice(((64, 32), (128,), (8,)), prior=(8,)),
        "x": Range(0.0, 1.0, when={"layers": [(8,)]}),
    }
    optimizer = Optimizer(space, "minimize", forbid=[{"layers": [(128,)]}])
    for _ in range(6):
        (trial,) = optimizer.ask()
        assert trial["layers"] in ((64, 32), (8,))
        trial.tell(len(trial["layers"]) + trial.get("x", 0.0))
    assert optimizer.best.parameters["layers"] == (8,)
    assert optimizer.ask(fixed={"layers": [8]})[0]["layers"] == (8,)
    assert reloaded(optimizer, tmp_path).best == optimizer.best
    with pytest.raises(ObjectiveError, match=r"layers must be one of \(64, 32\), \(128,\), \(8,\), got \[9\]"):
        optimizer.tell({"layers": [9]}, 1.0)


def test_training_may_change_its_own_lists() -> None:
    optimizer = Optimizer({"layers": Choice(([1], [2]))}, "minimize")
    (trial,) = optimizer.ask()
    given = list(trial["layers"])
    trial["layers"].append(3)
    trial.tell(0.5)
    assert optimizer.best.parameters == {"layers": given}


def loss(configuration: Mapping[str, Any]) -> Any:
    away = 0.0 if configuration["model"] == "forest" else 0.2
    return (configuration["x"] - 0.3) ** 2 + abs(configuration.get("depth", 5) - 4) / 10 + away + configuration["lr"]


def advance(optimizer: Optimizer, steps: int, batch: int = 2) -> list[dict[str, Scalar]]:
    asked: list[dict[str, Scalar]] = []
    for _ in range(steps):
        configurations = optimizer.ask(batch)
        optimizer.tell(configurations, [loss(configuration) for configuration in configurations])
        asked += configurations
    return asked


def test_documented_example_runs() -> None:
    assert doctest.testmod(space_module) == doctest.TestResults(failed=0, attempted=9)


def test_optimizer_finds_a_good_configuration_among_appended_candidates() -> None:
    optimizer = Search(space=SPACE, direction="minimize", seed=3)
    advance(optimizer, 30)
    best, value = optimizer.best.parameters, optimizer.best.value
    assert value == min(trial.value for trial in optimizer.trials) or value < 0.05
    assert value < 0.05
    assert best["model"] == "forest"
    assert len(optimizer.candidates) > 1024
    assert len(optimizer.trials) == 60
    assert optimizer.pending == []


@pytest.mark.parametrize("priors", [{}, PRIORS])
def test_saved_optimizer_continues_exactly(tmp_path: Path, priors: Space) -> None:
    forbid = [{"model": "svm", "size": 32}]
    optimizer = Search(space={**SPACE, **priors}, direction="minimize", forbid=forbid, seed=5)
    if priors:
        (first,) = optimizer.ask(1)
        assert (first["x"], first["model"]) == (pytest.approx(0.3), "svm")
        optimizer.tell(first, loss(first))
    advance(optimizer, 12)
    pending = optimizer.ask(3)
    loaded = reloaded(optimizer, tmp_path)
    assert loaded.pending == pending == optimizer.pending
    assert loaded.trials == optimizer.trials
    assert loaded.best == optimizer.best
    assert advance(loaded, 8) == advance(optimizer, 8)
    assert len(loaded.candidates) == len(optimizer.candidates) > 1024


def test_enqueued_configurations_come_first_and_are_pending() -> None:
    enqueued = [{"x": 0.25, "lr": 0.01, "model": "svm", "size": 8}, {"x": 0.5, "lr": 0.1, "model": "svm", "size": 16}]
    optimizer = Search(space=SPACE, direction="maximize", enqueue=enqueued)
    assert optimizer.ask(1) + optimizer.ask(1) == enqueued
    assert optimizer.pending == enqueued
    assert optimizer.ask(1)[0] not in enqueued


class SlowNumber:
    """A reward whose conversion takes as long as the test wants."""

    def __init__(self) -> None:
        self.is_read, self.may_go_on = threading.Event(), threading.Event()

    def __float__(self) -> float:
        self.is_read.set()
        assert self.may_go_on.wait(60)
        return 1.0


@pytest.mark.parametrize("rows", [None, np.linspace(0, 1, 400)[:, None]], ids=["space", "candidates"])
def test_thread_waits_until_another_one_has_reported_its_results(rows: NDArray[np.float64] | None) -> None:
    optimizer: Any = Optimizer({"x": Range(0.0, 1.0)}, "maximize") if rows is None else CandidateOptimizer(rows)
    first, slow = optimizer.ask(1), SlowNumber()
    with ThreadPoolExecutor(3) as threads:
        told = threads.submit(optimizer.tell, first, [slow])
        assert slow.is_read.wait(60)
        waiting = [threads.submit(optimizer.ask, 1), threads.submit(pickle.dumps, optimizer)]
        for future in waiting:
            with pytest.raises(TimeoutError):
                future.result(timeout=0.1)
        slow.may_go_on.set()
        told.result()
        copied = pickle.loads([future.result() for future in waiting][1])
    assert len(optimizer.trials) == len(optimizer.pending) == len(copied.trials) == 1


def test_configuration_that_was_never_asked_for_is_learned(tmp_path: Path) -> None:
    optimizer = Search(space=SPACE, direction="minimize")
    configuration = {"x": 0.123456, "lr": 0.0123, "model": "forest", "depth": 4, "size": 16}
    optimizer.tell([configuration], [0.001])
    assert (optimizer.best.parameters, optimizer.best.value) == (configuration, 0.001)
    assert reloaded(optimizer, tmp_path).best == optimizer.best


def test_rounded_configuration_ends_the_pending_one() -> None:
    optimizer = Optimizer({"x": Range(0.0, 1.0), "lr": Range(1e-5, 1.0, log=True)}, "minimize")
    for _ in range(12):
        (trial,) = optimizer.ask()
        optimizer.tell({name: float(f"{value:.7g}") for name, value in trial.items()}, float(trial["x"] or 0))
    assert optimizer.pending == []
    assert len(optimizer.trials) == 12
    optimizer = Optimizer(
        {"x": Range(0.0, 0.1), "n": Range(1, 2, integer=True)}, "minimize", enqueue=[{"x": 0.1, "n": 1}]
    )
    optimizer.ask()
    optimizer.tell({"x": float(np.float32(0.1)), "n": 1}, 1.0)  # above 0.1
    assert optimizer.pending == []
    with pytest.raises(ObjectiveError, match=r"x must be from 0 to 0\.1, got 0\.11"):
        optimizer.tell({"x": 0.11, "n": 1}, 1.0)


def test_withdrawn_configuration_is_not_pending_and_may_be_asked_for_again(tmp_path: Path) -> None:
    optimizer = Optimizer({"x": Range(1, 4, integer=True)}, "minimize", seed=1)
    trials = optimizer.ask(3)
    trials[0].withdraw()
    optimizer.withdraw(dict(trials[1]))
    assert optimizer.pending == trials[2:]
    assert not optimizer.trials
    with pytest.raises(ValueError, match="must be pending"):
        trials[0].withdraw()
    optimizer.save(tmp_path / "saved.json")
    loaded = Optimizer.load(tmp_path / "saved.json")
    assert loaded.pending == trials[2:]
    assert loaded.ask(3) == optimizer.ask(3)
    assert trials[0] in optimizer.pending


@pytest.mark.parametrize("fixed", [{"k": "b"}, {"x": 0.123456789}, {"x": 0.5, "k": "a"}])
def test_configurations_with_fixed_values_are_the_best_ones_that_have_them(
    fixed: dict[str, Scalar], tmp_path: Path
) -> None:
    space: Space = {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0), "k": Choice(("a", "b"))}
    optimizer = Optimizer(space, "minimize")
    for number in range(24):
        for trial in optimizer.ask(fixed=fixed if number > 9 else None):
            trial.tell((float(trial["x"] or 0) - 0.3) ** 2 + (float(trial["y"] or 0) - 0.6) ** 2)
    asked = optimizer.trials[10:]
    assert all(trial.parameters[name] == value for trial in asked for name, value in fixed.items())
    assert min(abs(float(trial.parameters["y"]) - 0.6) for trial in asked[-7:]) < 0.1
    optimizer.save(tmp_path / "saved.json")
    assert Optimizer.load(tmp_path / "saved.json").ask(2, fixed=fixed) == optimizer.ask(2, fixed=fixed)


def test_impossible_fixed_values_are_named() -> None:
    optimizer = Optimizer({"x": Range(0.0, 1.0), "y": Range(0.0, 1.0, when={"x": {"above": 0.5}})}, "minimize")
    for fixed, message in (({"x": 2.0}, "x must be from 0 to 1"), ({"z": 1}, "z is not a parameter of the space")):
        with pytest.raises(ObjectiveError, match=message):
            optimizer.ask(fixed=fixed)
    with pytest.raises(ObjectiveError, match="hardly any allowed configuration"):
        optimizer.ask(fixed={"x": 0.1, "y": 0.5})
    with pytest.raises(ObjectiveError, match=r"fixed needs a strategy.*got GPUCB"):
        Optimizer({"x": Range(0.0, 1.0)}, "minimize", strategy="gp_ucb").ask(fixed={"x": 0.5})


def test_failed_configuration_is_not_asked_for_again() -> None:
    optimizer = Search(space={"n": Range(1, 4, integer=True)}, direction="maximize")
    asked_values = []
    for _ in range(4):
        (configuration,) = optimizer.ask()
        asked_values.append(configuration["n"])
        optimizer.fail(configuration)
    assert sorted(asked_values) == [1, 2, 3, 4]
    assert optimizer.ask() == []
    with pytest.raises(ValueError, match="best needs at least one value"):
        _ = optimizer.best


@pytest.mark.parametrize("goals", [{}, {"objectives": [{"metric": "gain"}, {"metric": "cost"}]}])
def test_wrong_results_are_rejected_in_the_words_of_the_user_and_change_nothing(goals: dict[str, Any]) -> None:
    optimizer = Search(space={"x": Range(0.0, 1.0)}, direction=None if goals else "maximize", **goals)
    (asked,) = optimizer.ask()
    other, metric = {"x": 0.123}, "gain" if goals else "value"

    def row(value: object) -> object:
        return {"gain": value, "cost": 1.0} if goals else value

    wrong: list[tuple[list[Any], Any, str]] = [
        ([asked, other], [row(1.0)], "must be one value for each configuration, got 1 for 2"),
        ([other, {"x": 7}], [row(1.0)] * 2, "x must be from 0 to 1, got 7"),
        ([other], [{"acc": 1.0}], metric),
        ([{}], [row(1.0)], "x is missing"),
    ]
    for value in ("a", float("nan"), float("inf"), 1j, 10**400, b"1", [1.0], np.ones(1), {}, object()):
        wrong.append(([other], [row(value)], "must"))
    for configurations, values, message in wrong:
        with pytest.raises((ValueError, ObjectiveError), match=re.escape(message)) as refused:
            optimizer.tell(configurations, values)
        assert not re.search(r"\b(arms?|rewards?|index|indices)\b", str(refused.value))
    assert not optimizer.trials
    assert optimizer.pending == [asked]
    with pytest.raises(ValueError, match="scores needs at least one result"):
        optimizer.scores([1.0])
    optimizer.tell([asked], [row(np.float32(0.5))])
    assert len(optimizer.ask()) == 1
    optimizer.tell([other] * 3, [row(1e308)] * 3)
    assert optimizer.best_observed.parameters == other
    assert len(optimizer.ask()) == 1


def test_wrong_argument_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"got 'min'; did you mean 'minimize'\?"):
        Search(space=SPACE, direction="min")
    with pytest.raises(ValueError, match='direction is missing: write direction="minimize" for a loss'):
        Search(space=SPACE)
    with pytest.raises(ValueError, match="existing is not an argument of Optimizer; its arguments are space, dir"):
        Search(space=SPACE, direction="maximize", existing=([0], [1.0]))
    with pytest.raises(ValueError, match="sed is not an argument of Optimizer; did you mean 'seed'"):
        Search(space=SPACE, direction="maximize", sed=500)
    with pytest.raises(ValueError, match="a value must be a finite number, got None; call fail for a failed"):
        Search(space=SPACE, direction="maximize").tell({"x": 0.5}, None)
    with pytest.raises(ObjectiveError, match="did you mean 'model'"):
        Search(space={"x": Range(0, 1, when={"modl": "a"}), "model": Choice(("a", "b"))})


def test_strategy_without_growth_gets_a_fixed_pool() -> None:
    optimizer = Search(space=SPACE, direction="maximize", strategy="uniform")
    assert isinstance(optimizer, Optimizer)
    advance(optimizer, 20)
    assert len(optimizer.candidates) > 2000
    with pytest.raises(ObjectiveError, match="the strategy does not support other ones"):
        optimizer.tell([{"x": 0.123456, "lr": 0.0123, "model": "forest", "depth": 4, "size": 16}], [1.0])


def test_configurations_that_are_evaluated_elsewhere_are_pending_and_survive_saving(tmp_path: Path) -> None:
    optimizer = Search(space=SPACE, direction="minimize", seed=5)
    advance(optimizer, 12)
    elsewhere = {"x": 0.123, "lr": 0.01, "model": "forest", "depth": 3, "size": 16}
    optimizer.mark_pending([elsewhere])
    assert optimizer.pending == [elsewhere]
    loaded, copied = reloaded(optimizer, tmp_path), pickle.loads(pickle.dumps(optimizer))
    assert loaded.pending == copied.pending == [elsewhere]
    assert loaded.ask(2) == copied.ask(2) == optimizer.ask(2)
    with pytest.raises(ObjectiveError, match="x must be from 0 to 1"):
        optimizer.mark_pending([{**elsewhere, "x": 2.0}])


GOALS: dict[str, Any] = {
    "objectives": [{"metric": "gain"}, {"metric": "cost", "direction": "minimize"}],
    "constraints": [{"metric": "memory", "at_most": 24}],
}


def results(configuration: Mapping[str, Any]) -> dict[str, Any]:
    return {"gain": -loss(configuration), "cost": configuration["x"], "memory": float(configuration["size"]), "more": 1}


def search_goals(optimizer: Any, steps: int, as_rows: bool = False) -> list[Any]:
    asked = []
    for _ in range(steps):
        configurations = optimizer.ask(3)
        outcomes = [results(configuration) for configuration in configurations]
        optimizer.tell(
            configurations,
            [[outcome[name] for name in optimizer.metrics] for outcome in outcomes] if as_rows else outcomes,
        )
        asked += configurations
    return asked


def test_results_of_several_objectives_and_constraints_are_mappings_or_rows(tmp_path: Path) -> None:
    optimizer, rows = (
        Search(space=SPACE, direction="maximize", seed=4, **GOALS),
        Search(space=SPACE, direction="maximize", seed=4, **GOALS),
    )
    assert optimizer.metrics == ("gain", "cost", "memory")
    assert search_goals(optimizer, 12) == search_goals(rows, 12, as_rows=True)
    front = optimizer.front
    assert len(front) > 2
    assert all(member.metrics["memory"] == member.parameters["size"] <= 24 for member in front)
    gains, costs = zip(*((each.metrics["gain"], each.metrics["cost"]) for each in front), strict=True)
    assert list(gains) == sorted(gains, reverse=True)
    assert list(costs) == sorted(costs, reverse=True)
    assert optimizer.best == front[0]
    loaded = reloaded(optimizer, tmp_path)
    assert loaded.front == front
    assert loaded.trials == optimizer.trials
    assert search_goals(loaded, 3) == search_goals(optimizer, 3)


def test_mistakes_about_several_objectives_are_named() -> None:
    optimizer = Search(space=SPACE, **GOALS)
    asked = optimizer.ask(1)
    with pytest.raises(ValueError, match="the metric cost must be a finite number, got None"):
        optimizer.tell(asked, [{"gain": 1.0, "memory": 3.0}])
    with pytest.raises(ValueError, match="a result must have 3 numbers, gain, cost, memory, got 2"):
        optimizer.tell(asked, [[1.0, 2.0]])
    with pytest.raises(ValueError, match="one value for each configuration, got 0 for 1"):
        optimizer.tell(asked, [])
    with pytest.raises(ValueError, match="best needs at least one value"):
        _ = optimizer.best
    optimizer.tell(asked, [{"gain": 1.0, "cost": 1.0, "memory": 99.0}])
    with pytest.raises(ValueError, match="satisfies all constraints"):
        _ = optimizer.best
    optimizer.fail(asked)
    with pytest.raises(ValueError, match="direction must not be given with objectives"):
        Search(space=SPACE, direction="minimize", **GOALS)
    with pytest.raises(ValueError, match="bbkb and uniform"):
        Search(space=SPACE, direction="maximize", strategy="gp_ucb", **GOALS)


def test_results_of_one_named_objective_are_numbers_or_mappings() -> None:
    optimizer = Search(space=SPACE, objectives=[{"metric": "loss", "direction": "minimize"}])
    first, second = optimizer.ask(2)
    optimizer.tell([first, second], [{"loss": 2.0}, 1.0])
    assert (optimizer.best.parameters, optimizer.best.value) == (second, 1.0)


@pytest.mark.parametrize("value", [3, "x", {"y": 1}, object(), [3], ["a"], np.array(2)])
@pytest.mark.parametrize("argument", ["space", "objectives", "constraints", "forbid", "enqueue"])
def test_argument_of_a_wrong_type_is_named(argument: str, value: object) -> None:
    arguments: dict[str, Any] = {"space": {"x": Range(0.0, 1.0)}, argument: value}
    with pytest.raises(ValueError, match=argument):
        Search(**arguments)


@pytest.mark.parametrize("given", [None, 3, "x", [3], ["x"], [None], np.array(2)])
def test_configurations_of_a_wrong_type_are_rejected_with_the_remedy(given: Any) -> None:
    optimizer = Search({"x": Range(0.0, 1.0)}, "maximize")
    with pytest.raises((ValueError, ObjectiveError), match=r"must be a (list|mapping)"):
        optimizer.tell(given, [0.5])
    with pytest.raises((ValueError, ObjectiveError), match=r"must be a (list|mapping)"):
        optimizer.mark_pending(given)


@pytest.mark.parametrize("call", [((X,), {}), ((X, "uniform"), {"seed": 1}), ((X.tolist(),), {}), ((Arms.of(X),), {})])
def test_old_call_with_an_array_is_rejected_with_the_new_one(call: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match=r"space must be parameters by name .* write CandidateOptimizer\(array, …\)"):
        Search(*call[0], **call[1])


def test_single_result_needs_no_list() -> None:
    optimizer = Optimizer({"x": Range(0.0, 1.0)}, "minimize")
    optimizer.mark_pending({"x": 0.25})
    optimizer.tell({"x": 0.25}, 0.5)
    optimizer.tell({"x": 0.75}, [0.25])
    optimizer.fail({"x": 0.5})
    assert [trial.value for trial in optimizer.trials] == [0.5, 0.25, None]
    several = Optimizer({"x": Range(0.0, 1.0)}, objectives=[{"metric": "a"}, {"metric": "b"}])
    several.tell({"x": 0.25}, {"a": 1.0, "b": 2.0})
    assert several.trials[0].metrics == {"a": 1.0, "b": 2.0}
    with pytest.raises(ValueError, match="a value must be a finite number"):
        optimizer.tell({"x": 0.25}, [0.5, 0.25])


def test_numbers_of_numpy_are_numbers_of_a_space_and_of_a_configuration() -> None:
    low: Any = np.float32(0.0)
    optimizer = Search(space={"x": Range(low, 1), "n": Range(1, 9, integer=True)}, direction="maximize")
    optimizer.tell([{"x": np.float32(0.5), "n": np.int64(3)}], np.array([1.0]))
    assert (optimizer.best.parameters, optimizer.best.value) == ({"x": 0.5, "n": 3}, 1.0)


def test_expected_values_need_a_strategy_that_uses_them() -> None:
    with pytest.raises(ObjectiveError, match=r"space\.x\.prior needs the strategy bbkb"):
        Search(space={"x": Range(0.0, 1.0, prior=0.3)}, direction="maximize", strategy="uniform")


def test_minimum_of_0_is_not_negative_0() -> None:
    optimizer = Optimizer(SPACE, "minimize")
    optimizer.tell(optimizer.ask()[0], 0.0)
    assert str(optimizer.best.value) == "0.0"
    goals = [Objective("error", "minimize"), Objective("seconds", "minimize")]
    optimizer = Optimizer(SPACE, objectives=goals)
    optimizer.tell(optimizer.ask()[0], {"error": 0.0, "seconds": 0.0})
    assert str(optimizer.front[0].metrics) == "{'error': 0.0, 'seconds': 0.0}"


def test_best_observed_is_the_best_single_value_and_requires_a_value() -> None:
    optimizer = Optimizer({"x": Range(0.0, 1.0)}, "minimize", seed=1)
    with pytest.raises(ValueError, match="best_observed needs at least one value"):
        _ = optimizer.best_observed
    rng = np.random.default_rng(1)
    values = [float(rng.standard_normal()) for _ in range(24)]
    for value in values:
        optimizer.tell(optimizer.ask(1)[0], value)
    observed = optimizer.best_observed
    assert (observed.value, observed.trial) == (min(values), int(np.argmin(values)))
    assert optimizer.best.value != observed.value


def test_choice_of_twenty_thousand_levels_needs_little_memory() -> None:
    optimizer = Optimizer({"c": Choice(tuple(f"v{number}" for number in range(20_000)))}, "minimize")
    tracemalloc.start()
    for value in range(3):
        (trial,) = optimizer.ask()
        optimizer.tell(trial, float(value))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200e6
