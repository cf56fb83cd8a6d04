"""`orchestrator.ask_tell.older`: spellings of version 0.2 work, with a warning that contains the
new spelling."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from bbkb import CandidateOptimizer, Objective, Optimizer, Range, strategies
from orchestrator.bandit.kernels import Matern52
from tests.orchestrator.ask_tell.searches import search_of

ANY: Any = Optimizer
ANY_ROWS: Any = CandidateOptimizer
SPACE = {"x": Range(0.0, 1.0)}
X = np.linspace(0, 1, 30)[:, None]


@contextmanager
def older(message: str) -> Iterator[None]:
    """Expect warnings that name a line of this file."""
    with pytest.warns(FutureWarning, match=message) as caught:
        yield
    assert {warning.filename for warning in caught} == {__file__}


def told() -> Any:
    optimizer = ANY(SPACE, "minimize")
    optimizer.tell({"x": 0.25}, 0.5)
    return optimizer


def test_methods_are_found_under_their_older_names() -> None:
    optimizer = told()
    with older(r"expect is called mark_pending: write mark_pending\(…\)"):
        optimizer.expect({"x": 0.75})
    assert optimizer.pending == [{"x": 0.75}]
    with older("reached is called last_step"):
        assert optimizer.reached({"x": 0.75}) == 0
    with pytest.raises(AttributeError, match="has no attribute 'expects'"):
        _ = optimizer.expects


def test_none_as_a_value_is_rejected_with_a_hint_to_fail() -> None:
    optimizer, rows = told(), ANY_ROWS(X)
    with older(r"write fail\(configuration\)"):
        optimizer.tell({"x": 0.5}, None)
    with older(r"write fail\(indices\)"):
        rows.tell([3], [None])
    assert (optimizer.trials[-1].status, rows.trials[-1].status) == ("failed", "failed")


def test_best_and_trials_can_be_used_as_pairs_and_mappings() -> None:
    optimizer, rows = told(), ANY_ROWS(X)
    rows.tell([3], [0.5])
    with older(r"best is a property: write best\.parameters and best\.value"):
        assert optimizer.best() == ({"x": 0.25}, 0.5)
    with older("best is a property"):
        assert rows.best() == (3, 0.5)
    with older("a trial has attributes"):
        assert (optimizer.trials[0]["configuration"], optimizer.trials[0]["value"]) == ({"x": 0.25}, 0.5)
    with older("a trial has attributes"):
        assert (rows.trials[0]["candidate"], rows.trials[0]["reward"]) == (3, 0.5)


def test_front_can_be_called() -> None:
    optimizer: Any = Optimizer(SPACE, objectives=[Objective("gain"), Objective("cost", "minimize")])
    optimizer.tell({"x": 0.25}, {"gain": 1.0, "cost": 2.0})
    with older("front is a property"):
        assert optimizer.front() == [({"x": 0.25}, {"gain": 1.0, "cost": 2.0})]
    with older("a trial has attributes"):
        ((configuration, values),) = optimizer.front
    assert (configuration, values) == ({"x": 0.25}, {"gain": 1.0, "cost": 2.0})


def test_options_beside_the_strategy_are_those_of_its_object() -> None:
    with older(r"write strategy=BBKB\(coverage=…\), from bbkb\.strategies"):
        optimizer = ANY(SPACE, "minimize", coverage=0.125)
    assert search_of(optimizer).strategy == strategies.BBKB(coverage=0.125)
    with older(r"write strategy=BBKB\.paper\(\)"):
        rows = ANY_ROWS(X, preset="paper")
    assert search_of(rows).strategy == strategies.BBKB.paper()


def test_strategy_may_be_an_object_or_a_function_that_makes_it() -> None:
    kernel = Matern52()
    assert search_of(CandidateOptimizer(X, strategies.GPUCB(kernel=kernel))).strategy == strategies.GPUCB(kernel=kernel)
    assert (
        search_of(CandidateOptimizer(X, strategies.GPUCB)).strategy
        == search_of(CandidateOptimizer(X, "gp_ucb")).strategy
    )


def test_trial_of_ask_reports_its_results_and_is_pickled_as_a_dictionary() -> None:
    optimizer = Optimizer(SPACE, "minimize", steps=9, seed=1)
    first, second, third = (optimizer.ask()[0] for _ in range(3))
    assert first == {"x": first["x"]} == first.parameters
    assert first.report(0.5, 1)
    assert first.last_step == 1
    first.tell(0.25)
    second.fail()
    third.report(0.5, 1)
    third.stop()
    assert optimizer.pending == []
    assert [trial.value for trial in optimizer.trials] == [0.25, None]
    assert type(pickle.loads(pickle.dumps(first))) is dict


def test_missing_direction_is_rejected_with_the_remedy() -> None:
    with pytest.raises(ValueError, match='direction is missing: write direction="minimize" for a loss'):
        Optimizer(SPACE)
