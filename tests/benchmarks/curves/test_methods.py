"""Every method searches a small problem within the budget; those that need a library are skipped
without it."""

from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks.curves.methods.catalogue import _LIBRARIES, LABELS, known_methods, make_method
from benchmarks.curves.methods.dense import DenseOptions, DenseSearch
from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.simulate import Setting, search
from orchestrator.errors import UserError

SETTING = Setting(workers=4, trainings=4, seed=0)


@pytest.mark.parametrize("name", list(LABELS))
@pytest.mark.filterwarnings("ignore")
def test_a_method_searches_within_the_budget(problem: CurveProblem, name: str) -> None:
    library = _LIBRARIES.get(name)
    if library is not None and find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    record = search(problem, make_method(name, problem, SETTING), name, SETTING)
    assert record.starts >= 4
    assert min(record.regrets) >= 0


def test_the_same_seed_gives_the_same_search(problem: CurveProblem) -> None:
    first, second = (search(problem, make_method("dense", problem, SETTING), "dense", SETTING) for _ in range(2))
    assert first.regrets == second.regrets
    assert first.used == second.used


def test_stopping_begins_more_trials(problem: CurveProblem) -> None:
    starts = {
        name: search(problem, make_method(name, problem, SETTING), name, SETTING).starts
        for name in ("random", "random-asha", "bbkb", "bbkb-median")
    }
    assert starts["random"] < starts["random-asha"]
    assert starts["bbkb"] <= starts["bbkb-median"]


def test_short_first_trainings_are_paused_and_the_best_continued(problem: CurveProblem) -> None:
    options = DenseOptions(first=12, first_steps=3)
    record = search(problem, DenseSearch(problem, 0, 4, options), "dense", SETTING)
    assert record.starts >= 12
    assert record.continuations > 0


def test_without_continuing_no_trial_is_continued(problem: CurveProblem) -> None:
    options = DenseOptions(continues=False, stop="bounds")
    record = search(problem, DenseSearch(problem, 0, 4, options), "dense", SETTING)
    assert record.continuations == 0


def test_the_best_trials_are_completed_at_the_end(problem: CurveProblem) -> None:
    record = search(problem, DenseSearch(problem, 0, 4, DenseOptions(finish=2)), "dense", SETTING)
    assert record.finished >= 1
    assert np.isfinite(record.finished_regret or np.nan)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(UserError, match="got 'dens'"):
        known_methods(["dens"])
