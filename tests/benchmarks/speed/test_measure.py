"""`benchmarks.speed.measure`: One measurement, in its own process: `python -m
benchmarks.speed.measure NAME '{"option": …}'` prints JSON.
"""

import numpy as np
import pytest

from benchmarks.speed import measure
from benchmarks.speed.defaults import defaults
from benchmarks.speed.problems import load
from benchmarks.speed.trainings import trainings


@pytest.fixture(autouse=True)
def make_problems_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every problem is a small synthetic one."""
    monkeypatch.setattr(measure, "load", lambda name, arms=300, dimension=3: load("synthetic", arms, dimension))


def test_a_run_of_ours_says_what_was_pulled_and_how_it_went() -> None:
    run = measure.ours("cadata", 60, "global_then_local", "paper")
    problem = load("synthetic", 300, 3)
    assert len(run["arms"]) == 60
    assert run["ratio"] == pytest.approx(problem.ratio(run["arms"]))
    assert run["batches"] == len(run["sizes"]) <= 60
    assert run["sizes"][-1] == (run["dictionary"], len(set(run["arms"])))
    assert run["seconds"] > 0


def test_the_least_work_is_less_than_the_run() -> None:
    run = measure.limit("cadata", 60, "global")
    assert 0 < run["columns"] < run["least"] < run["seconds"]


def test_a_refit_over_many_arms_has_the_dictionary_and_the_batch_that_were_asked_for() -> None:
    run = measure.million(5000, 3, dictionary=20, batch=30)
    assert run["dictionaries"][0] == 20
    assert run["first"] > 0
    assert run["next"] > 0


def test_the_regret_ratio_of_uniform_pulls_is_one() -> None:
    problem = load("synthetic", 300, 3)
    assert problem.ratio(list(range(300))) == pytest.approx(1.0)
    assert problem.ratio([int(np.argmax(problem.values))]) == 0.0


def test_a_search_at_the_defaults_counts_every_suggestion() -> None:
    run = defaults(200, workers=4, horizon=30, dimension=3)
    assert len(run["arms"]) == 30
    assert run["dictionary"] > 0
    assert run["suggestion"] == pytest.approx(run["seconds"] / 30)
    assert run["suggestion"] > 0


def test_suggestions_among_trainings_are_new_configurations_and_stopped_trainings_once_each() -> None:
    run = trainings(40, cycles=2, suggestions=5)
    assert len(run["picks"]) == 10
    assert len(set(run["picks"][:5])) == 5
    assert run["values"] == 6 * (40 + 8 + 10)
    assert run["suggestion"] > 0
